"""Trains through the second door on JAX where there may be a GPU and no TensorFlow: time, memory and throughput of
Keras' own `fit` on random rows, adapters beside full fine-tuning and PyTorch.

On another machine it takes this repository, JAX, Keras 3, KerasHub, NumPy, h5py and safetensors; the arms of PyTorch
take what torch_environment.py names, and have their batches on the GPU before the first step. The programs are the
first door's step, which `hlo` wrote where TensorFlow is; they have random weights, and one batch, on the GPU. JAX makes
products of float32 in TF32 there, so PyTorch is told to do so too.
"""

import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.pairing import extremes
from benchmarks.result import at_least_1, installed_versions, log, make_parser, parse_arguments, provenance, show
from benchmarks.start import command
from benchmarks.steps import step_table
from benchmarks.steps.batches import write_random_bert
from benchmarks.table_parts import Table, in_notes, markdown, of_settings, origin, titled

ARMS = ("adapters", "full")
TORCH_ARMS = ("torch-adapters", "torch-compiled-adapters", "torch-full", "torch-compiled-full")
PROGRAM_ARMS = ("program-fast", "program-adapters", "program-full")
PRECISIONS = ("float32", "mixed_bfloat16")
# Products a second that a device makes of dense bfloat16, by its maker's data sheet, in 1e12.
_PEAKS = {"H100": 989.0, "H200": 989.0, "A100": 312.0}
# Of random weights; the rest is BERT's.
MODELS = {"minilm": {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}, "bert-base": {}}


def parse(arguments=None):
    parser = make_parser(__doc__, smoke="one small batch, one turn")
    help = "minilm or bert-base, which are their shapes with random weights; or a checkpoint directory"
    parser.add_argument("--model", default="minilm", help=help)
    parser.add_argument("--batch-sizes", type=at_least_1, nargs="+", default=[32, 128, 512])
    parser.add_argument("--length", type=at_least_1, default=128, help="tokens of a row, none of them padding")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--arms", nargs="+", choices=(*ARMS, *PROGRAM_ARMS, *TORCH_ARMS), default=list(ARMS))
    parser.add_argument("--programs", type=pathlib.Path, help="folder that `hlo` wrote; for the arms of that name")
    parser.add_argument("--torch-python", default=sys.executable, help="Python with the peers; see torch_environment")
    parser.add_argument("--steps", type=at_least_1, default=30, help="steps in a turn of fit")
    parser.add_argument("--rounds", type=at_least_1, default=5, help="turns; one more comes before, which compiles")
    options = parse_arguments(parser, arguments, "gpu", batch_sizes=[2], length=8, steps=2, rounds=1)
    if options.model not in MODELS and not pathlib.Path(options.model, "config.json").is_file():
        parser.error(f"--model {options.model}: give {', '.join(MODELS)} or a directory with a config.json.")
    if options.programs is None and set(PROGRAM_ARMS) & set(options.arms):
        parser.error("the arms of programs take --programs, a folder that `python -m benchmarks hlo` wrote.")
    if shutil.which(options.torch_python) is None:
        parser.error(f"--torch-python {options.torch_python} is no program.")
    return options


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        print("\n" + json.dumps(one(json.loads(sys.argv[2]))))
        return
    options = parse()
    settings = {name: getattr(options, name) for name in ("length", "steps", "rounds")}
    programs = options.programs and str(options.programs)
    settings["model"], rows = pathlib.Path(options.model).name, []
    left_out = []
    for size, precision, arm in itertools.product(options.batch_sizes, options.precisions, options.arms):
        log(f"{arm}, {precision}, {size} rows ...")
        given = {**settings, "model": options.model, "batch_size": size, "precision": precision, "arm": arm}
        given["programs"] = programs
        try:
            rows.append(apart(given, options.torch_python))
        except RuntimeError as error:
            left_out.append(f"{arm}, {precision}, {size} rows")
            log(str(error))
            continue
        # A run that is cut off has told what it measured.
        log(json.dumps(rows[-1]))
    if not rows:
        sys.exit("No arm computed.")
    about = {"device": rows[0]["device"], "versions": {}}
    for row in rows:
        library = "torch" if row["arm"] in TORCH_ARMS else "jax"
        about["versions"].setdefault(library, {}).update(row.pop("versions"))
    show(
        {"kind": "gpu", **provenance(), **about, "settings": settings, "rows": rows, "left_out": left_out},
        options.output,
        table,
    )


def apart(settings, torch_python):
    """What `one` measures, in a process of its own, whose highest memory is its own too."""
    torch = settings["arm"] in TORCH_ARMS
    words = command("steps.gpu", "--one", json.dumps(settings), python=torch_python if torch else sys.executable)
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        words = "\n".join(done.stderr.splitlines()[-12:])
        raise RuntimeError(f"{settings['arm']} ended with {done.returncode}:\n{words}")
    return json.loads(done.stdout.splitlines()[-1])


def one(settings):
    """Train one arm; a dict for JSON."""
    size, arm, steps = settings["batch_size"], settings["arm"], settings["steps"]
    ids = np.random.default_rng(0).integers(1000, 20_000, (steps, size, settings["length"]), np.int32)
    given = {"threads": os.cpu_count(), "seed": 0, "bottleneck": 64, "learning_rate": 1e-5, "arm": arm}
    with tempfile.TemporaryDirectory() as folder:
        directory, batches = pathlib.Path(settings["model"]), f"{folder}/batches.npz"
        if settings["model"] in MODELS:
            directory = pathlib.Path(folder, "model")
            write_random_bert(directory, **MODELS[settings["model"]])
        arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids[:, :, 1] % 2}
        np.savez(batches, **{f"{name}_{at}": array[at] for name, array in arrays.items() for at in range(steps)})
        make = {**dict.fromkeys(TORCH_ARMS, torch_arm), **dict.fromkeys(PROGRAM_ARMS, ProgramArm.made)}.get(
            arm, jax_arm
        )
        given |= {"precision": settings["precision"], "directory": str(directory), "batches": batches}
        given |= {
            "steps": steps,
            "program": settings["programs"] and pathlib.Path(settings["programs"], program_file(settings)),
        }
        trained, turn, device = make(given)
        config = json.loads((directory / "config.json").read_text())
    seconds = []
    for _ in range(settings["rounds"] + 1):
        started = time.perf_counter()
        turn()
        seconds.append(time.perf_counter() - started)
    times, (device, peak) = extremes([1e3 * each / steps for each in seconds[1:]]), device()
    return {
        **{name: settings[name] for name in ("arm", "precision", "batch_size")}, **trained.details, "device": device,
        "trained_parameters": trained.trained_parameters, "peak_mib": peak and peak / 2**20,
        "first_turn_s": seconds[0], "step_ms": times, "examples_per_second": 1e3 * size / times["median"],
        "tflops": step_flops(size, settings["length"], arm, config) / times["median"] / 1e9,
    }  # fmt: skip


def jax_arm(settings):
    """An arm of this package, a function that trains for a turn, and one that tells the device and its peak memory."""
    import jax

    from benchmarks.steps.hub_worker import make_arm

    arm = make_arm({**settings, "arm": f"jax-hub-{settings['arm']}"})
    inputs, labels = zip(*arm.batches)
    inputs = {name: np.concatenate([one[name] for one in inputs]) for name in inputs[0]}
    options = {"batch_size": len(labels[0]), "verbose": 0, "shuffle": False}
    labels, device = np.concatenate(labels), jax.devices()[0]

    def about():
        return device.device_kind, (device.memory_stats() or {}).get("peak_bytes_in_use")

    return arm, lambda: arm.called.fit(inputs, labels, **options), about


def torch_arm(settings):
    """An arm of PyTorch, as jax_arm."""
    import torch

    from benchmarks.peers.torch_worker import TorchArm

    there = torch.cuda.is_available()
    torch.set_float32_matmul_precision("high")
    arm = TorchArm({**settings, "device": "cuda" if there else "cpu"})

    def turn():
        for index in range(arm.batch_count):
            arm.step(index)
        if there:
            torch.cuda.synchronize()

    def about():
        return (torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()) if there else ("cpu", None)

    return arm, turn, about


class ProgramArm:
    """The program of a step, and its arguments on the device; `program` is its file."""

    def __init__(self, program, steps):
        import jax
        from jax._src.lib import xla_client

        jax.config.update("jax_enable_x64", True)  # an optimizer counts its steps in int64
        about, self.steps, (self.device, *_) = (
            json.loads(program.with_suffix(".json").read_text()),
            steps,
            jax.devices(),
        )
        self.trained_parameters = about["trained_parameters"]
        self.details = {
            "versions": {**installed_versions("jax", "numpy"), "tensorflow": about["versions"]["tensorflow"]}
        }
        self._donated = {int(output): parameter for output, parameter in about["donated"].items()}
        computation, random = xla_client.XlaComputation(program.read_bytes()), np.random.default_rng(0)
        options = xla_client.DeviceList((self.device,)), xla_client.CompileOptions()
        module = portable(program.read_bytes())
        self._compile = functools.cache(lambda: self.device.client.compile_and_load(module, *options))
        shapes = computation.program_shape().parameter_shapes()
        self._arguments = [jax.device_put(_values(shape, random), self.device) for shape in shapes]

    @classmethod
    def made(cls, settings):
        """As `jax_arm`."""
        arm = cls(settings["program"], settings["steps"])
        return arm, arm.turn, arm.about

    def turn(self):
        for _ in range(self.steps):
            outputs = self._compile().execute(self._arguments)
            for output, parameter in self._donated.items():
                self._arguments[parameter] = outputs[output]
        outputs[0].block_until_ready()

    def about(self):
        return self.device.device_kind, (self.device.memory_stats() or {}).get("peak_bytes_in_use")


def portable(program):
    """A program of XLA as StableHLO, which every plugin of JAX takes: bytes. TensorFlow's copies are out of it."""
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir

    with mlir.make_ir_context():
        text = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(program)).operation.get_asm(large_elements_limit=None)
    text = re.sub(r"= mhlo\.copy (%\S+) (\{.*\} )?:", r"= stablehlo.optimization_barrier \1 :", text)
    return _jax.mlir.serialize_portable_artifact(text, "1.8.0")


def _values(shape, random):
    """Values of a parameter; none is negative, for among them are second moments."""
    dtype = np.dtype(shape.numpy_dtype())
    if dtype.kind in "iub":
        return np.ones(shape.dimensions(), dtype)
    return np.abs(random.standard_normal(shape.dimensions(), np.float32) * 0.02).astype(dtype)


def program_file(settings):
    """The name of the file of an arm's program."""
    return "{model}-{arm}-{precision}-{batch_size}x{length}.hlo".format(**settings)


def step_flops(batch, length, arm, config):
    """Operations of a step's matrix products: twice the multiplications of the forward pass and, backwards, of the
    inputs' gradients, and for full fine-tuning of the kernels'. Those of the adapters themselves are left out."""
    tokens = batch * length
    blocks, size = config["num_hidden_layers"], config["hidden_size"]
    kernels = blocks * (4 * size**2 + 2 * size * config["intermediate_size"])
    scores = blocks * 2 * length * size
    passes = 3 if arm.endswith("full") else 2
    # The products of attention have no kernel: backwards there are two for each, whatever trains.
    return 2 * tokens * (passes * kernels + 3 * scores)


def table(result):
    """Markdown of one result."""
    settings, rows = result["settings"], []
    peak = next((value for name, value in _PEAKS.items() if name in result["device"]), None)
    order = [*PROGRAM_ARMS, *ARMS, *TORCH_ARMS].index
    for row in sorted(result["rows"], key=lambda row: (row["precision"], row["batch_size"], order(row["arm"]))):
        step, memory, arm = row["step_ms"], row["peak_mib"], row["arm"]
        share = f"{row['tflops'] / peak:.0%}" if peak and row["precision"] == "mixed_bfloat16" else ""
        rows.append((
            step_table.ARMS[f"jax-hub-{arm}" if arm in ARMS else arm], row["precision"], row["batch_size"],
            f"{step['median']:.1f} ({step['min']:.1f} to {step['max']:.1f})", f"{row['examples_per_second']:,.0f}",
            share, f"{memory:,.0f}" if memory else "", f"{row['first_turn_s']:.0f}", f"{row['trained_parameters']:,}",
        ))  # fmt: skip
    head = (
        "| | precision | rows | ms per step (min to max) | examples/s | share of the device's peak | peak memory, MiB "
        "| first turn, s | trained parameters |"
    )
    title = f"One GPU ({result['device']}): {titled(settings)}, random weights, rows of {settings['length']} tokens"
    left_out = "".join(f"; did not end: {row}" for row in result.get("left_out", ()))
    below = origin(result, f"{settings['rounds']} turns of {settings['steps']} steps, each arm by itself{left_out}")
    return markdown(title, head, "llrrrrrrr", rows, below)


def _key(result):
    work = sorted({f"{row['precision']} {row['batch_size']}" for row in result["rows"]})
    return (*of_settings("model", "length")(result), result["device"], ", ".join(work))


TABLE = Table(table, _key, in_notes)
