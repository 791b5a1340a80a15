"""The command line, `tf-adapters`; one file per command."""
