"""`python -m benchmarks NAME ...`: runs the command of this name; benchmarks/README.md has the list."""

import sys

from benchmarks.start import run

if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit("usage: python -m benchmarks NAME ...: benchmarks/README.md lists the names.")
run(sys.argv.pop(1))
