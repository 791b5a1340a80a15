"""The search of hyperparameters: what a trial is, what stays of it, and that it is what `train` does."""

import contextlib
import csv
import dataclasses
import importlib.util
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import write_checkpoint, write_csv
from tests.runs import Killed
from tf_adapters import InputError, load_trained, task_from_files
from tf_adapters.models.state import state_of
from tf_adapters.tasks.analysis import summary_of_seeds
from tf_adapters.tuning.spaces import SPACES, Range

keras_tuner = pytest.importorskip("keras_tuner", reason="needs the extra `tuner`")

from tf_adapters.cli import tune  # noqa: E402
from tf_adapters.cli.main import main  # noqa: E402
from tf_adapters.saving.settings import directory_size, sha256_of  # noqa: E402
from tf_adapters.training import experiment as loading  # noqa: E402
from tf_adapters.tuning import AdapterHyperModel, AdapterTuner  # noqa: E402

# With this rate the first step leaves nothing finite.
TOO_HIGH = 1e30
SEARCH = ["--vary=adapter-size=3", f"--vary=learning-rate={TOO_HIGH},3e-3", "--vary=epochs=1", "--tuner=grid"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder of two blocks, another of one, and few rows."""
    folder = tmp_path_factory.mktemp("tuning")
    write_checkpoint(folder / "encoder", num_hidden_layers=2)
    write_checkpoint(folder / "one-block", num_hidden_layers=1)
    for seed, (name, rows) in enumerate({"train": 48, "validation": 40}.items()):
        write_csv(folder / f"{name}.csv", rows, seed=seed)
    return folder


@pytest.fixture(scope="module")
def task(folder):
    return task_from_files(train=folder / "train.csv", validation=folder / "validation.csv")


@pytest.fixture
def new(folder, task):
    """Makes a hypermodel: `new(space, **arguments)`."""

    def make(space, **arguments):
        return AdapterHyperModel(folder / "encoder", task, space=space, max_length=16, **arguments)

    return make


def words_of(folder, *options, encoder="encoder"):
    """A `tune` on these rows."""
    files = [f"--train={folder / 'train.csv'}", f"--validation={folder / 'validation.csv'}"]
    return ["tune", f"--model={folder / encoder}", *files, "--max-length=16", "--space=none", *options]


def point(hypermodel, **values):
    """keras-tuner's hyperparameters with these values of what varies."""
    hp = keras_tuner.HyperParameters()
    hypermodel.declare_hyperparameters(hp)
    hp.values.update(values)
    return hp


def weights_of(model):
    return {re.sub(r"^[^/]*/", "", weight.name): weight.numpy() for weight in model.weights}


def assert_same_adapter(one, other):
    assert (one / "adapter.safetensors").read_bytes() == (other / "adapter.safetensors").read_bytes()


@pytest.fixture(scope="module")
def search(folder):
    """A search by the command line in which a trial diverges: its output folder, what it printed, how often the encoder
    was loaded, what stood on standard error."""
    output, printed, errors, loaded = folder / "search", io.StringIO(), io.StringIO(), []
    original = loading.load_backbone
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        patch.setenv("COLUMNS", "200")
        patch.setattr(loading, "load_backbone", lambda *given, **more: loaded.append(1) or original(*given, **more))
        # Test rows that are the validation rows, so that the best one's number is known.
        options = [*SEARCH, f"--test={folder / 'validation.csv'}", f"--output={output}"]
        assert main(words_of(folder, *options, encoder="one-block")) == 0
    return output, printed.getvalue(), len(loaded), errors.getvalue()


def test_spaces_are_the_papers_grids():
    """Houlsby et al. 2019, sections 3.2, 3.3 and 3.5; He et al. 2021, appendix A.2 with tables 10 and 11."""
    sizes, rates = {64, 128, 256}, {1e-5, 2e-5, 3e-5, 4e-5, 5e-5}
    additional = {"learning_rate": {1e-5, 3e-5, 1e-4, 3e-3}, "epochs": {20, 50, 100}}
    top = {f"top-{n}" for n in (1, 2, 3, 5, 7, 9, 11, 12)}
    grids = {
        "houlsby-2019-glue": {"learning_rate": {3e-5, 3e-4, 3e-3}, "epochs": {3, 20}, "bottleneck_size": {8, 64, 256}},
        "houlsby-2019-additional": {**additional, "bottleneck_size": {2, 4, 8, 16, 32, 64}},
        "houlsby-2019-top-n": {**additional, "trainable": top},
        "houlsby-2019-squad": {
            "learning_rate": {3e-5, 1e-4, 3e-4, 1e-3},
            "epochs": {3, 10, 20},
            "bottleneck_size": {2**power for power in range(10)},
        },
        "houlsby-2019-squad-top-n": {"learning_rate": {3e-5, 5e-5, 1e-4}, "epochs": {2, 3, 5}, "trainable": top},
        "he-2021-tae": {"learning_rate": {2e-5, 5e-5, 1e-4, 2e-4}, "bottleneck_size": sizes},
        "he-2021-glue": {"bottleneck_size": sizes},
        "he-2021-glue-full": {"learning_rate": rates, "batch_size": {16, 32}, "trainable": {"full"}},
        "he-2021-xtreme": {"learning_rate": rates, "bottleneck_size": sizes},
    }
    assert {name: {key: set(values) for key, values in SPACES[name].values.items()} for name in grids} == grids
    assert set(SPACES) == {"default", *grids}
    values = SPACES["default"].values
    assert values["bottleneck_size"] == (2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert set(values) == {
        "bottleneck_size", "learning_rate", "epochs", "sharing", "activation", "init_stddev", "train_layer_norm",
    }  # fmt: skip
    # What the papers do not vary is their recipe's.
    assert (SPACES["houlsby-2019-glue"].recipe, SPACES["he-2021-glue"].recipe) == ("houlsby-2019", "he-2021")


def test_values_of_several_types_come_back_as_they_were(new):
    hypermodel = new(
        {"sharing": ("none", 2), "bottleneck_size": Range(2, 9, log=True), "clip_norm": Range(1, 3), "epochs": 2}
    )
    hp = point(hypermodel, sharing="2", bottleneck_size=5.0, clip_norm=1.9)
    assert hypermodel.values(hp) == {"bottleneck_size": 5, "sharing": 2, "clip_norm": 1.9, "epochs": 2}
    assert type(hypermodel.values(hp)["bottleneck_size"]) is int
    # The recipe's own value is what keras-tuner starts from, where the space has it.
    assert point(hypermodel).values == {"sharing": "none", "bottleneck_size": 2, "clip_norm": 1}


def test_adapter_settings_are_active_only_where_adapters_train(new):
    hypermodel = new({"bottleneck_size": (2, 4), "trainable": ("adapters", "top-1"), "learning_rate": (1e-3, 1e-4)})
    hp = point(hypermodel, trainable="top-1", learning_rate=1e-4)
    assert hypermodel.values(hp) == {"trainable": "top-1", "learning_rate": 1e-4}
    assert hypermodel.arguments(hp) == ["--trainable", "top-1", "--learning-rate", "0.0001", "--max-length", "16"]
    usual = {"trainable": "adapters", "bottleneck_size": 2, "learning_rate": 1e-3}
    assert hypermodel.values(point(hypermodel)) == usual


def test_a_trial_of_several_seeds_counts_by_their_mean_or_best(new):
    runs = [{"validation": value} for value in (0.25, 1.0, 0.5)]
    results = {"runs": runs, "summary": {"validation": summary_of_seeds([0.25, 1.0, 0.5])}}
    hypermodel = new({"bottleneck_size": (2, 3)}, seed=5, seeds=3)
    assert hypermodel.arguments(point(hypermodel))[-4:] == ["--seed", "5", "--seeds", "3"]
    assert hypermodel.score(results) == pytest.approx(1.75 / 3)
    assert new({"bottleneck_size": (2, 3)}, objective="best").score(results) == 1.0


def test_reused_encoder_has_the_weights_of_a_freshly_loaded_one(new, folder, task):
    space, given = {"bottleneck_size": (2, 4)}, {"recipe": "report-unshared", "fast": True}
    hypermodel = new(space, seeds=2, **given)
    # Both seeds, and what training would leave behind.
    encoders = []
    for seed in (0, 1):
        model = hypermodel.build(point(hypermodel, bottleneck_size=4), seed=seed)
        for variable in model.trainable_variables:
            variable.assign_add(np.ones(variable.shape))
        encoders.append(model.bert.embeddings)
    again = hypermodel.build(point(hypermodel, bottleneck_size=2), seed=0)
    assert encoders[0] is encoders[1] is again.bert.embeddings
    fresh, _ = loading.load_for_task(folder / "encoder", task, max_length=16, head_layers=2, seed=0)
    expected = new(space, **given).build(point(hypermodel, bottleneck_size=2))
    found, wanted, plain = weights_of(again), weights_of(expected), weights_of(fresh)
    assert found.keys() == wanted.keys() and plain.keys() < found.keys()
    assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    assert all(np.array_equal(found[key], plain[key]) for key in plain)
    trains = [re.sub(r"^[^/]*/", "", weight.name) for weight in again.trainable_variables]
    assert trains == [re.sub(r"^[^/]*/", "", weight.name) for weight in expected.trainable_variables]


def test_an_encoder_that_a_training_changed_is_loaded_again(new):
    hypermodel = new({"trainable": ("full", "adapters"), "learning_rate": 1e-4})
    first = hypermodel.build(point(hypermodel, trainable="full"))
    before = weights_of(first)
    for variable in first.trainable_variables:
        variable.assign_add(np.ones(variable.shape))
    second = hypermodel.build(point(hypermodel, trainable="adapters"))
    assert second is not first and state_of(second).adapters
    found = weights_of(second)
    assert all(np.array_equal(found[key], value) for key, value in before.items())


def test_search_leaves_a_table_a_plot_the_best_adapter_and_its_settings_and_goes_on_after_a_diverged_trial(search):
    output, printed, loaded, errors = search
    assert loaded == 1, "the encoder is loaded once for all trials"
    names = ["best", "search", "search.json", "trials.csv", "trials.png"]
    assert sorted(path.name for path in output.iterdir()) == names
    content = json.loads((output / "search.json").read_text())
    with open(output / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == [row["trial"] for row in content["trials"]]
    found = {row["trial"]: float(row["validation_accuracy"]) for row in rows if row["status"] == "completed"}
    assert found[content["best"]] == max(found.values()) and content["settings"]["tuner"] == "grid"
    assert (output / "trials.png").read_bytes().startswith(b"\x89PNG")
    (best,) = [row for row in content["trials"] if row["trial"] == content["best"]]
    assert_same_adapter(output / "best", output / best["folder"])
    model, settings = load_trained(output / "best")
    assert settings["adapter"]["bottleneck_size"] == best["values"]["bottleneck_size"]
    assert content["command"] in printed and "trials.png" in printed
    assert content["test"] == {"accuracy": best["objective"]}
    assert f"test accuracy of the best: {best['objective']:.4f}" in printed
    assert [(float(row["learning_rate"]), row["status"]) for row in rows] == [(TOO_HIGH, "failed"), (3e-3, "completed")]
    assert "training diverged" in rows[0]["message"] and not rows[0]["validation_accuracy"]
    assert "failed: The training loss" in printed and "Traceback" not in errors


def test_a_search_that_is_ended_after_its_last_trial_says_how_it_goes_on(search, folder, cli, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    output = shutil.copytree(search[0], tmp_path / "search")
    options = [*SEARCH, f"--test={folder / 'validation.csv'}", f"--output={output}", "--resume"]
    monkeypatch.setattr(tune, "_score_test", interrupt)
    outcome = cli(*words_of(folder, *options, encoder="one-block"))
    assert (
        outcome.status == 130 and "finished trials are kept. Go on with the same command and --resume." in outcome.out
    )


def test_a_trial_takes_at_most_twice_the_adapter_s_own_size(search):
    output, *_ = search
    for row in json.loads((output / "search.json").read_text())["trials"]:
        folders = [output / row["folder"], output / "search" / f"trial_{row['trial']}"]
        used = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
        if row["status"] == "completed":
            assert used <= 2 * directory_size(output / row["folder"])
        else:
            assert not list((output / row["folder"]).rglob("*.safetensors"))


ORACLES = {
    "random": lambda objective: keras_tuner.oracles.RandomSearchOracle(objective=objective, max_trials=3, seed=1),
    "bayesian": lambda objective: keras_tuner.oracles.BayesianOptimizationOracle(
        objective=objective, max_trials=4, num_initial_points=2, seed=1
    ),
    "hyperband": lambda objective: keras_tuner.oracles.HyperbandOracle(objective=objective, max_epochs=3, seed=1),
    "grid": lambda objective: keras_tuner.oracles.GridSearchOracle(objective=objective, seed=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_but(["random"], ORACLES))
def test_keras_tuner_s_oracles_search_from_a_script_and_go_on_after_a_kill(new, tmp_path, name):
    space = {"bottleneck_size": (2, 3), "sharing": ("none", 2), "epochs": 1, "trainable": ("adapters", "head")}
    if name == "hyperband":
        del space["epochs"]
    trained = []

    def start(at_most):
        hypermodel = new(space)
        tuner = AdapterTuner(hypermodel, ORACLES[name](hypermodel.objective), directory=tmp_path)
        fit = hypermodel.fit

        def counted(hp, *arguments, **settings):
            if len(trained) == at_most:
                raise Killed
            trained.append(hypermodel.digest(hp))
            return fit(hp, *arguments, **settings)

        hypermodel.fit = counted
        return hypermodel, tuner

    _, tuner = start(2)
    with pytest.raises(Killed):
        tuner.search(verbose=0)
    hypermodel, tuner = start(None)
    tuner.search(verbose=0)
    rows = tuner.table()
    assert len(trained) == len(set(trained)), "a finished trial was trained again"
    assert len(rows) >= 3 and all(row["status"] == "completed" for row in rows)
    if name == "grid":
        # All four with adapters, and one without.
        assert len({json.dumps(row["values"]) for row in rows}) == len(rows) == 5
    if name == "hyperband":
        assert {row["values"]["epochs"] for row in rows} == {1, 3}
    best = tuner.oracle.get_best_trials()[0]
    assert best.score == max(row["objective"] for row in rows)
    (model,) = tuner.get_best_models()
    assert bool(state_of(model).adapters) == (hypermodel.values(best.hyperparameters)["trainable"] == "adapters")
    # Started again it finds everything done.
    _, again = start(len(trained))
    again.search(verbose=0)
    assert again.table() == rows


@pytest.mark.nightly
@pytest.mark.parametrize("file", ["oracle.json", "trial_1/trial.json"])
def test_state_that_a_kill_cut_off_is_made_again_from_the_finished_trials(new, tmp_path, file):
    def start(hypermodel):
        return AdapterTuner(hypermodel, ORACLES["random"](hypermodel.objective), directory=tmp_path)

    space = {"bottleneck_size": (2, 3), "learning_rate": (1e-3, 1e-4), "epochs": 1}
    first = start(new(space))
    first.search(verbose=0)
    path = tmp_path / "search" / file
    path.write_bytes(path.read_bytes()[:50])
    hypermodel = new(space)
    second = start(hypermodel)
    hypermodel.build = lambda *arguments, **settings: pytest.fail("a finished trial was trained again")
    second.search(verbose=0)
    assert second.table() == first.table()


@pytest.mark.nightly
def test_a_chief_hands_out_the_trials_that_a_worker_trains(folder, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = words_of(folder, "--vary=adapter-size=2,3", *SEARCH[1:], "--trials=4")
    command = [sys.executable, "-m", "tf_adapters", *words, f"--output={tmp_path / 'search'}"]

    def start(name):
        variables = {"TUNER_ID": name, "ORACLE_IP": "127.0.0.1", "ORACLE_PORT": str(port)}
        environment = {**os.environ, **{f"KERASTUNER_{key}": value for key, value in variables.items()}}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    chief, worker = start("chief"), start("tuner0")
    try:
        printed, trained = (process.communicate(timeout=300)[0] for process in (chief, worker))
    finally:
        chief.kill(), worker.kill()
    assert chief.returncode == worker.returncode == 0, printed + trained
    assert "No trial is left for tuner0" in trained and "Best: trial" in printed and "Traceback" not in trained
    rows = json.loads((tmp_path / "search" / "search.json").read_text())["trials"]
    assert sorted(row["status"] for row in rows) == ["completed", "completed", "failed", "failed"]
    assert all("The training loss" in row["message"] for row in rows if row["status"] == "failed")
    assert len(list(tmp_path.glob("search/search/runs/*/adapter.safetensors"))) == 2


def test_a_full_disk_ends_a_search_with_a_sentence(new, tmp_path, monkeypatch):
    def full(*arguments):
        raise tf.errors.ResourceExhaustedError(None, None, "oracle.json; No space left on device")

    monkeypatch.setattr(keras_tuner.oracles.GridSearchOracle, "save", full)
    with pytest.raises(InputError, match="search cannot be written: oracle.json; No space left on device"):
        hypermodel = new({"bottleneck_size": (2, 3), "epochs": 1})
        AdapterTuner(hypermodel, ORACLES["grid"](hypermodel.objective), directory=tmp_path).search(verbose=0)


TWO = "--vary=adapter-size=2,4"


def test_bad_space_is_one_clear_sentence(new):
    for space, arguments, message in (
        ("houlsby", {}, "space='houlsby' is unknown: the spaces are default, houlsby-2019-glue"),
        ({"epochs": 3}, {}, "space is empty: nothing varies in it"),
        ({"size": (1, 2)}, {}, "space: 'size' cannot be searched: use one of trainable, bottleneck_size"),
        ({"bottleneck_size": (2, 2)}, {}, "space: bottleneck_size has a value twice"),
        ({"bottleneck_size": (0, 2)}, {}, "space: bottleneck_size=0 must be an integer of at least 1"),
        ({"learning_rate": ("fast", 1.0)}, {}, "space: learning_rate='fast' must be a number above 0"),
        ({"activation": ("gelu", "gelo")}, {}, "space: activation='gelo'"),
        ({"activation": Range(1, 2)}, {}, "space: activation has no range"),
        ({"bottleneck_size": (2, 4)}, {"recipe": "he-2021-full"}, "is for adapters, and trainable is full"),
        ({"trainable": ("top-2", "top-3")}, {}, "space: trainable top-3 contradicts the model: .*encoder has 2 blocks"),
        ({"rank": (2, 4)}, {}, "space: rank is no setting of the method of recipe default"),
        ("default", {}, "space: sharing 3 contradicts the model: .*encoder has 2 blocks"),
        ({"trainable": ("adapters", "head")}, {"fast": True}, "fast=True is for adapters"),
        ({"epochs": (1, 2)}, {"objective": "worst"}, "objective='worst' is unknown: use one of mean, best"),
    ):
        with pytest.raises(InputError, match=message):
            new(space, **arguments)


def test_what_contradicts_a_search_is_named(new, folder, task, tmp_path):
    for low, high, log in ((2, 1, False), (0, 1, True)):
        with pytest.raises(InputError, match="must go from a number up to a greater one"):
            Range(low, high, log=log)
    with pytest.raises(InputError, match="task 'files' has no validation rows, by which a search chooses"):
        AdapterHyperModel(folder / "encoder", dataclasses.replace(task, validation=None), max_length=16)
    hypermodel = new({"epochs": (1, 2), "bottleneck_size": (2, 3)})
    with pytest.raises(InputError, match="the epochs are what Hyperband chooses"):
        AdapterTuner(hypermodel, ORACLES["hyperband"](hypermodel.objective), directory=tmp_path)
    assert hypermodel.common()["encoder"] == [sha256_of(folder / "encoder" / "model.safetensors")]
    for sizes, message in (((2, 3), None), ((2, 4), None), ((2, 5), "holds a search with another space")):
        hypermodel = new({"bottleneck_size": sizes})
        with pytest.raises(InputError, match=message) if message else contextlib.nullcontext():
            AdapterTuner(hypermodel, ORACLES["random"](hypermodel.objective), directory=tmp_path)
        trial = tmp_path / "search" / "trial_1" / "trial.json"
        if sizes == (2, 4):
            trial.parent.mkdir()
            trial.write_text("{}")


def test_bad_options_are_one_sentence(refused, folder, tmp_path):
    for options, message in (
        ([], "--space none is empty: say what to search by --vary"),
        (["--vary=adapter-size"], "--vary adapter-size must look like bottleneck-size=8,64,256"),
        (["--vary=adapter-size=two"], "--vary adapter-size=two: 'two' must hold ints, such as 8,64."),
        ([TWO, "--tuner=best"], "--tuner best is unknown: use one of random, bayesian, hyperband, grid."),
        ([TWO, "--vary=epochs=", "--tuner=hyperband"], "--tuner hyperband needs to know the most epochs"),
        ([TWO, "--resume"], "holds no search; start one without --resume."),
    ):
        refused(*words_of(folder, *options), f"--output={tmp_path / 's'}", says=message)


def test_a_process_of_no_search_is_told_so(refused, folder, tmp_path, monkeypatch):
    for port, message in (
        ("", "KERASTUNER_ORACLE_PORT is not set: a search of several processes needs KERASTUNER_TUNER_ID, "),
        ("65536", "KERASTUNER_ORACLE_PORT='65536' must be a number from 1 to 65535."),
    ):
        for variable, value in {"TUNER_ID": "tuner0", "ORACLE_IP": "192.0.2.1", "ORACLE_PORT": port}.items():
            monkeypatch.setenv(f"KERASTUNER_{variable}", value)
        refused(*words_of(folder, TWO), f"--output={tmp_path / 's'}", says=message)


def test_a_folder_with_a_search_is_refused(refused, folder, search):
    says = "is not empty: go on with it by --resume, or replace it by --overwrite"
    refused(*words_of(folder, TWO), f"--output={search[0]}", says=says)
    options = [*SEARCH, f"--test={folder / 'validation.csv'}", f"--output={search[0]}", "--resume", "--seed=3"]
    says = "holds a search with another seed (0, now 3)"
    refused(*words_of(folder, *options, encoder="one-block"), says=says)


def test_missing_package_is_named(refused, folder, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "keras_tuner" else find(name))
    says = "needs the package keras-tuner: run `pip install keras-tuner matplotlib`"
    refused(*words_of(folder, TWO), f"--output={tmp_path / 's'}", says=says)
