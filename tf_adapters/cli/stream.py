"""`tf-adapters stream`."""

import dataclasses
import functools
import json
import pathlib
import re
import time
from typing import Annotated, List

import typer

from tf_adapters.cli import options
from tf_adapters.cli.adapter import AdapterOptions
from tf_adapters.cli.data import DataOptions
from tf_adapters.cli.grouped import grouped
from tf_adapters.cli.output import check_folder, json_text
from tf_adapters.cli.run_options import RunOptions
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError
from tf_adapters.json_input import read_json
from tf_adapters.recipes import check_recipe, get_recipe
from tf_adapters.saving.atomic import remove_folder

STREAM_FILE, PLOT_FILE = "stream.json", "parameters.png"
SPLITS = {"train_file": ("train",), "validation": ("validation", "dev"), "test": ("test",)}


@grouped
def stream(
    *,
    tasks: Annotated[
        List[str],
        typer.Argument(
            help="Named tasks, such as `glue/cola`, or folders of your own with `train.*` and perhaps "
            "`validation.*` and `test.*`; without both a tenth of the rows is set aside for each."
        ),
    ],
    model: Annotated[
        str, typer.Option(help="Pretrained encoder: `minilm`, a directory, or an id on the HuggingFace hub.")
    ] = "minilm",
    output: Annotated[
        pathlib.Path, typer.Option(help="Folder to write; each task gets its adapter directory in it.")
    ] = pathlib.Path("adapters"),
    data_dir: options.DataDir = None,
    text_column: options.TextColumn = None,
    text_pair_column: options.TextPairColumn = None,
    label_column: options.LabelColumn = None,
    encoding: options.Encoding = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    kind: options.Kind = None,
    max_train_rows: options.MaxTrainRows = None,
    low_resource: options.LowResource = None,
    skip_bad_rows: options.SkipBadRows = False,
    max_length: options.MaxLength = None,
    recipe: Annotated[
        str, typer.Option(help="`default` or a paper's adapters, as in `train`.", rich_help_panel="Adapter")
    ] = "default",
    adapter: AdapterOptions,
    run: RunOptions,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with an interrupted stream, with the same options.", rich_help_panel="Run"
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the stream in the output folder.", rich_help_panel="Run")
    ] = False,
):
    """Train tasks one after the other on one encoder in memory, an adapter directory each.

    Tasks do not change each other: at the end each task's predictions are made once more and must be the same bits as
    right after its training. Shown are the parameters of all tasks together, against a fine-tuned model for each.

    Each directory is the one that `train` writes for that task alone. Columns and kind are those of all folders.

    `tf-adapters stream glue/cola glue/sst2 glue/mrpc --data-dir DATA --output adapters/glue`

    `tf-adapters stream customers/acme customers/globex --text-column body --label-column topic --output
    adapters/customers`

    Reference: Houlsby et al. 2019, section 1 (a stream of tasks, perfect memory).
    """
    started = time.monotonic()
    reading = dict(
        text_column=text_column, text_pair_column=text_pair_column, label_column=label_column, kind=kind,
        encoding=encoding, header=header, delimiter=delimiter,
    )  # fmt: skip
    sampling = dict(max_train_rows=max_train_rows, low_resource=low_resource, skip_bad_rows=skip_bad_rows)
    chosen = _chosen(tasks, data_dir, reading, sampling)
    given = run.given()
    adapter.check()
    _check_output(output, resume, overwrite)
    options.check_model(model)
    check_recipe(recipe)
    for data in chosen.values():
        data.peek()

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    options.use_precision(run.precision, console)
    from tf_adapters.cli.runs import Runner
    from tf_adapters.training.experiment import Experiment
    from tf_adapters.training.settings import TrainingSettings

    recipe = get_recipe(recipe)
    if recipe.trainable != "adapters":
        raise InputError(
            f"--recipe {recipe.name} trains the encoder itself, which tasks share here: give one of adapters."
        )
    # Of every task, but for its rows.
    common = Experiment(
        model, None, recipe, TrainingSettings.of_recipe(recipe, **given), adapter=adapter.changed(recipe),
        max_length=max_length,
        precision=run.precision, fast=run.fast, cast=False,
    )  # fmt: skip
    same = {**common.identity(), "tasks": [*chosen], **reading, **sampling}
    record = _Record(output / STREAM_FILE, json.loads(json.dumps(same)), resume)
    # All of them, so that a wrong name is not found after hours of training.
    wholes = {name: data.read(console) for name, data in chosen.items()}
    backbone, runners = None, {}
    for number, (name, data) in enumerate(chosen.items()):
        console.print(f"Task {number + 1} of {len(chosen)}: {name}")
        runners[name] = Runner(console, dataclasses.replace(common, task=functools.partial(data.sampled, wholes[name])))
        backbone = _train(runners[name], backbone, output / name, record, name, resume)
    _verify(console, runners, backbone, output, record)
    _show(console, record, output, time.monotonic() - started)


class _Record:
    """What is known of each task, in a file that is replaced after each."""

    def __init__(self, path, settings, resume):
        from tf_adapters.training.resume import refuse_other

        self.path, self.settings, self.tasks, self.encoder = path, settings, {}, None
        self.begun = resume
        if resume:
            content = read_json(path, "start anew with --overwrite")
            refuse_other(path.parent, "a stream", content["settings"], settings, dict.fromkeys(settings))
            self.tasks, self.encoder = content["tasks"], content["encoder"]

    def begin(self):
        """Take the place of a stream that is there, once this one's first model is built: a mistake before that changes
        nothing."""
        from tf_adapters.training.layout import RESUME_FOLDER

        if not self.begun:
            self.begun = True
            self.write()
            for name in self.settings["tasks"]:
                # The rest is replaced once a task's first epoch is done.
                remove_folder(self.path.parent / name / RESUME_FOLDER)

    def write(self):
        from tf_adapters.saving.atomic import write_text

        content = {"settings": self.settings, "encoder": self.encoder, "tasks": self.tasks}
        problem = (
            f"The last of {', '.join(self.tasks)} came to numbers that are not finite: give a lower --learning-rate."
        )
        write_text(self.path, json_text(content, problem=problem, indent=1) + "\n")


def _train(runner, backbone, folder, record, name, resume):
    """Train a task that is not done; the model, without its adapters."""
    from tf_adapters import parameter_counts, remove_adapters
    from tf_adapters.cli.report import keep
    from tf_adapters.models.state import state_of
    from tf_adapters.training.layout import RESUME_FOLDER

    if name in record.tasks:
        runner.console.print(f"{name}: done before.")
        return backbone
    task = runner.experiment.task_of()
    model, tokenizer = runner.build(backbone=backbone)
    record.begin()
    counts, state = parameter_counts(model), state_of(model)
    runner.announce(task, counts)
    result = runner.train(model, tokenizer, folder, resume=resume and (folder / RESUME_FOLDER).is_dir())
    held_out, digest = _predict(runner, model, task, tokenizer)
    keep(runner.console, task, folder, held_out)
    numbers = {f"{held_out.split} {name}": value for name, value in held_out.numbers.items()}
    head = sum(int(variable.shape.num_elements()) for variable in state.head_variables(model))
    # Under some heads it has no pooler.
    known = 0 if record.encoder is None else record.encoder["parameters"]
    record.encoder = {"sha256": state.digest(model), "parameters": max(known, counts.total - counts.adapter - head)}
    record.tasks[name] = {
        "metrics": numbers, "best_epoch": result.best_epoch, "seconds": round(result.seconds, 1),
        "trained": counts.trainable, "head": head,
        "predictions_sha256": digest,
    }  # fmt: skip
    record.write()
    return remove_adapters(model)


def _predict(runner, model, task, tokenizer):
    """The held-out predictions, and a digest of all bits of the logits that they come from."""
    from tf_adapters.cli.report import predict_held_out
    from tf_adapters.kinds.scoring import DigestingScorer

    scorer = DigestingScorer(model, tokenizer, batch_size=runner.settings.batch_size)
    held_out = predict_held_out(runner.console, model, task, tokenizer, runner.settings.batch_size, scorer=scorer)
    return held_out, scorer.digest.hexdigest()


def _verify(console, runners, backbone, output, record):
    """Predict every task once more from its directory, on the encoder that all were trained on."""
    from tf_adapters import load_adapter, remove_adapters

    changed = []
    for name, runner in runners.items():
        task = runner.experiment.task_of()
        model, tokenizer = runner.build(backbone=backbone)
        load_adapter(model, output / name)  # which refuses an encoder one bit of which changed
        _, digest = _predict(runner, model, task, tokenizer)
        same = digest == record.tasks[name]["predictions_sha256"]
        record.tasks[name]["predictions_unchanged"] = same
        changed += [] if same else [name]
        backbone = remove_adapters(model)
    record.write()
    if changed:
        raise RuntimeError(f"Predictions differ from those right after training: {', '.join(changed)}.")


def _show(console, record, output, seconds):
    import importlib.util

    from rich import box
    from rich.table import Column, Table

    from tf_adapters.saving.settings import directory_size

    table = Table(
        "task",
        "metric",
        *(Column(name, justify="right") for name in ("result", "trained", "MB", "predictions")),
        box=box.SIMPLE,
    )
    for name, row in record.tasks.items():
        metric, value = next(iter(row["metrics"].items()))
        table.add_row(
            name, metric.replace("_", " "), f"{value:.4f}", f"{row['trained']:,}",
            f"{directory_size(output / name) / 1e6:.2f}",
            "the same bits" if row["predictions_unchanged"] else "CHANGED",
        )  # fmt: skip
    console.print(table)
    count, encoder = len(record.tasks), record.encoder["parameters"]
    ours = encoder + sum(row["trained"] for row in record.tasks.values())
    theirs = sum(encoder + row["head"] for row in record.tasks.values())
    console.print(
        f"{count} tasks and one encoder: {ours:,} parameters, {ours / encoder:.2f} times the encoder. {count} "
        f"fine-tuned models: {theirs:,}, {theirs / encoder:.2f} times."
    )
    if importlib.util.find_spec("matplotlib") is not None:
        from tf_adapters.cli.plots import draw_growth

        draw_growth(encoder, record.tasks, output / PLOT_FILE)
        console.print(f"Plot: {output / PLOT_FILE}")
    console.print(f"{seconds:.0f} s")


def _chosen(tasks, data_dir, reading, sampling):
    """The `DataOptions` of each task by the name of its directory."""
    chosen = {}
    for given in tasks:
        folder = pathlib.Path(given)
        if folder.is_dir():
            name, data = folder.resolve().name, DataOptions(**_files(folder), **reading, **sampling)
        else:
            for option, value in reading.items():
                if value is not None and all(not pathlib.Path(other).is_dir() for other in tasks):
                    named = f"--{option.replace('_', '-')} {value}"
                    raise InputError(f"{named} is of folders of your own, and {given} is a named task: leave it out.")
            name, data = re.sub(r"[^\w.-]+", "-", given), DataOptions(task=given, data_dir=data_dir, **sampling)
        if name in chosen:
            raise InputError(f"{given}: two tasks would be called {name!r}; rename a folder.")
        data.check()
        chosen[name] = data
    return chosen


def _files(folder):
    """A folder's files by the parameters of `DataOptions`."""
    found = {}
    for parameter, names in SPLITS.items():
        paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name.partition(".")[0] in names)
        if len(paths) > 1:
            raise InputError(f"{folder} holds {paths[0].name} and {paths[1].name}: leave one of them there.")
        if paths:
            found[parameter] = paths[0]
    if "train_file" not in found:
        names = " or ".join(f"{name}.*" for name in SPLITS["train_file"])
        raise InputError(f"{folder} holds no {names}: put the rows there, as .csv, .tsv or .jsonl.")
    return found


def _check_output(output, resume, overwrite):
    ours = (output / STREAM_FILE).exists()
    check_folder(
        output,
        marker=STREAM_FILE,
        what="a stream",
        resume=resume,
        overwrite=overwrite,
        unfinished=ours,
        finished=ours,
        run="stream",
    )
