"""The benchmarks are scripts that import each other from their own folder."""

import sys

from tests.benchmarks.support import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))
