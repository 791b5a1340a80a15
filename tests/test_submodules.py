"""What `import tf_adapters` alone gives."""

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


def test_examples_use_public_names_alone():
    for path in (ROOT / "examples").rglob("*.py"):
        assert "from tf_adapters" not in path.read_text(encoding="utf-8"), path
