"""`tf-adapters tune`."""

import csv
import functools
import importlib.util
import io
import pathlib
import shlex
from typing import List, Optional

import typer

from tf_adapters.cli.command import option
from tf_adapters.cli.data import DataOptions
from tf_adapters.cli.directories import check_folder, going_on, json_text, next_directory
from tf_adapters.cli.options import MaxLength, Model, SpeedOptions, listed
from tf_adapters.cli.quiet import start, terminal
from tf_adapters.cli.report import draw_trials, predict_held_out, right_aligned
from tf_adapters.errors import InputError
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.paths import find_here, read_json
from tf_adapters.ranges import choices_of, number_or_word
from tf_adapters.recipes import get_recipe
from tf_adapters.saving.atomic import remove_file, remove_folder, write_text
from tf_adapters.training.disk import refuse_other
from tf_adapters.tuning import worker_name
from tf_adapters.tuning.spaces import DIMENSIONS, SPACES, Range, get_space

USUAL_TRIALS = 20
BEST_FOLDER, SEARCH_FOLDER = "best", "search"
SETTINGS_FILE, TABLE_FILE, PLOT_FILE = "search.json", "trials.csv", "trials.png"
ORACLES = {
    "random": "RandomSearchOracle", "bayesian": "BayesianOptimizationOracle", "hyperband": "HyperbandOracle",
    "grid": "GridSearchOracle",
}  # fmt: skip
# What is searched on a scale of factors if a range is given.
LOGARITHMIC = ("bottleneck_size", "init_stddev", "learning_rate")

_check_output = functools.partial(check_folder, marker=SETTINGS_FILE, what="a search", run="search")
_search = functools.partial(option, panel="Search")
_run = functools.partial(option, panel="Run")


def tune(
    *,
    model: Model = "minilm",
    output: option(
        Optional[pathlib.Path], "Folder to write. Default for the embedded task: `searches/rotten-tomatoes`."
    ) = None,
    chosen: DataOptions,
    max_length: MaxLength = None,
    space: _search(
        str, f"What to search: `default`, or a paper's grid: {listed(SPACES)}; `none` for what `--vary` says alone."
    ) = "default",
    vary: _search(
        Optional[List[str]],
        "Replace a part of the space or add one, in the words of `train`'s options: `bottleneck-size=8,64,256`, "
        "`learning-rate=1e-4..3e-3`, or one value to fix it: `epochs=3`. Give it as often as you like.",
    ) = None,
    recipe: _search(
        Optional[str], "A paper's setting, as in `train`, for what the space leaves open. Default: the space's."
    ) = None,
    tuner: _search(
        Optional[str],
        "`random`, `bayesian`, `hyperband` or `grid`. Default: `grid` for a paper's grid, otherwise `random`.",
        values=tuple(ORACLES),
    ) = None,
    trials: _search(
        Optional[int],
        f"Trials at most: without it {USUAL_TRIALS}, and all of a grid. Hyperband's number follows from its epochs.",
    ) = None,
    seeds: _search(int, "Train every trial with this many seeds from `--seed` on.") = 1,
    objective: _search(
        str, "What a trial counts by: the `mean` or the `best` of its seeds' validation metric."
    ) = "mean",
    seed: _run(int, "Decides every random choice, those of the search too.") = 0,
    speed: SpeedOptions,
    xla: _run(bool, "Compile the step with XLA, once per padded length.", "--xla") = False,
    resume: _run(bool, "Go on with an interrupted search, with the same options.", "--resume") = False,
    overwrite: _run(bool, "Replace the search in the output folder.", "--overwrite") = False,
):
    """Search the hyperparameters of adapters with keras-tuner, and keep the best adapter.

    Size and learning rate on MiniLM: `tf-adapters tune --space none --vary bottleneck-size=8,64,256 --vary
    learning-rate=3e-4..3e-3 --vary epochs=2 --trials 12`

    The grid of Houlsby et al. (2019), five seeds, the best counts: `tf-adapters tune --model bert-base-uncased --task
    glue/rte --space houlsby-2019-glue --seeds 5 --objective best --output searches/rte`

    The output folder gets `trials.csv`, `trials.png`, `search.json`, the adapter directory `best/`, and under `search/`
    one adapter directory for each trial. Printed is the `tf-adapters train` that gives the best one. A search that was
    interrupted goes on with the same command and `--resume`.

    Several machines share a search by the same command on each, the same output folder, and keras-tuner's environment
    variables: `KERASTUNER_ORACLE_IP=10.0.0.1 KERASTUNER_ORACLE_PORT=8000 KERASTUNER_TUNER_ID=chief tf-adapters tune
    ...` at that address hands out the trials and reports, and each worker, with an id of its own such as
    `KERASTUNER_TUNER_ID=tuner0`, trains them. keras-tuner hands out a grid one trial after the other, so take another
    `--tuner` there.
    """
    chosen.check()
    output = output or chosen.usual_output("searches")
    tuner = tuner or ("random" if space in ("default", "none") else "grid")
    if tuner == "hyperband" and trials is not None:
        raise InputError(f"--trials {trials}: the number of Hyperband's trials follows from its epochs; leave it out.")
    name = worker_name()
    works = name not in (None, "chief")
    if not works:
        _check_output(output, resume, overwrite)
    for module, package in (("keras_tuner", "keras-tuner"), ("matplotlib", "matplotlib")):
        if importlib.util.find_spec(module) is None:
            raise InputError(f"A search needs the package {package}: run `pip install keras-tuner matplotlib`.")
    find_here(model)
    if recipe is not None:
        get_recipe(recipe)
    values, usual_recipe = _read_space(space, vary or [])
    if tuner == "hyperband":
        # The most epochs of the space, which it may give to a trial.
        epochs = values.pop("epochs", None)
        if not epochs:
            raise InputError("--tuner hyperband needs to know the most epochs: give --vary epochs=10, or a range.")
        epochs = epochs.high if isinstance(epochs, Range) else max(epochs)
    chosen.peek()

    console = terminal()
    start(console, precision=speed.precision)
    with console.status("Loading keras-tuner ..."):
        from tf_adapters.tuning.search import AdapterHyperModel, keras_tuner
    data = chosen.read(console)
    hypermodel = AdapterHyperModel(
        model, functools.partial(chosen.sampled, data), space=values, recipe=recipe or usual_recipe,
        max_length=max_length, seed=seed, seeds=seeds, objective=objective, fast=speed.fast, jit_compile=xla,
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
        "precision": speed.precision,
        "xla": xla,
        "fast": speed.fast,
    }
    if works:
        console.print(f"Worker {name}: the chief of the search hands out its trials.")
    elif resume:
        _check_settings(output, settings)
    else:
        for name in (BEST_FOLDER, SEARCH_FOLDER):
            remove_folder(output / name)
        for name in (TABLE_FILE, PLOT_FILE):
            remove_file(output / name)
    if not works:
        _write_json(output / SETTINGS_FILE, {"settings": settings})
    if tuner == "hyperband":
        most = {"max_epochs": epochs}
    else:
        most = {"max_trials": trials if tuner == "grid" else trials or USUAL_TRIALS}
    # keras-tuner takes 0 for no seed.
    oracle = getattr(keras_tuner.oracles, ORACLES[tuner])(objective=hypermodel.objective, seed=seed + 1, **most)
    console.print(
        f"Searching {', '.join(hypermodel.varied)} on {model}, task {data.name}, by validation {hypermodel.metric}."
    )
    try:
        search = _run_search(console, hypermodel, oracle, output, settings)
        if works:
            console.print(f"No trial is left for {name}; the chief reports.")
            return
        _finish(console, search, output, settings, chosen)
    except KeyboardInterrupt:
        advice = "Go on with the same command." if works else going_on(overwrite)
        console.print(f"Stopped; the finished trials are kept. {advice}")
        raise typer.Exit(130) from None


def _read_space(name, vary):
    """The values to search and the recipe around them."""
    preset = None if name == "none" else get_space(name)
    values = dict(preset.values) if preset else {}
    names = {dimension.option.removeprefix("--"): name for name, dimension in DIMENSIONS.items()}
    aliases = {about.alias: name for name, about in choices_of(AdapterConfig).items() if about.alias}
    for text in vary:
        word, equals, choice = text.partition("=")
        word = word.strip().removeprefix("--")
        if not equals:
            raise InputError(f"--vary {text} must look like bottleneck-size=8,64,256 or learning-rate=1e-4..3e-3.")
        if word not in names | aliases:
            raise InputError(f"--vary {text}: {word!r} cannot be searched; use one of {', '.join(names)}.")
        name = (names | aliases)[word]
        values[name] = _read_choice(text, name, choice.strip())
    if not values:
        raise InputError(
            "--space none is empty: say what to search by --vary, such as --vary bottleneck-size=8,64,256."
        )
    return values, preset.recipe if preset else None


def _read_choice(text, name, choice):
    types = DIMENSIONS[name].types
    read = {"int": int, "float": float, "word": str}.get(types, number_or_word)
    try:
        if ".." in choice:
            low, high = (read(part) for part in choice.split("..", 1))
            return Range(low, high, log=name in LOGARITHMIC)
        return tuple(read(part.strip()) for part in choice.split(",") if part.strip())
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        such = "8,64" if types == "int" else "0.001,0.01"
        raise InputError(f"--vary {text}: {choice!r} must hold {types}s, such as {such}.") from None


def _run_search(console, hypermodel, oracle, output, settings):
    """Search, showing and writing each trial as it ends; the `AdapterTuner`."""
    from tf_adapters.cli.progress import TrainingProgress
    from tf_adapters.tuning.search import AdapterTuner, keras_tuner

    objective = hypermodel.objective.name.replace("_", " ")
    if len(hypermodel.seeds) > 1:
        objective = f"{hypermodel.reduced} {objective}"

    class ShownTuner(AdapterTuner):
        def on_trial_begin(self, trial):
            if self.is_worker:
                # The chief wrote them before it handed out a trial.
                _check_settings(output, settings)
            note = ", done before" if self.hypermodel.results(self.folder(trial)) else ""
            values = self.hypermodel.values(trial.hyperparameters).items()
            described = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in values)
            console.print(f"Trial {trial.trial_id}{note}: {described}")
            super().on_trial_begin(trial)

        def run_trial(self, trial, **arguments):
            epochs = self.hypermodel.settings(trial.hyperparameters).epochs
            return super().run_trial(trial, reporter=TrainingProgress(console, epochs), **arguments)

        def on_trial_end(self, trial):
            super().on_trial_end(trial)
            row = self.row(trial)
            found = f"{objective} {row['objective']:.4f}" if row["message"] == "" else f"failed: {row['message']}"
            console.print(f"Trial {trial.trial_id}: {found}")
            if not self.is_worker:
                _write_table(output / TABLE_FILE, self.table(), self.hypermodel.metric)

    search = ShownTuner(hypermodel, oracle, directory=output, project_name=SEARCH_FOLDER)
    try:
        search.search(verbose=0)
    except keras_tuner.errors.FatalError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
    return search


def _check_settings(output, settings):
    if not (output / SETTINGS_FILE).exists():
        raise InputError(
            f"--output {output} is not the chief's: give the folder that it writes, which all machines must share."
        )
    before = read_json(output / SETTINGS_FILE, "start anew with --overwrite").get("settings") or {}
    refuse_other(output, "a search", dict.fromkeys(settings) | before, settings)


def _finish(console, search, output, settings, chosen):
    """Keep the best adapter, and write and show what was found."""
    from tf_adapters.saving.directory import copy_adapter

    hypermodel, rows = search.hypermodel, search.table()
    for row in rows:
        trial = search.oracle.trials[row["trial"]]
        row.update(folder=search.folder(trial), words=hypermodel.arguments(trial.hyperparameters))
    _write_table(output / TABLE_FILE, rows, hypermodel.metric)
    done = [row for row in rows if row["objective"] is not None]
    if not done:
        raise InputError(f"All of the {len(rows)} trials failed, the last with: {rows[-1]['message']}")
    # Of equal ones the first.
    best = max(done, key=lambda row: row["objective"])
    copy_adapter(best["folder"], output / BEST_FOLDER)
    words = ["tf-adapters", "train", "--model", settings["model"], *chosen.words(), *best["words"]]
    words += [] if settings["precision"] == "float32" else ["--precision", settings["precision"]]
    command = shlex.join([*words, "--output", str(next_directory(output))])
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
    console.print(f"  {command}", soft_wrap=True)
    console.print(f"All trials: {output / TABLE_FILE}, {output / PLOT_FILE}")


def _score_test(console, hypermodel, directory):
    """The best adapter's numbers on the test rows, which chose nothing, or None where there are none with labels."""
    from tf_adapters import load_tokenizer, load_trained

    task = hypermodel.task(hypermodel.seeds[0])
    if task.test is None or task.test.labels is None:
        return None
    model, settings = load_trained(directory, backbone=hypermodel.source)
    tokenizer = load_tokenizer(model, max_length=hypermodel.tokens)
    return predict_held_out(console, model, task, tokenizer, settings["training"]["batch_size"]).numbers


def _show(console, rows, best, hypermodel):
    # The others have one value in all trials.
    names = [name for name in _names(rows) if len({row["values"].get(name) for row in rows}) > 1]
    table = right_aligned("trial", *names, f"validation {hypermodel.metric}")
    for row in sorted(rows, key=lambda row: -1e9 if row["objective"] is None else row["objective"], reverse=True):
        found = "failed" if row["objective"] is None else f"{row['objective']:.4f}"
        mark = "  best" if row is best else ""
        table.add_row(f"{row['trial']}{mark}", *(_short(row["values"].get(name, "")) for name in names), found)
    console.print(table)


def _short(value):
    """A value of a trial, as shown."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _write_table(path, rows, metric):
    """Write the trials as CSV, a row each."""
    names, text = _names(rows), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    of_seeds = ("validation_of_seeds", "best_epoch", "seconds")
    writer.writerow(["trial", "status", *names, f"validation_{metric}", *of_seeds, "message"])
    for row in rows:
        values = [row["values"].get(name) for name in names]
        runs = (" ".join(str(run[name.partition("_of")[0]]) for run in row["seeds"]) for name in of_seeds)
        # None is an empty cell.
        writer.writerow([row["trial"], row["status"], *values, row["objective"], *runs, row["message"]])
    write_text(path, text.getvalue())


def _names(rows):
    """What the values of the trials are of, a list."""
    return list(dict.fromkeys(name for row in rows for name in row["values"]))


def _write_json(path, content):
    """Write the search's settings, and what it found."""
    problem = f"{path}: a trial came to numbers that are not finite; search lower learning rates."
    write_text(path, json_text(content, problem=problem, indent=1) + "\n")
