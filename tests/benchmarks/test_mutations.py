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


def test_rows_are_chosen_by_word_and_by_what_a_commit_has_not(monkeypatch):
    old, new = mutations.MUTATIONS[:3], mutations.MUTATIONS[3:5]
    said = {
        "show": f"A = 1\nMUTATIONS = {[*old, ('a.py', 'gone', 'x', 'y')]!r}\n",
        "diff": f"tf_adapters/{old[0][0]}\n",
    }
    monkeypatch.setattr(mutations, "git", lambda word, *words: said[word])
    monkeypatch.setattr(mutations, "MUTATIONS", [*old, *new])
    assert mutations.choose(only_new="main") == new
    assert mutations.choose(changed="main") == [row for row in (*old, *new) if row[0] == old[0][0]]
    assert mutations.choose(only=old[0][1]) == old[:1] and mutations.choose() == [*old, *new]
