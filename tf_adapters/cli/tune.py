"""`tf-adapters tune`."""

import csv
import functools
import io
import json
import pathlib
import shlex
import shutil
from typing import Annotated, List, Optional

import typer
from rich import box
from rich.table import Column, Table

from tf_adapters.cli import options
from tf_adapters.cli.data import DataOptions
from tf_adapters.cli.grouped import grouped
from tf_adapters.cli.output import check_writable
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError
from tf_adapters.tuning.role import NAME, read_role

TUNERS = ("random", "bayesian", "hyperband", "grid")
USUAL_TRIALS = 20
# What is searched on a scale of factors if a range is given.
LOGARITHMIC = ("bottleneck_size", "init_stddev", "learning_rate")
BEST_FOLDER, SEARCH_FOLDER, SETTINGS_FILE, TABLE_FILE, PLOT_FILE = "best", "search", "search.json", "trials.csv", "trials.png"


def _search(*names, **settings):
    return typer.Option(*names, rich_help_panel="Search", **settings)


def _run(*names, **settings):
    return typer.Option(*names, rich_help_panel="Run", **settings)


@grouped
def tune(
    *,
    model: Annotated[
        str, typer.Option(help="Pretrained encoder: `minilm`, a directory, or an id on the HuggingFace hub.")
    ] = "minilm",
    output: Annotated[
        Optional[pathlib.Path],
        typer.Option(help="Folder to write. Default for the embedded task: `searches/rotten-tomatoes`."),
    ] = None,
    chosen: DataOptions,
    max_length: options.MaxLength = None,
    space: Annotated[
        str,
        _search(
            help="What to search: `default`, or a paper's grid: `houlsby-2019-glue`, `houlsby-2019-additional`, `houlsby-2019-top-n`, "
            "`he-2021-tae`, `he-2021-glue`, `he-2021-glue-full`, `he-2021-xtreme`; `none` for what `--vary` says alone."
        ),
    ] = "default",
    vary: Annotated[
        Optional[List[str]],
        _search(
            help="Replace a part of the space or add one, in the words of `train`'s options: `adapter-size=8,64,256`, "
            "`learning-rate=1e-4..3e-3`, or one value to fix it: `epochs=3`. Give it as often as you like."
        ),
    ] = None,
    recipe: Annotated[
        Optional[str], _search(help="A paper's setting, as in `train`, for what the space leaves open. Default: the space's.")
    ] = None,
    tuner: Annotated[
        Optional[str], _search(help="`random`, `bayesian`, `hyperband` or `grid`. Default: `grid` for a paper's grid, otherwise `random`.")
    ] = None,
    trials: Annotated[
        Optional[int],
        _search(help=f"Trials at most: without it {USUAL_TRIALS}, and all of a grid. Hyperband's number follows from its epochs."),
    ] = None,
    seeds: Annotated[int, _search(help="Train every trial with this many seeds from `--seed` on.")] = 1,
    objective: Annotated[
        str, _search(help="What a trial counts by: the `mean` or the `best` of its seeds' validation metric.")
    ] = "mean",
    seed: Annotated[int, _run(help="Decides every random choice, those of the search too.")] = 0,
    precision: options.Precision = "float32",
    xla: Annotated[bool, _run("--xla", help="Compile the step with XLA, once per padded length.")] = False,
    fast: options.Fast = False,
    resume: Annotated[bool, _run("--resume", help="Go on with an interrupted search, with the same options.")] = False,
    overwrite: Annotated[bool, _run("--overwrite", help="Replace the search in the output folder.")] = False,
):
    """Search the hyperparameters of adapters with keras-tuner, and keep the best adapter.

    Size and learning rate on MiniLM: `tf-adapters tune --space none --vary adapter-size=8,64,256 --vary learning-rate=3e-4..3e-3
    --vary epochs=2 --trials 12`

    The grid of Houlsby et al. (2019), five seeds, the best counts: `tf-adapters tune --model bert-base-uncased --task glue/rte
    --space houlsby-2019-glue --seeds 5 --objective best --output searches/rte`

    The output folder gets `trials.csv`, `trials.png`, `search.json`, the adapter directory `best/`, and under `search/` one adapter
    directory for each trial. Printed is the `tf-adapters train` that gives the best one. A search that was interrupted goes on with the
    same command and `--resume`.

    Several machines share a search by the same command on each, the same output folder, and keras-tuner's environment variables:
    `KERASTUNER_ORACLE_IP=10.0.0.1 KERASTUNER_ORACLE_PORT=8000 KERASTUNER_TUNER_ID=chief tf-adapters tune ...` at that address hands out
    the trials and reports, and each worker, with an id of its own such as `KERASTUNER_TUNER_ID=tuner0`, trains them.
    """
    chosen.check()
    if output is None:
        output = chosen.usual_output("searches")
    options.check_positive("--max-length", max_length)
    options.check_positive("--trials", trials)
    options.check_positive("--seeds", seeds)
    options.check_precision(precision)
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed {seed} must lie between 0 and {2**32 - 1}.")
    tuner = tuner or ("random" if space in ("default", "none") else "grid")
    if tuner not in TUNERS:
        raise InputError(f"--tuner {tuner} is unknown: use one of {', '.join(TUNERS)}.")
    if tuner == "hyperband" and trials is not None:
        raise InputError(f"--trials {trials}: the number of Hyperband's trials follows from its epochs; leave it out.")
    role = read_role()
    works = role is not None and not role.is_chief
    if role is not None and role.is_chief:
        # Before the search of another one is replaced.
        role.check_free()
    if not works:
        _check_output(output, resume, overwrite)
    _check_packages()
    chosen.peek()

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    values, usual_recipe = _space(space, vary or [])
    epochs = _most_epochs(values) if tuner == "hyperband" else None
    with console.status("Loading keras-tuner ..."):
        import keras_tuner

        from tf_adapters.tuning.hypermodel import AdapterHyperModel
    options.use_precision(precision, console)
    data = chosen.read(console)
    hypermodel = AdapterHyperModel(
        model, functools.partial(chosen.sampled, data), space=values, recipe=recipe or usual_recipe, max_length=max_length, seed=seed,
        seeds=seeds, objective=objective, fast=fast, jit_compile=xla,
    )  # fmt: skip
    settings = {
        "model": model,
        "data": chosen.words(),
        "space": {name: str(choice) for name, choice in hypermodel.space.items()},
        "recipe": hypermodel.recipe.name,
        "tuner": tuner,
        "trials": trials,
        "seed": seed,
        "seeds": seeds,
        "objective": objective,
        "max_length": hypermodel.tokens,
        "precision": precision,
        "xla": xla,
        "fast": fast,
    }
    if works:
        console.print(f"Worker {role.name} of the search at {role.address}.")
    elif resume:
        _check_settings(output, settings)
    else:
        for name in (BEST_FOLDER, SEARCH_FOLDER):
            shutil.rmtree(output / name, ignore_errors=True)
        for name in (TABLE_FILE, PLOT_FILE):
            (output / name).unlink(missing_ok=True)
    if not works:
        _write_json(output / SETTINGS_FILE, {"settings": settings})
    # keras-tuner takes 0 for none.
    common = {"objective": hypermodel.objective, "seed": seed + 1}
    oracles = keras_tuner.oracles
    if tuner == "hyperband":
        oracle = oracles.HyperbandOracle(max_epochs=epochs, **common)
    elif tuner == "grid":
        oracle = oracles.GridSearchOracle(max_trials=trials, **common)
    else:
        of_name = {"random": oracles.RandomSearchOracle, "bayesian": oracles.BayesianOptimizationOracle}
        oracle = of_name[tuner](max_trials=trials or USUAL_TRIALS, **common)
    console.print(f"Searching {', '.join(hypermodel.varied)} on {model}, task {data.name}, by validation {hypermodel.metric}.")
    search = _run_search(console, hypermodel, oracle, output, settings)
    if works:
        console.print(f"No trial is left for {role.name}, which trained {search.ended}; the chief reports.")
        return
    rows = search.table()
    for row in rows:
        trial = oracle.trials[row["trial"]]
        row.update(folder=search.folder(trial), words=hypermodel.arguments(trial.hyperparameters))
    _finish(console, hypermodel, rows, output, settings, chosen)


def _run_search(console, hypermodel, oracle, output, settings):
    """Search, showing and writing each trial as it ends; the `AdapterTuner`, with the number of trials that `ended` here."""
    from tf_adapters.cli.progress import TrainingProgress
    from tf_adapters.tuning.chief import LOST_SECONDS
    from tf_adapters.tuning.hypermodel import keras_tuner
    from tf_adapters.tuning.tuner import AdapterTuner

    class ShownTuner(AdapterTuner):
        ended = 0

        def pre_create_trial(self):
            if self.role is not None:
                # Before it takes a trial; the chief may have been started again with others.
                _check_settings(output, settings)
            super().pre_create_trial()

        def on_trial_begin(self, trial):
            self.show_begin(trial, ", done before" if self.hypermodel.results(self.folder(trial)) else "")
            super().on_trial_begin(trial)

        def run_trial(self, trial, **arguments):
            epochs = self.hypermodel.settings(trial.hyperparameters)["epochs"]
            return super().run_trial(trial, reporter=TrainingProgress(console, epochs), **arguments)

        def on_trial_end(self, trial):
            super().on_trial_end(trial)
            self.show_end(trial)

        def on_trial_given(self, trial, worker, lost):
            gone = "" if lost is None else f" from {lost}, which has not been heard of for {LOST_SECONDS:g} s"
            self.show_begin(trial, f" to {worker}{gone}")

        def on_trial_reported(self, trial):
            self.show_end(trial)

        def on_deserted(self):
            console.print(f"No worker has been heard of for {LOST_SECONDS:g} s; waiting for one.")

        def show_begin(self, trial, note):
            values = self.hypermodel.values(trial.hyperparameters).items()
            described = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in values)
            console.print(f"Trial {trial.trial_id}{note}: {described}")

        def show_end(self, trial):
            self.ended += 1
            row = self.row(trial)
            found = f"{self.objective_name} {row['objective']:.4f}" if row["message"] == "" else f"failed: {row['message']}"
            console.print(f"Trial {trial.trial_id}: {found}")
            if self.role is None or self.role.is_chief:
                _write_table(output / TABLE_FILE, self.table(), self.hypermodel.metric)

        @property
        def objective_name(self):
            name = self.hypermodel.objective.name.replace("_", " ")
            return name if len(self.hypermodel.seeds) == 1 else f"{self.hypermodel.reduced} {name}"

    search = ShownTuner(hypermodel, oracle, directory=output, project_name=SEARCH_FOLDER)
    if search.role is not None and search.role.is_chief:
        console.print(f"Handing out trials at {search.role.address}: start workers with the same command and {NAME}=tuner0, tuner1, ...")
    try:
        search.search(verbose=0)
    except keras_tuner.errors.FatalError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
    except KeyboardInterrupt:
        works = search.role is not None and not search.role.is_chief
        console.print("Stopped; the finished trials are kept. Go on with the same command" + ("." if works else " and --resume."))
        raise typer.Exit(130) from None
    return search


def _finish(console, hypermodel, rows, output, settings, chosen):
    """Keep the best adapter, and write and show what was found."""
    from tf_adapters.cli.plots import draw_trials
    from tf_adapters.saving.directory import copy_adapter

    _write_table(output / TABLE_FILE, rows, hypermodel.metric)
    done = [row for row in rows if row["objective"] is not None]
    if not done:
        raise InputError(f"All of the {len(rows)} trials failed, the last with: {rows[-1]['message']}")
    # Of equal ones the first.
    best = max(done, key=lambda row: row["objective"])
    copy_adapter(best["folder"], output / BEST_FOLDER)
    words = ["tf-adapters", "train", "--model", settings["model"], *chosen.words(), *best["words"]]
    words += [] if settings["precision"] == "float32" else ["--precision", settings["precision"]]
    command = shlex.join([*words, "--output", f"adapters/{output.name}"])
    for row in rows:
        row["folder"] = str(row["folder"].relative_to(output))
    test = _score_test(console, hypermodel, output / BEST_FOLDER)
    content = {"settings": settings, "trials": rows, "best": best["trial"], "test": test, "command": command}
    _write_json(output / SETTINGS_FILE, content)
    draw_trials(rows, hypermodel.varied, f"validation {hypermodel.metric}", output / PLOT_FILE)
    _show(console, rows, best, hypermodel)
    for name, value in (test or {}).items():
        console.print(f"test {name.replace('_', ' ')} of the best: {value:.4f}")
    console.print(f"Best: trial {best['trial']}, its adapter is {output / BEST_FOLDER}. The same by itself:")
    console.print(f"  {command}")
    console.print(f"All trials: {output / TABLE_FILE}, {output / PLOT_FILE}")


def _score_test(console, hypermodel, directory):
    """The best adapter's numbers on the test rows, which chose nothing, or None where there are none with labels."""
    from tf_adapters import load_tokenizer, load_trained
    from tf_adapters.cli.report import predict_held_out

    task = hypermodel.task(hypermodel.seeds[0])
    if task.test is None or task.test.labels is None:
        return None
    model, settings = load_trained(directory, backbone=hypermodel.source)
    tokenizer = load_tokenizer(model, max_length=hypermodel.tokens)
    return predict_held_out(console, model, task, tokenizer, settings["training"]["batch_size"]).numbers


def _show(console, rows, best, hypermodel):
    names = list(dict.fromkeys(name for row in rows for name in row["values"]))
    # The others have one value in all trials.
    names = [name for name in names if len({row["values"].get(name) for row in rows}) > 1]
    header = [Column(name.replace("_", " "), justify="right", overflow="fold") for name in (*names, f"validation {hypermodel.metric}")]
    table = Table("trial", *header, box=box.SIMPLE)
    for row in sorted(rows, key=lambda row: -1e9 if row["objective"] is None else row["objective"], reverse=True):
        found = "failed" if row["objective"] is None else f"{row['objective']:.4f}"
        mark = "  best" if row is best else ""
        table.add_row(f"{row['trial']}{mark}", *(_short(row["values"].get(name, "")) for name in names), found)
    console.print(table)


def _short(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _write_table(path, rows, metric):
    from tf_adapters.saving.atomic import write_text

    names = list(dict.fromkeys(name for row in rows for name in row["values"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "status", *names, f"validation_{metric}", "seeds", "best_epoch", "seconds", "message"])
    for row in rows:
        runs = row["seeds"]
        writer.writerow(
            [
                row["trial"], row["status"], *(row["values"].get(name, "") for name in names),
                "" if row["objective"] is None else row["objective"],
                *(" ".join(str(run[name]) for run in runs) for name in ("validation", "best_epoch", "seconds")), row["message"],
            ]  # fmt: skip
        )
    write_text(path, text.getvalue())


def _write_json(path, content):
    from tf_adapters.saving.atomic import write_text

    write_text(path, json.dumps(content, indent=1) + "\n")


def _space(name, vary):
    """The values to search and the recipe around them."""
    from tf_adapters.tuning.spaces import DIMENSIONS, get_space

    preset = None if name == "none" else get_space(name)
    values = dict(preset.values) if preset else {}
    names = {dimension.option.removeprefix("--"): name for name, dimension in DIMENSIONS.items()}
    for text in vary:
        option, equals, choice = text.partition("=")
        option = option.strip().removeprefix("--")
        if not equals:
            raise InputError(f"--vary {text} must look like adapter-size=8,64,256 or learning-rate=1e-4..3e-3.")
        if option not in names:
            raise InputError(f"--vary {text}: {option!r} cannot be searched; use one of {', '.join(names)}.")
        values[names[option]] = _read_choice(text, names[option], choice.strip())
    if not values:
        raise InputError("--space none is empty: say what to search by --vary, such as --vary adapter-size=8,64,256.")
    return values, preset.recipe if preset else None


def _read_choice(text, name, choice):
    from tf_adapters.tuning.spaces import DIMENSIONS, Range

    types = DIMENSIONS[name].types
    read = {"int": int, "float": float, "word": str, "int or word": options.number_or_word, "float or word": options.float_or_word}[types]
    try:
        if ".." in choice:
            low, high = (read(part) for part in choice.split("..", 1))
            return Range(low, high, log=name in LOGARITHMIC)
        return tuple(read(part.strip()) for part in choice.split(",") if part.strip())
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--vary {text}: {choice!r} must hold {types}s, such as {'8,64' if types == 'int' else '0.001,0.01'}.") from None


def _most_epochs(values):
    """The most epochs of a space, which Hyperband may give to a trial; takes them out of the space."""
    from tf_adapters.tuning.spaces import Range

    choice = values.pop("epochs", None)
    if choice is None:
        raise InputError("--tuner hyperband needs to know the most epochs: give --vary epochs=10, or a range.")
    return choice.high if isinstance(choice, Range) else max(choice)


def _check_output(output, resume, overwrite):
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a directory.")
    check_writable(output / SETTINGS_FILE)
    is_search = (output / SETTINGS_FILE).exists()
    if resume:
        if overwrite:
            raise InputError("--resume and --overwrite exclude each other: give one of them.")
        if not is_search:
            raise InputError(f"--resume: {output} holds no search; start one without --resume.")
    elif output.is_dir() and any(output.iterdir()):
        if not is_search:
            raise InputError(f"--output {output} holds other files than a search: give another directory.")
        if not overwrite:
            raise InputError(f"--output {output} holds a search: go on with it by --resume, or replace it by --overwrite.")


def _check_packages():
    import importlib.util

    for module, package in (("keras_tuner", "keras-tuner"), ("matplotlib", "matplotlib")):
        if importlib.util.find_spec(module) is None:
            raise InputError(f"A search needs the package {package}: run `pip install keras-tuner matplotlib`.")


def _check_settings(output, settings):
    if not (output / SETTINGS_FILE).exists():
        raise InputError(f"--output {output} is not the chief's: give the folder that it writes, which all machines must share.")
    before = json.loads((output / SETTINGS_FILE).read_text(encoding="utf-8"))["settings"]
    for name, value in settings.items():
        if before.get(name) != value:
            raise InputError(
                f"{output} holds a search with another {name} ({before.get(name)!r}, now {value!r}): resume with the same "
                "arguments, or start anew with --overwrite."
            )
