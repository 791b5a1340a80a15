"""`python -m tf_adapters`, the same as `tf-adapters`."""

from tf_adapters.cli.main import entry_point

entry_point()
