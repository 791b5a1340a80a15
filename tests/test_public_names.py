"""What `import tf_adapters` alone gives, what a type checker knows of it, and that examples use nothing else."""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import tf_adapters

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = [
    "tf_adapters",
    *(found.name for found in pkgutil.walk_packages(tf_adapters.__path__, "tf_adapters.") if found.ispkg),
]


@pytest.mark.slow
def test_every_name_in_the_texts_is_there_after_one_import():
    texts = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.py"))]
    texts = "\n".join(text.read_text(encoding="utf-8") for text in texts)
    names = set(re.findall(r"\btf_adapters((?:\.[A-Za-z_]\w*)+)", texts)) - {".json"}  # a file
    assert ".adapterhub.import_adapter" in names
    # The public names at the top are imported by all other tests.
    deeper = sorted(name for name in names if name.count(".") > 1)
    code = (
        "import functools, sys, tf_adapters\n"
        "for name in sys.argv[1:]: functools.reduce(getattr, name[1:].split('.'), tf_adapters)"
    )
    outcome = subprocess.run([sys.executable, "-c", code, *deeper], capture_output=True, text=True, timeout=300)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "tf_adapters.cli"])
def test_submodules_of_a_package_are_imported_at_first_use(package):
    module = importlib.import_module(package)
    find = vars(module)["__getattr__"]
    for found in pkgutil.iter_modules(module.__path__):
        if not found.name.startswith("_") and found.name != "search":  # of an extra
            # Where a public name is as a file's, it is the public one.
            assert find(found.name).__name__ in (f"{package}.{found.name}", found.name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        getattr(module, "nothing")


def test_the_package_itself_has_what_most_programs_need_and_the_rest_is_public_in_its_room():
    assert 24 <= len(tf_adapters._PUBLIC) <= 28 and set(tf_adapters.__all__) == {"__version__", *tf_adapters._PUBLIC}
    with pytest.raises(AttributeError, match="module 'tf_adapters' has no attribute 'WordPiece'"):
        tf_adapters.WordPiece
    for name in tf_adapters._PUBLIC:
        assert getattr(tf_adapters, name).__doc__
    # The stub, which type checkers read.
    stub = pathlib.Path(tf_adapters.__file__).with_name("__init__.pyi").read_text()
    lines = re.findall(r"^from (\S+) import (\w+) as (\w+)$", stub, re.MULTILINE)
    assert sorted(name for _, name, _ in lines) == sorted(tf_adapters.__all__)
    for module, name, known_as in lines:
        assert name == known_as and getattr(importlib.import_module(module), name) is getattr(tf_adapters, name)


METHODS = {
    tf_adapters.AdapterBank: ("__init__", "add", "answer", "digest", "nbytes", "remove", "replace", "tasks"),
    tf_adapters.Experiment: ("build", "run_seeds", "score", "task_of", "train"),
}


def test_every_argument_and_answer_of_a_public_function_has_a_type():
    functions = [value for value in map(vars(tf_adapters).get, tf_adapters.__all__) if inspect.isfunction(value)]
    functions += [getattr(vars(owner)[name], "fget", vars(owner)[name]) for owner in METHODS for name in METHODS[owner]]
    assert len(functions) > 30
    for function in functions:
        signature = inspect.signature(inspect.unwrap(function))
        types = {name: parameter.annotation for name, parameter in signature.parameters.items() if name != "self"}
        untyped = [name for name, of in types.items() if of is inspect.Parameter.empty]
        assert not untyped and signature.return_annotation is not inspect.Signature.empty, function.__qualname__


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.stem)
def test_examples_use_public_names_alone(path):
    """Those at the top of the package and those in the reference, by `import tf_adapters`; ruff sees private names."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")]
    rooms = set(re.findall(r"^::: tf_adapters\.(\w+)\.(?:\w+\.)*(\w+)$", "\n".join(pages), re.M))
    nodes, found = list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))), set()
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.startswith("tf_adapters.")}
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tf_adapters":
            found |= {f"from {node.module} import {name.name}" for name in node.names}
    parts = {node.value for node in attributes}
    for dotted in (ast.unparse(node) for node in attributes if node not in parts):
        names = dotted.split(".")[1:]
        if re.fullmatch(r"tf_adapters(\.\w+)+", dotted) and names[0] not in tf_adapters.__all__:
            found |= {dotted} if tuple(names[:2]) not in rooms else set()
    assert not found
