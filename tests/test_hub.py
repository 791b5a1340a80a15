"""Adapter directories on the HuggingFace hub, against a small server of its protocol (tests/hub_server.py)."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

import tf_adapters
from tests.conftest import randomize, write_checkpoint
from tests.hub_server import serving
from tf_adapters.adapterhub.fetching import find_directory
from tf_adapters.errors import InputError
from tf_adapters.hub import HubId, parse_id
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.loading import ALIASES
from tf_adapters.saving import load_pretrained_adapter, push_adapter
from tf_adapters.saving.fetching import find_adapter
from tf_adapters.saving.pushing import _ALIASES_ON_HUB

ADAPTERHUB = pathlib.Path(__file__).parent / "adapterhub"
TEXTS = ["the film was good", "an awful plot"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("encoders") / "small"
    write_checkpoint(directory, num_hidden_layers=2)
    return directory


@pytest.fixture(scope="module")
def adapter(encoder, tmp_path_factory):
    """An adapter directory on an encoder in a folder, with a run's other files beside it; not to be changed."""
    directory = tmp_path_factory.mktemp("adapters") / "film"
    model = tf_adapters.load_backbone(encoder, labels=["bad", "good"])
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=4), seed=0)
    tf_adapters.set_trainable(randomize(model), "adapters")
    tf_adapters.save_adapter(
        model,
        directory,
        text=tf_adapters.load_tokenizer(model, max_length=16),
        task={"name": "rotten-tomatoes", "kind": "classification", "metric": "accuracy", "text_pairs": False},
        metrics={"validation accuracy": 0.875, "validation macro_f1": 0.5},
    )
    (directory / ".resume").mkdir()
    (directory / ".resume" / "state.safetensors").write_bytes(b"state of a run")
    (directory / "log.csv").write_text("epoch\n1\n")
    return directory


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server, which huggingface_hub in this process takes for the hub, with a token that may write."""
    from huggingface_hub import constants

    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("transformers.utils.hub._is_offline_mode", False, raising=False)
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # between huggingface_hub's retries
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        monkeypatch.chdir(tmp_path)
        yield server


def pushed(adapter, **options):
    return push_adapter(adapter, "someone/film", **{"base_model": "someone/small", **options})


def card_of(hub, revision="main"):
    text = hub.files("someone/film", revision)["README.md"].decode()
    _, metadata, body = text.split("---\n", 2)
    return yaml.safe_load(metadata), body


def is_refused(words, function, *arguments, **options):
    """The sentence with which a call is refused, which has these words."""
    with pytest.raises(InputError, match=words) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_upload_waits_for_no_tensorflow():
    script = (
        "import sys, tf_adapters.saving.hub_card, tf_adapters.saving.pushing, tf_adapters.cli.push\n"
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'tf_keras', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_every_alias_of_an_encoder_is_known_by_its_id_on_the_hub():
    assert set(_ALIASES_ON_HUB) == set(ALIASES)


# Ids


@pytest.mark.parametrize(
    "text, found",
    [
        ("someone/film", HubId("someone/film", None)),
        ("some-one/film_2.0@v1.2", HubId("some-one/film_2.0", "v1.2")),
        ("a/b@refs/pr/1", HubId("a/b", "refs/pr/1")),
        *((text, None) for text in ("film", "./a/b", "/a/b", "../a", "a/b/c", "sst-2@ukp", "a/b@", "a b/c", "", "~/a")),
    ],
)
def test_an_id_is_an_owner_a_name_and_perhaps_a_revision(text, found):
    assert parse_id(text) == found


def test_a_folder_here_wins_over_a_repository_of_that_name(hub, tmp_path):
    (tmp_path / "someone" / "film").mkdir(parents=True)
    assert find_adapter("someone/film") == pathlib.Path("someone/film") and hub.requests == []


def test_what_is_no_id_is_never_asked_of_the_hub(hub):
    for source in ("nothing", "./some/thing", "a/b/c", "/nowhere/at/all"):
        assert find_adapter(source) == pathlib.Path(source)
    assert hub.requests == []


# Both ways


def test_an_adapter_is_pushed_and_answers_as_before(hub, adapter, encoder):
    hub.put("someone/small", encoder)
    address = pushed(adapter)
    assert address == f"{hub.endpoint}/someone/film/commit/{hub.repositories['someone/film'].branches['main']}"
    here = tf_adapters.predict(adapter, TEXTS)
    there = tf_adapters.predict("someone/film", TEXTS)
    assert here == there  # the encoder's too came from the hub
    model, settings = tf_adapters.load_trained("someone/film")
    assert settings["backbone"]["source"] == "someone/small"
    other = tf_adapters.load_backbone(encoder, labels=["bad", "good"])
    tf_adapters.load_adapter(other, "someone/film")
    for variable, same in zip(model.weights, other.weights):
        np.testing.assert_array_equal(variable.numpy(), same.numpy())
    goes_on = tf_adapters.load_backbone(encoder)
    load_pretrained_adapter(goes_on, "someone/film")
    assert state_of(goes_on).owner.pretrained["directory"] == "someone/film"
    bank = tf_adapters.AdapterBank(str(encoder)).add("film", "someone/film")
    assert list(bank.tasks) == ["film"]


def test_the_adapters_files_go_up_and_nothing_else(hub, adapter):
    pushed(adapter)
    files = hub.files("someone/film")
    assert sorted(files) == ["README.md", "adapter.safetensors", "tf_adapters.json"]
    assert files["adapter.safetensors"] == (adapter / "adapter.safetensors").read_bytes()
    assert any(line.startswith("PUT /lfs/") for line in hub.requests)


def test_no_path_of_this_machine_goes_up(hub, adapter, encoder, tmp_path):
    is_refused("give its id on the hub by base_model, or 'none'", push_adapter, adapter, "someone/film")
    assert hub.requests == []
    copy = shutil.copytree(adapter, tmp_path / "copy")
    settings = json.loads((copy / "tf_adapters.json").read_text())
    settings["pretrained_adapter"] = {**_ORIGIN, "directory": "/home/me/tapt"}
    (copy / "tf_adapters.json").write_text(json.dumps(settings))
    pushed(copy, base_model="none")
    files = hub.files("someone/film")
    public = json.loads(files["tf_adapters.json"])
    assert public["backbone"]["source"] is None and public["pretrained_adapter"]["directory"] == "tapt"
    for content in (files["tf_adapters.json"], files["README.md"]):
        assert str(encoder).encode() not in content and b"/home/me" not in content
    is_refused("does not say where its encoder came from", tf_adapters.load_trained, "someone/film")
    model, _ = tf_adapters.load_trained("someone/film", backbone=encoder)
    assert model.config.id2label == {0: "bad", 1: "good"}


_ORIGIN = {
    "task": "texts",
    "kind": "masked-lm",
    "sha256": "0" * 64,
    "trainable": "adapters",
    "head_steps": 0,
    "step": 9,
}


def test_the_card_has_what_the_hub_indexes(hub, adapter):
    pushed(adapter, license="mit")
    data, body = card_of(hub)
    assert data["library_name"] == "tf-adapters" and data["license"] == "mit"
    assert data["base_model"] == "someone/small" and data["pipeline_tag"] == "text-classification"
    assert data["tags"] == ["adapter", "tensorflow", "keras", "bert"]
    (index,) = data["model-index"]
    assert index["name"] == "film"
    (result,) = index["results"]
    assert result["task"] == {"type": "text-classification"}
    assert result["dataset"] == {"type": "rotten-tomatoes", "name": "rotten-tomatoes", "split": "validation"}
    assert [(metric["type"], metric["value"]) for metric in result["metrics"]] == [("accuracy", 0.875), ("f1", 0.5)]
    assert 'load_trained("someone/film")' in body and "DIRECTORY" not in body


def test_what_a_person_wrote_into_the_card_stays(hub, adapter, tmp_path):
    copy = shutil.copytree(adapter, tmp_path / "copy")
    (copy / "README.md").write_text(
        "---\nlicense: cc-by-4.0\nlanguage: de\ntags: [films]\n---\n# My adapter\nIt is good.\n"
    )
    pushed(copy)
    data, body = card_of(hub)
    assert data["license"] == "cc-by-4.0" and data["language"] == "de" and data["tags"][0] == "films"
    assert body == "# My adapter\nIt is good.\n" and data["library_name"] == "tf-adapters"
    (copy / "README.md").write_text("Only words.\n")
    pushed(copy)
    assert card_of(hub)[1] == "Only words.\n"
    (copy / "README.md").write_text("---\nlicense: [\n---\nwords\n")
    is_refused("metadata at the top of README.md cannot be read", pushed, copy)
    (copy / "README.md").unlink()
    pushed(copy)
    assert "Trained with tf_adapters" in card_of(hub)[1]


def test_a_card_that_the_hub_refuses_is_said_before_anything_is_sent(hub, adapter):
    is_refused("base_model 'no id at all' is not valid", pushed, adapter, base_model="no id at all")
    assert hub.files("someone/film") == {}


def test_revisions_are_branches_to_push_to_and_commits_to_load(hub, adapter, encoder):
    hub.put("someone/small", encoder)
    pushed(adapter, revision="v2", message="The second")
    repository = hub.repositories["someone/film"]
    assert hub.files("someone/film") == {} and len(hub.files("someone/film", "v2")) == 3
    assert repository.messages == ["The second"]
    folder = find_adapter("someone/film@v2")
    assert folder.name == repository.branches["v2"] and find_adapter(f"someone/film@{folder.name}") == folder
    is_refused("someone/film has no revision 'v9'", find_adapter, "someone/film@v9")
    commit = hub.repositories["someone/small"].branches["main"]
    model = tf_adapters.load_backbone(f"someone/small@{commit}")
    assert (
        tf_adapters.models.backbone_digest(model)
        == json.loads((adapter / "tf_adapters.json").read_text())["backbone"]["sha256"]
    )
    is_refused("names another", tf_adapters.load_backbone, "someone/small@v1", revision="v2")


def test_pushing_again_sends_nothing_that_is_there(hub, adapter):
    first = pushed(adapter)
    hub.requests.clear()
    assert pushed(adapter) == first
    assert not any("/commit/" in line or line.startswith("PUT") for line in hub.requests)


def test_a_private_adapter_is_private_from_the_start(hub, adapter, monkeypatch):
    pushed(adapter, private=True)
    assert hub.repositories["someone/film"].private
    assert (find_adapter("someone/film") / "tf_adapters.json").exists()
    pushed(adapter, private=True)
    hub.repositories["someone/film"].private = False
    is_refused("private=True: someone/film is on the hub, and public", pushed, adapter, private=True)


# What goes wrong


def test_no_token_and_refused_tokens_are_said(hub, adapter, monkeypatch):
    pushed(adapter)
    before = dict(hub.repositories["someone/film"].branches)
    for token, words in {
        "hf_wrong": r"refused the token \(401\): make a new one",
        "hf_reader": r"does not let this token write to someone/film \(403\)",
    }.items():
        monkeypatch.setenv("HF_TOKEN", token)
        is_refused(words, pushed, adapter, license="mit")
    assert is_refused(r"refused the token \(401\)", pushed, adapter, token="hf_wrong")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    is_refused(r"someone/film: there is no such directory. The hub .* refused the token", find_adapter, "someone/film")
    monkeypatch.delenv("HF_TOKEN")
    hub.requests.clear()
    is_refused("There is no token for the hub: set HF_TOKEN", pushed, adapter)
    assert hub.requests == [] and hub.repositories["someone/film"].branches == before


def test_a_repository_that_is_not_there_or_private_is_said(hub, adapter, monkeypatch):
    words = "someone/film: there is no such directory. someone/film is not on the hub .*, or is private"
    is_refused(words, tf_adapters.load_trained, "someone/film")
    pushed(adapter, private=True)
    monkeypatch.delenv("HF_TOKEN")
    is_refused(words, tf_adapters.load_trained, "someone/film")


def test_a_repository_of_something_else_is_said(hub, adapter, tmp_path):
    hub.put("someone/data", _folder(tmp_path / "data", "rows.csv"))
    is_refused("holds none of tf_adapters.json", find_adapter, "someone/data")
    hub.put("someone/peft", _folder(tmp_path / "peft", "adapter_config.json"))
    is_refused("adapter_config.json there is of AdapterHub or PEFT", tf_adapters.load_trained, "someone/peft")
    hub.put("someone/half", _folder(tmp_path / "half", "tf_adapters.json"))
    is_refused("no adapter.safetensors", tf_adapters.load_trained, "someone/half")


def _folder(path, *names):
    path.mkdir()
    for name in names:
        (path / name).write_text("{}")
    return path


@pytest.mark.parametrize("where", ["PUT /lfs", "POST .*/preupload/", "POST .*/commit/", "POST /api/repos/create"])
def test_an_upload_that_breaks_is_not_called_done_and_completes_when_run_again(hub, adapter, where):
    hub.breaks += [where] * 6  # more than huggingface_hub tries
    is_refused("failed or broke off .*either the whole adapter or what it had before. Run it again", pushed, adapter)
    assert "someone/film" not in hub.repositories or hub.files("someone/film") == {}
    hub.breaks.clear()
    hub.requests.clear()
    pushed(adapter)
    assert len(hub.files("someone/film")) == 3
    sent = [line for line in hub.requests if line.startswith("PUT /lfs")]
    assert len(sent) == (0 if "commit" in where else 1)  # the weights had arrived


def test_a_download_that_breaks_leaves_nothing_that_passes_for_whole(hub, adapter, monkeypatch):
    pushed(adapter)
    hub.breaks += ["GET /cdn/"] * 20
    words = "someone/film: there is no such directory. The connection to .* failed or broke off"
    is_refused(words, find_adapter, "someone/film")
    # What another program left of a download, when there is no network to complete it.
    hub.breaks.clear()
    (find_adapter("someone/film") / "adapter.safetensors").unlink()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    is_refused("has tf_adapters.json of it and no adapter.safetensors", find_adapter, "someone/film")


def test_a_download_goes_on_where_it_broke(hub, adapter):
    pushed(adapter)
    hub.breaks += ["GET /cdn/"] * 20
    is_refused("broke off", find_adapter, "someone/film")
    hub.breaks.clear()
    folder = find_adapter("someone/film")
    assert (folder / "adapter.safetensors").read_bytes() == (adapter / "adapter.safetensors").read_bytes()


def test_offline_the_cache_is_used_and_nothing_is_sent(hub, adapter, monkeypatch):
    from huggingface_hub import constants

    pushed(adapter)
    folder = find_adapter("someone/film")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_adapter("someone/film") == folder
    is_refused("someone/other is not in the cache of the hub, and HF_HUB_OFFLINE is set", find_adapter, "someone/other")
    is_refused("HF_HUB_OFFLINE is set, and an upload needs the hub: unset it", pushed, adapter)


def test_without_the_package_the_command_that_installs_it_is_said(adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    words = "huggingface_hub is not installed.*pip install huggingface_hub"
    is_refused(words, find_adapter, "someone/film")
    is_refused(words, pushed, adapter)


def test_a_wrong_name_and_a_damaged_directory_are_refused_before_the_hub_is_asked(hub, adapter, tmp_path):
    for name in ("film", "someone/film@v1", "a/b/c", "some one/film", 3, None):
        is_refused("repository=.* must be OWNER/NAME", push_adapter, adapter, name)
    is_refused("is no adapter directory", push_adapter, tmp_path, "someone/film")
    copy = shutil.copytree(adapter, tmp_path / "copy")
    (copy / "adapter.safetensors").write_bytes(b"cut")
    is_refused("missing, truncated or not the file", pushed, copy)
    assert hub.requests == []


def test_weights_whose_save_was_killed_before_they_had_their_name_go_up(hub, adapter, tmp_path):
    copy = shutil.copytree(adapter, tmp_path / "copy")
    os.replace(copy / "adapter.safetensors", copy / ".adapter.safetensors.next")
    pushed(copy)
    assert hub.files("someone/film")["adapter.safetensors"] == (adapter / "adapter.safetensors").read_bytes()


# AdapterHub's and PEFT's repositories


def test_a_repository_of_adapterhub_is_imported(hub, tmp_path):
    """With the files of `adapters` in tests/adapterhub, and others that are not fetched."""
    source = next(path.parent for path in sorted((ADAPTERHUB / "bert").rglob("adapter_config.json")))
    folder = shutil.copytree(source, tmp_path / "theirs")
    (folder / "optimizer.pt").write_bytes(b"state")
    hub.put("AdapterHub/theirs", folder)
    found = find_directory("AdapterHub/theirs")
    assert not (found / "optimizer.pt").exists()
    fetched = {path.name for path in found.iterdir()}
    assert fetched == {path.name for path in source.iterdir() if path.name.endswith((".json", ".safetensors", ".bin"))}
    for name in fetched:
        assert (found / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.slow
def test_convert_gives_of_a_repository_what_it_gives_of_its_folder(hub, cli, tmp_path):
    model = shutil.copytree(ADAPTERHUB / "bert" / "model", tmp_path / "model")
    (model / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(56))]) + "\n")
    for name in ("seq_bn", "fusion", "peft"):
        hub.put(f"AdapterHub/{name}", ADAPTERHUB / "bert" / name)
        for source, output in ((ADAPTERHUB / "bert" / name, "here"), (f"AdapterHub/{name}", "there")):
            outcome = cli("convert", source, f"--model={model}", f"--output={name}-{output}", "--no-head")
            assert outcome.status == 0, outcome.err
        weights = load_file(f"{name}-here/adapter.safetensors")
        others = load_file(f"{name}-there/adapter.safetensors")
        assert weights.keys() == others.keys()
        assert all(np.array_equal(weights[key], others[key]) for key in weights if not key.startswith("head."))
    # Ours to theirs: the adapter is called as the repository is.
    settings = json.loads(pathlib.Path("seq_bn-here/tf_adapters.json").read_text())
    hub.put("someone/ours", pathlib.Path("seq_bn-here"))
    outcome = cli("convert", "someone/ours", f"--model={model}", "--output=theirs", "--no-head")
    assert outcome.status == 0 and settings["backbone"]["source"] == str(model), outcome.err
    assert json.loads(pathlib.Path("theirs/adapter_config.json").read_text())["name"] == "ours"


def test_a_fusion_comes_with_the_folders_of_its_adapters(hub, tmp_path):
    files = ("adapter_fusion_config.json", "model_adapter_fusion.safetensors")
    folder = _folder(tmp_path / "fusion", *files)
    for name in ("mnli", "checkpoint-5"):
        _folder(folder / name, "adapter_config.json", "adapter.safetensors", "optimizer.pt")
    hub.put("someone/fusion", folder)
    found = find_directory("someone/fusion")
    assert sorted(path.name for path in found.iterdir()) == sorted([*files, "mnli", "checkpoint-5"])
    assert sorted(path.name for path in (found / "mnli").iterdir()) == ["adapter.safetensors", "adapter_config.json"]


@pytest.mark.parametrize("source", ["sst-2@ukp", "sentiment/sst-2@ukp"])
def test_an_id_of_adapterhubs_former_index_is_told_what_to_give(hub, source, cli, tmp_path):
    outcome = cli("convert", source, "--model=bert-base-uncased", f"--output={tmp_path / 'out'}")
    assert outcome.status == 2 and "AdapterHub/bert-base-uncased-pf-sst2" in outcome.err and hub.requests == []


# The command line


def test_what_is_fused_or_trained_on_may_be_on_the_hub(hub, adapter, encoder, tmp_path):
    from tf_adapters import Experiment
    from tf_adapters.cli.adapter import AdapterOptions
    from tf_adapters.cli.train import _fused

    hub.put("someone/small", encoder)
    pushed(adapter)
    shutil.copytree(adapter, tmp_path / "other")
    fused = _fused([pathlib.Path("someone/film"), tmp_path / "other"], AdapterOptions())
    assert list(fused) == ["film", "other"] and (fused["film"] / "adapter.safetensors").exists()
    folder = find_adapter("someone/film")
    experiment = Experiment("minilm", None, pretrained="someone/film", fused={})
    assert experiment.pretrained == folder
    assert Experiment("minilm", None, fused={"a": "someone/film", "b": adapter}).fused["a"] == folder


@pytest.mark.slow
def test_the_commands_take_the_id_in_place_of_a_directory(hub, adapter, encoder, cli, tmp_path):
    hub.put("someone/small", encoder)
    outcome = cli("push", adapter, "someone/film", "--base-model=someone/small", "--license=mit", "--message=First")
    assert outcome.status == 0 and f"Uploaded to {hub.endpoint}/someone/film/commit/" in outcome.out
    assert hub.repositories["someone/film"].messages == ["First"]
    (tmp_path / "texts.csv").write_text("text,label\nthe film was good,good\nan awful plot,bad\n")
    here = cli("predict", adapter, "--input=texts.csv")
    there = cli("predict", "someone/film", "--input=texts.csv")
    assert there.rows() == here.rows() and "someone/film is commit" in there.err
    several = cli("predict", "someone/film", f"spam={adapter}", "--input=texts.csv")
    assert [row["film"] for row in several.rows()] == [row["spam"] for row in several.rows()]
    outcome = cli("evaluate", "someone/film@main", "--input=texts.csv", "--output=scores.json")
    assert (
        outcome.status == 0 and json.loads((tmp_path / "scores.json").read_text())["directory"] == "someone/film@main"
    )
    outcome = cli("info", "someone/film", "--json")
    assert json.loads(outcome.out)["task"]["name"] == "rotten-tomatoes"
    outcome = cli("info", "someone/small", "--json")
    assert outcome.status == 0 and "Traceback" not in outcome.err
    outcome = cli("submit", "someone/film", "--output=glue")
    assert outcome.status == 2 and "was trained on task 'rotten-tomatoes'" in outcome.err
    outcome = cli("convert", "someone/film", "--output=theirs", "--no-head")
    assert outcome.status == 2 and "LayerNorms were trained" in outcome.err  # which AdapterHub's files do not hold


def test_the_commands_refuse_in_a_sentence(hub, adapter, cli, monkeypatch):
    for arguments, words in {
        ("push", adapter, "someone/film"): "by --base-model, or 'none'",
        ("push", adapter, "film"): "OWNER/NAME",
        ("predict", "someone/nothing", "--input=-"): "someone/nothing: there is no such directory",
        ("evaluate", "someone/nothing"): "someone/nothing: there is no such directory",
        ("export", "someone/nothing", "--output=serving/1"): "someone/nothing: there is no such directory",
        ("info", "someone/nothing"): "someone/nothing: there is no such directory",
        ("convert", "someone/nothing", "--output=out"): "someone/nothing: there is no such directory",
        ("submit", "someone/nothing", "--output=out"): "someone/nothing: there is no such directory",
        ("train", "--from-pretrained-adapter=someone/nothing"): "someone/nothing: there is no such directory",
        ("train", "--fuse=someone/nothing", "--fuse=a/b"): "someone/nothing: there is no such directory",
    }.items():
        outcome = cli(*arguments)
        assert outcome.status == 2 and words in outcome.err and outcome.err.count("\n") == 1, outcome.err
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    outcome = cli("push", adapter, "someone/film", "--base-model=none")
    assert outcome.status == 2 and "refused the token (401)" in outcome.err


@pytest.mark.nightly
def test_the_environment_says_where_the_hub_is(adapter, encoder, tmp_path):
    """HF_ENDPOINT is read when huggingface_hub is imported, so in processes of their own."""
    with serving() as server:
        server.put("someone/small", encoder)
        environment = {
            **os.environ,
            "HF_ENDPOINT": server.endpoint,
            "HF_HOME": str(tmp_path / "home"),
            "HF_TOKEN": "hf_writer",
            "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
        }
        environment.pop("HF_HUB_OFFLINE", None)

        def run(*arguments, **options):
            command = [sys.executable, "-m", "tf_adapters.cli", *map(str, arguments)]
            return subprocess.run(command, env={**environment, **options}, cwd=tmp_path, capture_output=True, text=True)

        done = run("push", adapter, "someone/film", "--base-model", "someone/small")
        assert done.returncode == 0, done.stderr
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
        done = run("predict", "someone/film", "--input", "texts.txt")
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        for answer, expected in zip(answers, tf_adapters.predict(adapter, TEXTS), strict=True):
            assert answer["label"] == expected["label"]
        done = run("predict", "someone/film", "--input", "texts.txt", HF_HUB_OFFLINE="1")
        assert done.returncode == 0 and [json.loads(line) for line in done.stdout.splitlines()] == answers
    done = run("info", "someone/elsewhere")
    assert done.returncode == 2 and re.fullmatch(r"error: .*someone/elsewhere.*\n", done.stderr), done.stderr
