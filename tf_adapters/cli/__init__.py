"""The command line, `tf-adapters`; a function is a command."""
