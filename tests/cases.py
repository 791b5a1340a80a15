"""Parameters of tests, and what they expect of bad input."""

import csv
import re

import pytest

from tf_adapters.errors import InputError


def refused(message):
    """For `with`: what is done there must raise an InputError that has these words."""
    return pytest.raises(InputError, match=re.escape(message))


def nightly_but(quick, cases):
    """The cases of a test, each a value or a tuple of them; all but the quick ones are for tests/nightly.sh."""
    cases = list(cases)
    assert set(quick) <= set(cases)
    values = {case: case if isinstance(case, tuple) else (case,) for case in cases}
    return [pytest.param(*values[case], marks=() if case in quick else pytest.mark.nightly) for case in cases]


def read_csv(path):
    """The rows of a CSV file, each by the names of the columns."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
