"""What `import tf_adapters` alone gives."""

import ast
import importlib
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
    names = set(
        re.findall(r"\btf_adapters((?:\.[A-Za-z_]\w*)+)", "\n".join(text.read_text(encoding="utf-8") for text in texts))
    )
    names -= {".json"}  # a file
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
        if not found.name.startswith("_") and found.name not in ("hypermodel", "tuner"):  # of an extra
            # Where a public name is as a file's, it is the public one.
            assert find(found.name).__name__ in (f"{package}.{found.name}", found.name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        getattr(module, "nothing")


def test_the_package_itself_has_what_most_programs_need_and_the_rest_is_public_in_its_room():
    assert 24 <= len(tf_adapters._PUBLIC) <= 28 and set(tf_adapters.__all__) == {"__version__", *tf_adapters._PUBLIC}
    assert not set(tf_adapters._OF_ROOMS) & {*tf_adapters._PUBLIC, *tf_adapters.__all__}
    for name, room in tf_adapters._OF_ROOMS.items():
        if room != "tuning":  # which is an extra
            assert getattr(tf_adapters, name) is getattr(importlib.import_module(f"tf_adapters.{room}"), name)
    for name in tf_adapters._PUBLIC:
        assert getattr(tf_adapters, name).__doc__


class Uses(ast.NodeVisitor):
    """What a script uses of this package, and what it uses that is private to others.

    Attributes:
        dotted: set of str, as in `tf_adapters.text.WordPiece`; an import of anything else than the package itself too.
        private: set of str, attributes that begin with an underscore and that the script does not define.
    """

    def __init__(self, tree):
        self.dotted, self.private = set(), set()
        functions = (ast.FunctionDef, ast.ClassDef)
        self.own = {node.name for node in ast.walk(tree) if isinstance(node, functions)} | {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        self.visit(tree)

    def visit_Import(self, node):
        self.dotted |= {alias.name for alias in node.names if alias.name.split(".")[0] == "tf_adapters"}

    def visit_ImportFrom(self, node):
        if (node.module or "").split(".")[0] == "tf_adapters":
            self.dotted |= {f"from {node.module} import {alias.name}" for alias in node.names}

    def visit_Attribute(self, node):
        if re.match("_(?!_)", node.attr) and node.attr not in self.own:
            self.private.add(node.attr)
        text = ast.unparse(node)
        if re.fullmatch(r"tf_adapters(\.\w+)+", text):
            self.dotted.add(text)
        else:
            self.generic_visit(node)


def not_public(source):
    """What a script should not use, a sorted list: neither at the top of the package nor in the reference, or private
    to another package."""
    rooms = {
        (room, name)
        for page in (ROOT / "docs" / "reference").glob("*.md")
        for room, name in re.findall(
            r"^::: tf_adapters\.(\w+)\.(?:\w+\.)*(\w+)$", page.read_text(encoding="utf-8"), re.M
        )
    }

    def is_public(dotted):
        package, *names = dotted.split(".")
        known = not names or names[0] in tf_adapters.__all__ or tuple(names[:2]) in rooms

        return package == "tf_adapters" and known and not any(re.match("_(?!_)", name) for name in names)

    uses = Uses(ast.parse(source))
    return sorted({dotted for dotted in uses.dotted if not is_public(dotted)} | uses.private)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.stem)
def test_examples_use_public_names_alone(path):
    assert not_public(path.read_text(encoding="utf-8")) == []


def test_what_is_not_public_is_seen():
    fine = "import tf_adapters\nclass A:\n    def _b(self): return self._c\n    def d(self): self._c = self._b()\n"
    assert not_public(fine + "tf_adapters.fit.__doc__\ntf_adapters.text.WordPiece.from_directory('x').pad(a.b)\n") == []
    for line, found in (
        ("from tf_adapters import fit", "from tf_adapters import fit"),
        ("from tf_adapters.models.state import state_of", "from tf_adapters.models.state import state_of"),
        ("import tf_adapters.pipeline", "tf_adapters.pipeline"),
        ("tf_adapters.models.state.state_of(model).family", "tf_adapters.models.state.state_of"),
        ("tf_adapters._PUBLIC", "tf_adapters._PUBLIC"),
        ("model.layers[0]._trainable", "_trainable"),
    ):
        assert found in not_public(fine + line + "\n")
