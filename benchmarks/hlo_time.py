"""Compiles the programs that hlo.py wrote with JAX's XLA, and times them in alternation. Needs JAX and NumPy alone."""

import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np


class Program:
    """One compiled step with its arguments on the device.

    Attributes:
        about: dict that hlo.py wrote.
        compile_s: float.
        memory: bytes of arguments, results and temporaries at once.
    """

    def __init__(self, path, jax):
        from jax._src.lib import xla_client

        self.about = json.loads(path.with_suffix(".json").read_text())
        self.donated = {int(output): parameter for output, parameter in self.about["donated"].items()}
        device = jax.devices()[0]
        computation = xla_client.XlaComputation(path.read_bytes())
        module = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
        started = time.perf_counter()
        devices = xla_client.DeviceList((device,))
        self.executable = device.client.compile_and_load(module, devices, xla_client.CompileOptions())
        self.compile_s = time.perf_counter() - started
        stats = self.executable.get_compiled_memory_stats()
        self.memory = (
            stats.argument_size_in_bytes
            + stats.output_size_in_bytes
            - stats.alias_size_in_bytes
            + stats.temp_size_in_bytes
        )
        random = np.random.RandomState(0)
        shapes = computation.program_shape().parameter_shapes()
        self.arguments = [jax.device_put(self._values(shape, random), device) for shape in shapes]

    @staticmethod
    def _values(shape, random):
        dtype = np.dtype(shape.numpy_dtype())
        if dtype.kind in "iub":
            return np.ones(shape.dimensions(), dtype)
        # Positive, for among them are second moments.
        return np.abs(random.standard_normal(shape.dimensions()) * 0.02).astype(dtype)

    def run(self, steps):
        """Milliseconds a step."""
        started = time.perf_counter()
        for _ in range(steps):
            outputs = self.executable.execute_sharded(self.arguments).disassemble_into_single_device_arrays()
            outputs = [output[0] for output in outputs]
            for output, parameter in self.donated.items():
                self.arguments[parameter] = outputs[output]
        outputs[0].block_until_ready()
        return (time.perf_counter() - started) / steps * 1e3


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder that hlo.py wrote")
    parser.add_argument("--rounds", type=int, default=7, help="turns that every program gets")
    parser.add_argument("--steps", type=int, default=20, help="steps in a turn")
    parser.add_argument("--output", type=pathlib.Path, help="new JSON file for the result")
    return parser.parse_args(arguments)


def main():
    options = parse()
    paths = sorted(options.folder.glob("*.hlo"))
    if not paths:
        sys.exit(f"{options.folder} has no *.hlo: write some with `python benchmarks/hlo.py {options.folder}`.")
    if options.output is not None and options.output.exists():
        sys.exit(f"{options.output} exists, and results are added, never edited: give another --output.")
    try:
        import jax
    except ImportError:
        sys.exit("JAX is not installed: pip install jax, or 'jax[cuda12]' for an NVIDIA GPU.")
    jax.config.update("jax_enable_x64", True)  # step counters are int64
    programs = {}
    for path in paths:
        program = programs[path.stem] = Program(path, jax)
        program.run(2)
        print(f"{path.stem}: compiled in {program.compile_s:.1f} s", file=sys.stderr, flush=True)
    turns = {name: [] for name in programs}
    for number in range(options.rounds):
        order = list(programs) if number % 2 == 0 else list(reversed(programs))
        for name in order:
            turns[name].append(programs[name].run(options.steps))
    device = jax.devices()[0]
    result = {
        "kind": "hlo", "device": device.device_kind, "jax": jax.__version__,
        "arms": {name: _summary(programs[name], turns[name]) for name in programs},
    }  # fmt: skip
    print(f"{device.device_kind}, JAX {jax.__version__}")
    print(f"{'arm':12}{'ms/step':>10}{'min':>9}{'max':>9}{'ex/s':>10}{'MiB':>9}{'compile s':>11}{'trained':>13}")
    for name, row in result["arms"].items():
        print(
            f"{name:12}{row['median_ms']:10.3f}{min(row['turns_ms']):9.3f}{max(row['turns_ms']):9.3f}"
            f"{row['examples_per_second']:10.0f}{row['memory_mib']:9.0f}{row['compile_s']:11.1f}{row['trained_parameters']:13,}"
        )
    if "fast" in turns:
        for name in turns:
            if name != "fast":
                ratios = sorted(a / b for a, b in zip(turns[name], turns["fast"]))
                print(f"{name} / fast: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}, by round)")
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
        print(f"Written to {options.output}")


def _summary(program, turns):
    median, about = statistics.median(turns), program.about
    return {
        "median_ms": median, "turns_ms": turns, "examples_per_second": about["batch_size"] * 1e3 / median,
        "memory_mib": program.memory / 2**20, "compile_s": program.compile_s,
        **{name: about[name] for name in ("model", "precision", "batch_size", "length", "trained_parameters", "git")},
    }  # fmt: skip


if __name__ == "__main__":
    main()
