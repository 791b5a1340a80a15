"""Entry point of `tf-adapters`."""

import errno
import importlib.util
import os
import sys
import warnings

from tf_adapters._installation import MissingPackageError, check_installation


def main(arguments=None):
    """Run the command line and return its exit status.

    0, 1 if the reader of the output has gone, 2 for a user's mistake, 130 when interrupted.
    """
    try:
        check_installation()
    except MissingPackageError as error:
        return _refused(error)
    # Before TensorFlow is imported, which reads them once.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    from tf_adapters.cli.app import app

    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            # Typer reports a wrong option itself, and leaves by SystemExit in every case.
            app(args=arguments, prog_name="tf-adapters")
        except SystemExit as stop:
            return stop.code or 0
        except MissingPackageError as error:
            return _refused(error)  # of a command that is for the first door alone
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # Files are checked where they are written; this is the standard output of a full disk.
            _drop_stdout()
            print(f"error: the standard output cannot be written: {error.strerror}.", file=sys.stderr)
            return 2
    return 0


def _refused(error):
    print(f"error: {error}", file=sys.stderr)
    return 2


def _show_warning(message, category, filename, lineno, file=None, line=None):
    print(f"warning: {message}", file=sys.stderr)


def _drop_stdout():
    """Let Python flush what is left in its buffer to nowhere at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry_point():
    """Console script."""
    sys.exit(main())
