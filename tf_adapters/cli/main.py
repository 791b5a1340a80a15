"""Entry point of `tf-adapters`: registers the commands and turns a user's mistake into one sentence."""

import os
import sys


def main(arguments=None):
    """Run the command line and return its exit status: 0, 2 for a user's mistake, 130 when interrupted."""
    # Before TensorFlow is imported, which reads them once.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    try:
        import tf_adapters  # noqa: F401  (checks the installation)
        from tf_adapters.errors import InputError
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from tf_adapters.cli.app import app

    try:
        # Typer reports a wrong option itself, and leaves by SystemExit in every case.
        app(args=arguments, prog_name="tf-adapters")
    except SystemExit as stop:
        return stop.code or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output, such as `head`, has gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def entry_point():
    """Console script."""
    sys.exit(main())
