"""ONNX files in eight bits beside float32 and ONNX Runtime's own dynamic quantisation: score, labels, size, time."""

import pathlib
import tempfile
import time

from benchmarks.pairing import extremes, in_turn
from benchmarks.result import at_least_1, finish, log, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, markdown, origin

WAYS = {"float32": "float32", "int8": "int8, this package", "dynamic": "int8, ONNX Runtime's dynamic"}


def parse(arguments=None):
    how = "All are scored on a task's validation rows, in the same batches; times are of these batches, in turns."
    parser = make_parser(f"{__doc__} {how}", smoke="needs directories too: 1 round")
    parser.add_argument("directories", nargs="+", help="adapter directories, trained on named tasks")
    parser.add_argument("--rounds", type=at_least_1, default=5)
    return parse_arguments(parser, arguments, "int8", rounds=1)


def table(result):
    """Markdown of one result of int8.py."""
    rows = []
    for task, ways in result["tasks"].items():
        for way, found in ways.items():
            low, high = found["ratio"]["min"], found["ratio"]["max"]
            rows.append((
                f"{task}, {found['metric']}", WAYS[way], f"{found['bytes'] / 1e6:.0f}", f"{100 * found['score']:.2f}",
                f"{100 * found['lost']:+.2f}",
                "" if found["changed"] is None else f"{found['changed']} of {found['rows']:,}",
                f"{found['largest_difference']:.2g}",
                "1" if way == "float32" else f"{found['ratio']['median']:.2f} ({low:.2f} to {high:.2f})",
            ))  # fmt: skip
    head = "| task | file | MB | score | points lost | labels changed | logits at most apart | time over float32 |"
    what = f"{result['settings']['rounds']} rounds; ONNX Runtime, all cores"
    return markdown("ONNX files in eight bits", head, "llrrrrrr", rows, origin(result, what))


TABLE = Table(table, lambda result: (), in_notes)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        found = dict(measure(path, pathlib.Path(folder), options) for path in options.directories)
    finish("int8", options, ("rounds",), {"tasks": found}, table)


def measure(directory, folder, options):
    """`(task, dict from a way to what was found)` of a directory."""
    from tf_adapters.pipeline import labelled_rows, load_pipeline
    from tf_adapters.saving.settings import task_of
    from tf_adapters.serving.convert import check_export, runner_of
    from tf_adapters.tasks.own_files import metric_of

    scorer, settings = load_pipeline(directory)
    kind, labels = task_of(settings)
    name, rows = labelled_rows(directory, split="validation", data_dir=options.data_dir)
    metric = metric_of(kind, settings["task"].get("metric"), labels)
    files = _files(scorer, settings, folder)
    runs, batches = {way: runner_of(content, "onnx") for way, content in files.items()}, []
    found = {}
    for way, run in runs.items():

        def keep(inputs, run=run, way=way):
            if way == "float32":
                batches.append(inputs)
            return run(inputs)

        check = check_export(scorer, keep, rows, kind=kind, metric=metric)
        found[way] = {
            "metric": check.metric, "score": check.after, "lost": check.before - check.after, "changed": check.changed,
            "rows": check.rows, "largest_difference": check.largest_difference, "bytes": len(files[way]),
        }  # fmt: skip
    seconds = {way: [] for way in runs}
    for number in range(options.rounds):
        for way in in_turn(runs, number):
            begun = time.perf_counter()
            for inputs in batches:
                runs[way](inputs)
            seconds[way].append(time.perf_counter() - begun)
        log(f"{name}: { ({way: round(values[-1], 2) for way, values in seconds.items()}) }")
    for way in runs:
        found[way]["ratio"] = extremes([one / base for one, base in zip(seconds[way], seconds["float32"])])
        found[way]["seconds"] = seconds[way]
    return name, found


def _files(scorer, settings, folder):
    """The content of each file."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from tf_adapters.serving.convert import export_file

    about, paths = {"format": "onnx", "text": scorer.tokenizer, "task": settings["task"]}, {}
    for way, quantize in (("float32", "none"), ("int8", "int8")):
        paths[way] = folder / f"{way}.onnx"
        paths[way].unlink(missing_ok=True)
        export_file(scorer.model, paths[way], quantize=quantize, **about)
    paths["dynamic"] = folder / "dynamic.onnx"
    quantize_dynamic(str(paths["float32"]), str(paths["dynamic"]), weight_type=QuantType.QInt8)
    return {way: path.read_bytes() for way, path in paths.items()}
