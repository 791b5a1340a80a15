"""Makes, once, the environment in which the PyTorch peers run: PyTorch, AdapterHub's `adapters` and PEFT.

The package itself never needs PyTorch: it is in `.benchmark-env/` in the repository's root, which git ignores.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from benchmarks.result import ROOT, log

FOLDER = ROOT / ".benchmark-env"
REQUIREMENTS = ("torch==2.13.0", "adapters==1.3.0", "peft==0.21.2", "safetensors", "numpy", "ray[serve]==2.60.0")
STAMP = "tf_adapters_benchmark.json"


def torch_python(given=None, *, folder=FOLDER, python=sys.executable, log=log):
    """Path of the Python that has the peers: the given one, or that of the virtual environment in `folder`, which the
    interpreter `python` makes if need be. RuntimeError with pip's last lines where it or an import fails."""
    if given:
        return given
    interpreter, stamp, wanted = folder / "bin" / "python", folder / STAMP, {"requirements": list(REQUIREMENTS)}
    # The stamp is written last, so an interrupted installation is taken up again.
    if interpreter.exists() and stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return interpreter
    if not interpreter.exists():
        log(f"Making a virtual environment for the PyTorch peers in {folder}")
        _run([python, "-m", "venv", str(folder)])
    log(f"Installing {', '.join(REQUIREMENTS)}; the wheels are large, this takes minutes")
    _run([str(interpreter), "-m", "pip", "install", "--progress-bar", "off", *REQUIREMENTS])
    _run([str(interpreter), "-c", "import torch, adapters, peft, transformers"])
    stamp.write_text(json.dumps(wanted))
    return interpreter


def _run(command):
    """Run a command; RuntimeError with its last lines if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ... failed:\n" + "\n".join(done.stdout.splitlines()[-15:]))


def main():
    parser = argparse.ArgumentParser(
        description=f"Make the environment of the PyTorch peers ({', '.join(REQUIREMENTS)}) and print its Python's "
        "path. Nothing happens if it is there already. pip's own configuration decides where packages come from; "
        "to get PyTorch's CPU build where the plain index serves the CUDA build, set PIP_INDEX_URL accordingly."
    )
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER, help="default: .benchmark-env in the repository")
    parser.add_argument("--python", default=sys.executable, help="interpreter to make it with (3.10 to 3.12)")
    arguments = parser.parse_args()
    try:
        print(torch_python(folder=arguments.folder, python=arguments.python))
    except RuntimeError as error:
        sys.exit(str(error))
