"""The start of `tf_adapters.predict` in parts, and its texts a second beside ONNX Runtime on the exported model."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from benchmarks.pairing import extremes, in_turn, paired_ratio
from benchmarks.result import at_least_1, finish, log, make_parser, parse_arguments
from benchmarks.start import command
from benchmarks.table_parts import Table, in_notes, in_ratio, markdown, of_settings, origin

ARMS = {
    "plain": "`predict`", "fast": "`predict`, fast blocks", "bfloat16": "`predict`, fast blocks, mixed_bfloat16",
    "onnx": "ONNX Runtime, its own threads", "onnx-1": "ONNX Runtime, one thread",
}  # fmt: skip
# Of a process, in the order in which they come.
PARTS = ("imports", "load", "first_batch")
_FLAG = "--worker"


def parse(arguments=None):
    how = (
        "Each arm of a round is a process of its own. All cut the same texts by this package's tokenizer into "
        "batches sorted by length; fast blocks pad them to more."
    )
    parser = make_parser(f"{__doc__} {how}", smoke="needs a directory too: 1 round, 1 pass")
    parser.add_argument("directory", help="adapter directory, trained on a named task")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["fast", "onnx", "onnx-1"])
    parser.add_argument("--rounds", type=at_least_1, default=5)
    parser.add_argument("--passes", type=at_least_1, default=1, help="over the texts, after one to warm up")
    parser.add_argument("--texts", type=at_least_1, default=3072, help="the validation rows, again and again")
    return parse_arguments(parser, arguments, "predict", rounds=1, passes=1, texts=256)


def run(options):
    """Dict of arms with what each process of them measured, and the ratios of ONNX Runtime's processor time to ours."""
    found = {arm: [] for arm in options.arms}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.onnx")
        for number in range(options.rounds):
            for arm in in_turn(options.arms, number):
                words = [_FLAG, arm, options.directory, path, options.data_dir or "", options.texts, options.passes]
                done = subprocess.run(command("predict", *words), check=True, stdout=subprocess.PIPE, text=True)
                found[arm].append(json.loads(done.stdout.splitlines()[-1]))
                log(f"round {number + 1} of {options.rounds}, {arm}: {found[arm][-1]}")
    arms = {arm: _summary(processes) for arm, processes in found.items()}
    ours, theirs = ([arm for arm in found if arm.startswith("onnx") == peer] for peer in (False, True))
    seconds = {arm: [one["processor_s"] for one in processes] for arm, processes in found.items()}
    ratios = {f"{top} / {arm}": paired_ratio(seconds[top], seconds[arm]) for top in theirs for arm in ours}
    return {"arms": arms, "ratios": ratios}


def _summary(processes):
    numbers = {part: extremes([one["start"][part] for one in processes]) for part in PARTS}
    for what in ("processor_s", "wall_s"):
        numbers[f"texts_per_{what}"] = extremes([one["texts"] * len(one[what]) / sum(one[what]) for one in processes])
    return {"processes": processes, **numbers}


def table(result):
    """Markdown of one result of predict.py."""
    rows = [
        (
            ARMS[arm],
            *("" if arm.startswith("onnx") else f"{found[part]['median']:.1f}" for part in PARTS),
            *(f"{found[f'texts_per_{what}']['median']:.0f}" for what in ("processor_s", "wall_s")),
            *(in_ratio(result["ratios"].get(f"{top} / {arm}")) for top in ("onnx", "onnx-1")),
        )
        for arm, found in result["arms"].items()
    ]
    head = (
        "|  | imports, s | load, s | first batch, s | texts a processor second | texts a second | ONNX Runtime / this "
        "| its one thread / this |"
    )
    what = (
        f"{result['settings']['rounds']} rounds of processes; the start in processor seconds; ratios of processor "
        "time, medians with 95 % intervals over rounds"
    )
    title = "`predict`: its start, and its speed beside ONNX Runtime"
    return markdown(title, head, "lrrrrrll", rows, origin(result, what))


TABLE = Table(table, of_settings("texts"), in_notes)


def main():
    if sys.argv[1:2] == [_FLAG]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    options = parse()
    finish("predict", options, ("arms", "rounds", "texts", "passes"), run(options), table)


def measure(arm, directory, path, data_dir, texts, passes):
    """What this process measured of an arm: the parts of its start, and seconds of each pass over the texts."""
    from tf_adapters.cli import quiet
    from tf_adapters.cli.predict import CHUNK_ROWS

    precision = "mixed_bfloat16" if arm == "bfloat16" else "float32"
    quiet.start(quiet.terminal(stderr=True), precision=precision, first=quiet.share_cores)
    from tf_adapters.pipeline import labelled_rows, load_pipeline

    start = {"imports": time.process_time()}
    import numpy as np

    scorer, settings = load_pipeline(directory, fast=arm in ("fast", "bfloat16"))
    start["load"] = time.process_time() - start["imports"]
    if arm.startswith("onnx"):
        scorer = scorer.by(_session(scorer, settings, pathlib.Path(path), threads=int(arm == "onnx-1")))
    _, rows = labelled_rows(directory, split="validation", data_dir=data_dir or None)
    rows = rows.take(np.arange(int(texts)) % len(rows))

    def answer(count):
        for first in range(0, count, CHUNK_ROWS):
            chunk = rows.texts(range(first, min(first + CHUNK_ROWS, count)))
            for _ in scorer.batches(scorer.tokenizer.encode(*chunk)):
                pass

    begun = time.process_time()
    answer(scorer.batch_size)
    start["first_batch"] = time.process_time() - begun
    seconds = {"processor_s": [], "wall_s": []}
    for number in range(int(passes) + 1):
        begun = time.process_time(), time.perf_counter()
        answer(len(rows))
        if number:
            seconds["processor_s"].append(time.process_time() - begun[0])
            seconds["wall_s"].append(time.perf_counter() - begun[1])
    return {"start": start, "texts": len(rows), **seconds}


def _session(scorer, settings, path, threads):
    """ONNX Runtime's answers to a batch; the first process writes the file."""
    import numpy as np
    import onnxruntime

    from tf_adapters.serving.convert import export_file

    if not path.exists():
        export_file(scorer.model, path, format="onnx", text=scorer.tokenizer, task=settings["task"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads  # 0 is its own choice
    session = onnxruntime.InferenceSession(str(path), options)
    names = [value.name for value in session.get_inputs()]
    return lambda inputs: session.run(None, {name: np.asarray(inputs[name], np.int64) for name in names})[0]
