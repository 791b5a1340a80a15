"""The wheel: what is in it, and that it works where nothing of the repository is."""

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from tf_adapters import __version__

ROOT = pathlib.Path(__file__).parents[1]


def run(*command, **options):
    outcome = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that `python -m build` makes of the source archive, from a copy: building leaves files behind."""
    pytest.importorskip("build", reason="needs build: pip install build")
    for package in ("setuptools", "wheel"):
        pytest.importorskip(package, reason=f"needs {package}: pip install {package}")
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    leave = shutil.ignore_patterns("__pycache__", "results", "*.egg-info")
    for name in ("tf_adapters", "tests", "benchmarks", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    # Not from the repository, whose folder build/ may hide the package `build`.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", output, source, cwd=output)
    (path,) = output.glob("*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_has_the_package_whole_and_nothing_beside_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
        scripts = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    inside = {name for name in names if not re.match(r"tf_adapters-[^/]*\.dist-info/", name)}
    files = (path for path in (ROOT / "tf_adapters").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert inside == {path.relative_to(ROOT).as_posix() for path in files}
    assert {"tf_adapters/py.typed", "tf_adapters/__init__.pyi", "tf_adapters/__main__.py"} <= inside
    assert any(name.endswith("LICENSE") for name in names - inside)
    assert "License-Expression: Apache-2.0" in metadata or "License: Apache-2.0" in metadata
    assert "Provides-Extra: demo" in metadata and "tf-adapters = tf_adapters.cli.main:entry_point" in scripts


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment_in_another_folder(wheel, checkpoint, tmp_path):
    venv.create(tmp_path / "fresh", with_pip=False)
    bin = tmp_path / "fresh" / ("Scripts" if os.name == "nt" else "bin")
    site = pathlib.Path(run(bin / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    python = bin / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    # Its own packages come first; those of this environment follow, without what an editable installation hooks in.
    # Only now: pip would take a package of that name that this environment has for installed.
    (site / "running.pth").write_text("\n".join({sysconfig.get_path(name) for name in ("purelib", "platlib")}) + "\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    options = {"cwd": elsewhere, "env": plain}
    where = run(python, "-c", "import tf_adapters; print(tf_adapters.__file__, tf_adapters.__version__)", **options)
    assert pathlib.Path(where.split()[0]).is_relative_to(site.resolve())
    assert "predict" in run(bin / "tf-adapters", "--help", **options)
    assert "houlsby-2019" in run(bin / "tf-adapters", "info", checkpoint, **options)
    code = (
        "import sys, tf_adapters; model = tf_adapters.load_backbone(sys.argv[1]); "
        "tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=4)); "
        "tf_adapters.set_trainable(model, 'adapters'); tf_adapters.save_adapter(model, 'mine'); "
        "print(tf_adapters.load_trained('mine', backbone=sys.argv[1])[1]['format_version'])"
    )
    assert run(python, "-c", code, checkpoint, **options) == "1\n"


def test_what_is_said_of_the_package_is_the_same_everywhere():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert citation["version"] == __version__ and citation["license"] == setup["metadata"]["license"]
    assert citation["title"] == setup["metadata"]["name"] and citation["cff-version"] == "1.2.0"
    assert len(citation["references"]) == 4
    for reference in [citation, *citation["references"]]:
        assert reference["title"] and reference["authors"]
    # A workflow or a form that is not YAML is found by its host alone, after the push.
    forms = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(forms) >= 3
    for form in forms:
        assert isinstance(yaml.safe_load(form.read_text(encoding="utf-8")), dict), form


def test_importing_it_lets_tensorflow_keep_memory_unless_the_user_says_otherwise():
    script = """
import pathlib, resource, tf_adapters
import tensorflow as tf

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

tf.zeros(())
tensors = [tf.zeros((25, 1000, 1000)) for _ in range(4)]
used = resident()
del tensors
print((used - resident()) / 4e8)
"""
    shares = []
    for own in ({}, {"TF_CPU_ALLOCATOR_USE_BFC": "0"}):
        rest = {name: value for name, value in os.environ.items() if name != "TF_CPU_ALLOCATOR_USE_BFC"}
        rest["TF_ENABLE_ONEDNN_OPTS"] = "0"  # with oneDNN, TensorFlow keeps memory whatever that says
        shares.append(float(run(sys.executable, "-c", script, cwd=ROOT, env=rest | own).split()[-1]))
    assert shares[0] < 0.1 and shares[1] > 0.9, shares
