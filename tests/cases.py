"""Parameters of tests."""

import pytest


def nightly_but(quick, cases):
    """The cases of a test, each a value or a tuple of them; all but the quick ones are for tests/nightly.sh."""
    cases = list(cases)
    assert set(quick) <= set(cases)
    values = {case: case if isinstance(case, tuple) else (case,) for case in cases}
    return [pytest.param(*values[case], marks=() if case in quick else pytest.mark.nightly) for case in cases]
