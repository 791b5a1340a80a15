"""What the texts name is there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]


def test_the_tests_that_the_docs_name_are_there():
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    names, files = set(re.findall(r"`(test_\w+)`", text)), set(re.findall(r"`(test_\w+\.py)`", text))
    assert len(names) > 30 and [name for name in names if f"def {name}(" not in tests] == []
    assert files and [file for file in files if not (ROOT / "tests" / file).exists()] == []
