"""Times one training step of adapter tuning, full fine-tuning and their PyTorch peers, in alternation."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.pairing import BEFORE, in_turn, paired_ratios, summarise_steps
from benchmarks.peers.torch_environment import torch_python
from benchmarks.peers.worker_protocol import Worker, WorkerError, check_same
from benchmarks.result import at_least_1, busy_cores, git_state, log, make_parser, parse_arguments, provenance, show
from benchmarks.start import command
from benchmarks.steps.step_table import table

TF_ARMS = (
    "adapters", "full", "checkpointed-adapters", "checkpointed-full", "checkpointed-fast", "fast", "lora", "fast-lora",
    "forward-plain", "forward-adapters", "forward-fast", "products", "routed", "routed-lora",
    "texts",
)  # fmt: skip
HUB_ARMS = tuple(
    f"{backend}-hub-{what}"
    for backend in ("tensorflow", "tensorflow-jit", "jax", "torch")
    for what in ("adapters", "full", "lora")
) + ("tensorflow-hub-fast",)
TORCH_ARMS = (
    "torch-adapters", "torch-full", "torch-compiled-adapters", "torch-compiled-full",
    "torch-bfloat16-adapters", "torch-lora", "torch-forward-adapters", "torch-routed-lora",
)  # fmt: skip
ARMS = (*TF_ARMS, *HUB_ARMS, *TORCH_ARMS)
DEFAULT_ARMS = ("adapters", "full", "forward-plain", "forward-adapters", "torch-adapters", "torch-full")
PRECISIONS = ("float32", "mixed_bfloat16")
BATCH_COUNTS = {"t128": 4, "short": 8}
BUSY = 0.15  # cores; PyTorch's threads wait for each other by spinning, and one that is kept waiting stops all
PAUSE_S = 0.3  # lets the spinning threads of the last worker fall asleep


def alternate(workers, *, rounds, steps, log=print, pause=PAUSE_S, busy=busy_cores):
    """Let the workers, a dict from arm to Worker, compute in turns of so many steps, with a pause of so many seconds
    before each. `busy` waits so long and returns how many cores were busy meanwhile.

    Returns: dict from arm to its turns, lists of step times in ms, and the mean of busy cores in the pauses, which
        should be nearly 0.
    """
    turns, others = {arm: [] for arm in workers}, []
    for number in range(rounds):
        for arm in in_turn(workers, number):
            others.append(busy(pause))
            turns[arm].append(workers[arm].ask("steps", count=steps)["step_ms"])
        means = ", ".join(f"{arm} {sum(turns[arm][-1]) / steps:.0f}" for arm in workers)
        log(f"round {number + 1}/{rounds}, ms a step: {means}")
    return turns, sum(others) / len(others)


def split_arm(arm, precision=None):
    """What an arm computes, and its precision: `full@float32`, or the one that all others have."""
    kind, _, own = arm.removeprefix(BEFORE).partition("@")
    return kind, own or precision


def _arm(text):
    kind, precision = split_arm(text)
    if kind not in ARMS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(ARMS)}")
    if precision not in (None, *PRECISIONS) or text.endswith("@"):
        raise argparse.ArgumentTypeError(f"{text!r}: a precision of its own is @{' or @'.join(PRECISIONS)}")
    return text


def measure(settings, *, torch_python, data_dir, split, log, before=None):
    """Run the whole comparison and return the result, a dict for JSON.

    Args:
        settings: dict of what the result keeps of the options.
        torch_python: path of the Python that has the peers, or None without PyTorch arms.
        data_dir, split: where the sentences come from; see batches.py.
        before: path of another checkout, which computes the arms whose names start with `before:`.
    """
    result = {"kind": "step", **provenance(), "settings": settings}
    with tempfile.TemporaryDirectory(prefix="tf_adapters-benchmark-") as folder:
        folder = pathlib.Path(folder)
        about = _write_batches(folder, settings, data_dir, split, log)
        result["batches"] = {key: value for key, value in about.items() if key not in ("directory", "weights")}
        result["weights"] = about["weights"]
        environment = {
            "CUDA_VISIBLE_DEVICES": "-1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(settings["threads"]),
            "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1",
        }  # fmt: skip
        workers, arms = {}, {}
        try:
            for arm in settings["arms"]:
                kind, precision = split_arm(arm, settings["precision"])
                own, where = dict(environment), {"python": torch_python} if kind.startswith("torch") else {}
                if arm.startswith(BEFORE):
                    where["checkout"] = before
                if kind in HUB_ARMS:
                    own["KERAS_BACKEND"] = kind.partition("-")[0]
                worker = "steps.hub_worker" if kind in HUB_ARMS else "steps.tf_worker"
                words = command("peers.torch_worker" if kind in TORCH_ARMS else worker, **where)
                workers[arm] = Worker(arm, words, environment=own, log=folder / f"{arm}.log")
                log(f"{arm}: building ...")
                given = {"directory": about["directory"], "batches": str(folder / "batches.npz")}
                given |= {key: settings[key] for key in _FOR_WORKERS}
                arms[arm] = workers[arm].ask("build", arm=kind, precision=precision, **given)
                arms[arm] |= workers[arm].ask("warm-up")
                log(
                    f"{arm}: {arms[arm]['trained_parameters']:,} parameters train, first step "
                    f"{arms[arm]['first_step_s']:.1f} s, peak {arms[arm]['peak_rss_mib']:,.0f} MiB"
                )
            answers = {arm: row.pop("logits") for arm, row in arms.items() if "logits" in row}
            if len(answers) > 1 and settings["precision"] == "float32":
                result["largest_difference"] = check_same(answers)
            turns, others = alternate(workers, rounds=settings["rounds"], steps=settings["steps"], log=log)
            for arm, worker in workers.items():
                older = arm.startswith(BEFORE)
                if settings["profile"] and not older and (profile := worker.ask("profile")):
                    arms[arm]["profile_ms"] = profile
                arms[arm] |= worker.ask("finish")
        finally:
            for worker in workers.values():
                worker.close()
    versions = {"tensorflow": {}, "torch": {}}
    for arm, row in arms.items():
        kind, _ = split_arm(arm)
        where = f"keras on {kind.partition('-')[0]}" if kind in HUB_ARMS else "tensorflow"
        versions["torch" if kind in TORCH_ARMS else where] = row.pop("versions")
        rounded = [[round(value, 3) for value in turn] for turn in turns[arm]]
        row |= {**summarise_steps(turns[arm], settings["batch_size"]), "turns_ms": rounded}
    result |= {"versions": versions, "arms": arms, "ratios": paired_ratios(turns)}
    result["busy_cores_in_pauses"] = round(others, 2)
    if others > BUSY:
        log(f"Something else used {others:.1f} cores during the run: do not trust these times.")
    return result


_FOR_WORKERS = ("bottleneck", "threads", "seed", "learning_rate", "xla")


def _write_batches(folder, settings, data_dir, split, log):
    # In a process of its own: the driver stays small, and its memory is not the workers'.
    log("Tokenizing the batches ...")
    words = command("steps.batches", "--folder", folder, "--split", split)
    for name in ("model", "batches", "batch_size", "seed"):
        words += [f"--{name.replace('_', '-')}", str(settings["model_source" if name == "model" else name])]
    if data_dir:
        words += ["--data-dir", str(data_dir)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise WorkerError("The batches could not be made:\n" + "\n".join(done.stderr.splitlines()[-8:]))
    settings.pop("model_source")
    about = json.loads((folder / "batches.json").read_text())
    lengths = about["lengths"]
    log(f"{len(lengths)} batches of {settings['batch_size']} rows, {about['text']}, lengths {lengths}")
    return about


def parse(arguments=None):
    parser = make_parser(
        __doc__ + " Each arm is a process of its own with a memory peak of its own, and only one computes at a time. "
        "The result is a new JSON file. Run it on an otherwise idle machine.",
        smoke="batches of 2 rows, one round",
        data="folder with tfds glue/sst2; without it, Rotten Tomatoes sentences",
    )  # fmt: skip
    help = "minilm; bert-base, which is BERT-base's configuration with random weights; or a checkpoint directory"
    parser.add_argument("--model", default="minilm", help=help)
    help = "t128: rows packed to 128 tokens, no padding; short: sentences sorted by length"
    parser.add_argument("--batches", choices=sorted(BATCH_COUNTS), default="t128", help=help)
    parser.add_argument("--split", default="validation", help="rows of that split; SST-2's train rows are phrases")
    parser.add_argument("--batch-size", type=at_least_1, help="default: 16 for bert-base with t128, 32 otherwise")
    parser.add_argument("--bottleneck", type=at_least_1, default=64, help="units of an adapter")
    parser.add_argument("--rounds", type=at_least_1, default=7, help="turns that every arm gets")
    parser.add_argument("--steps", type=int, help="steps in a turn; default: once over the batches (t128 4, short 8)")
    help = f"of {', '.join(ARMS)}; full@float32 has a precision of its own"
    parser.add_argument("--arms", nargs="+", type=_arm, default=list(DEFAULT_ARMS), metavar="ARM", help=help)
    help = "another checkout of this project: each TensorFlow arm is computed by its code too, as before:ARM"
    parser.add_argument("--before", type=pathlib.Path, metavar="CHECKOUT", help=help)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32", help="of the arms")
    parser.add_argument("--xla", action="store_true", help="compile the TensorFlow arms with XLA")
    help = "add what a step's operations take, of arms on TensorFlow without --before"
    parser.add_argument("--profile", action="store_true", help=help)
    parser.add_argument("--threads", type=at_least_1, default=len(os.sched_getaffinity(0)), help="of each worker")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sentences and initial weights")
    parser.add_argument("--torch-python", help="Python with the peers; default: torch_environment.py makes one")
    options = parse_arguments(parser, arguments, _name, rounds=1, batch_size=2)
    if options.batch_size is None:
        options.batch_size = 16 if options.model == "bert-base" and options.batches == "t128" else 32
    count = BATCH_COUNTS[options.batches]
    if options.steps is None:
        options.steps = count
    if options.steps < 1 or options.steps % count:
        parser.error(f"--steps {options.steps} must be a multiple of the {count} batches, so that turns are alike.")
    if len(set(options.arms)) != len(options.arms):
        parser.error("--arms names an arm twice.")
    kinds = {split_arm(arm)[0] for arm in options.arms}
    if options.torch_python is None and any(kind.startswith("torch-hub") for kind in kinds):
        parser.error("torch-hub arms need --torch-python, a Python that has PyTorch beside this package.")
    if options.before:
        if not (options.before / "benchmarks" / "start.py").is_file():
            parser.error(f"--before {options.before} is no checkout of this project with a benchmarks/start.py.")
        options.arms += [BEFORE + arm for arm in options.arms if split_arm(arm)[0] not in TORCH_ARMS]
    return options


def _model(options):
    return pathlib.Path(options.model).resolve().name


def _name(options):
    return f"{_model(options)}-{options.batches}-{options.precision}{'-xla' if options.xla else ''}"


def main():
    options = parse()
    kept = "batches batch_size bottleneck rounds steps arms precision xla threads seed profile"
    # The rate does not change the time of a step; small, so that no arm diverges.
    settings = {"model": _model(options), "model_source": options.model, "learning_rate": 1e-5}
    settings |= {name: getattr(options, name) for name in kept.split()}
    if options.before:
        settings["before"] = git_state(options.before)["commit"]
    others = busy_cores(1.0)
    if others > BUSY:
        log(f"Something else uses {others:.1f} cores: the times will be too long, PyTorch's by far.")
    if git_state()["dirty"]:
        log("Tracked files differ from the commit; the result will say so.")
    try:
        python = options.torch_python
        if {split_arm(arm)[0] for arm in options.arms} & set(TORCH_ARMS):
            python = torch_python(options.torch_python)
        where = {"data_dir": options.data_dir, "split": options.split, "before": options.before}
        result = measure(settings, torch_python=python, log=log, **where)
    except (WorkerError, RuntimeError) as error:
        sys.exit(str(error))
    show(result, options.output, table)
