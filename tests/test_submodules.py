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
PACKAGES = ["tf_adapters", *(found.name for found in pkgutil.walk_packages(tf_adapters.__path__, "tf_adapters.") if found.ispkg)]


def test_every_name_in_the_texts_is_there_after_one_import():
    texts = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.py"))]
    names = set(re.findall(r"\btf_adapters((?:\.[A-Za-z_]\w*)+)", "\n".join(text.read_text(encoding="utf-8") for text in texts)))
    names -= {".json"}  # a file
    assert ".adapterhub.import_adapter" in names
    # The public names at the top are imported by all other tests.
    deeper = sorted(name for name in names if name.count(".") > 1)
    code = "import functools, sys, tf_adapters; [functools.reduce(getattr, name[1:].split('.'), tf_adapters) for name in sys.argv[1:]]"
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
