"""mutations.py."""

import pytest

from benchmarks.campaigns import mutations
from tests.benchmarks.support import run_script


def test_every_line_of_the_table_stands_once_in_the_package_and_its_tests_are_there():
    for path, line, other, tests in mutations.MUTATIONS:
        assert line != other and mutations.place(path, line).count(line) == 1
        assert all((mutations.ROOT / "tests" / f"test_{test.partition(':')[0]}.py").exists() for test in tests.split())


def test_a_line_that_is_not_there_is_refused(monkeypatch):
    with pytest.raises(SystemExit, match="stands 0 times in tf_adapters/training/disk.py"):
        mutations.place("training/disk.py", "no such line")


def test_a_mutation_is_caught_in_a_copy():
    done = run_script("mutations.py", "--only", "training/disk.py")
    assert done.returncode == 0 and done.stdout.startswith("caught    training/disk.py"), done.stderr
