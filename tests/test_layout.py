"""How the package is laid out: which room imports which."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def lint(folder):
    command = [
        str(pathlib.Path(sys.executable).with_name("lint-imports")),
        "--config",
        str(ROOT / ".importlinter"),
        "--no-cache",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(not pathlib.Path(sys.executable).with_name("lint-imports").exists(), reason="needs import-linter")
def test_a_room_imports_only_rooms_below_it(tmp_path):
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    # The check sees an import that stands in a function, too.
    for path in (ROOT / "tf_adapters").rglob("*.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    with open(tmp_path / "tf_adapters" / "models" / "state.py", "a") as file:
        file.write("\n\ndef upwards():\n    from tf_adapters.training.fit import fit\n\n    return fit\n")
    done = lint(tmp_path)
    assert done.returncode == 1 and "tf_adapters.models.state -> tf_adapters.training.fit" in re.sub(
        r"\s+", " ", done.stdout
    )


def test_no_function_is_longer_than_eighty_lines():
    """Parameters, which of a command are its options, and docstrings do not count; ruff limits the complexity."""
    lengths = {}
    for path in (ROOT / "tf_adapters").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[ast.get_docstring(node) is not None :]
                lengths[f"{path.relative_to(ROOT)}: {node.name}"] = node.end_lineno - body[0].lineno + 1 if body else 0
    assert "tf_adapters/training/fit.py: fit" in lengths
    assert {name: length for name, length in lengths.items() if length > 80} == {}
