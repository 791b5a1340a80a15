"""Adapter directories on the HuggingFace hub. A folder stands for the hub, and replaces huggingface_hub's own
functions; they are called with arguments that the real ones take."""

import inspect
import json
import os
import pathlib
import shutil
import sys
import types
from fnmatch import fnmatch

import huggingface_hub
import pytest
import yaml

import tf_adapters
from tests.conftest import encoder_of, is_refused, randomize
from tf_adapters.adapterhub import import_adapter
from tf_adapters.adapterhub.description import find_directory
from tf_adapters.models.state import state_of
from tf_adapters.paths import ALIASES
from tf_adapters.saving import load_pretrained_adapter, push_adapter
from tf_adapters.saving.hub import _ALIASES_ON_HUB, HubId, find_adapter, parse_id

ADAPTERHUB = pathlib.Path(__file__).parent / "adapterhub"
TEXTS = ["the film was good", "an awful plot"]
COMMIT = "0123456789abcdef"
MISSING = "401 Client Error.\n\nRepository Not Found for url: https://hub/a.\nPlease make sure that it is there."


encoder = encoder_of(2)


@pytest.fixture(scope="module")
def adapter(encoder, tmp_path_factory):
    """An adapter directory on an encoder in a folder, with a run's other files beside it; not to be changed."""
    directory = tmp_path_factory.mktemp("adapters") / "film"
    model = tf_adapters.load_backbone(encoder, labels=["bad", "good"])
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=4), seed=0)
    tf_adapters.set_trainable(randomize(model), "adapters")
    tf_adapters.save_adapter(
        model, directory, text=tf_adapters.load_tokenizer(model, max_length=16),
        task={"name": "rotten-tomatoes", "kind": "classification", "metric": "accuracy", "text_pairs": False},
    )  # fmt: skip
    (directory / ".resume").mkdir()
    (directory / ".resume" / "state.safetensors").write_bytes(b"state of a run")
    (directory / "log.csv").write_text("epoch\n1\n")
    return directory


class Hub:
    """The hub: `folder/owner/name/revision` of a repository's files, and what was asked of it."""

    def __init__(self, folder):
        self.folder, self.private, self.asked = folder, {}, []

    def put(self, name, source, revision="main"):
        return shutil.copytree(source, self.folder / name / revision, dirs_exist_ok=True)

    def files(self, name, revision="main"):
        folder = self.folder / name / revision
        return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def snapshot_download(self, repo_id, *, revision=None, allow_patterns=None):
        self.asked.append(repo_id)
        branch = "main" if revision in (None, COMMIT) else revision
        source, copy = self.folder / repo_id / branch, self.folder / "cache" / repo_id / COMMIT
        if not source.exists():
            raise OSError(MISSING)
        for path in source.rglob("*"):
            name = str(path.relative_to(source))
            if path.is_file() and any(fnmatch(name, pattern) for pattern in allow_patterns):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy / name)
        return str(copy)

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        self.asked.append(repo_id)
        self.private.setdefault(repo_id, bool(private))
        (self.folder / repo_id / "main").mkdir(parents=True, exist_ok=exist_ok)

    def repo_info(self, repo_id):
        return types.SimpleNamespace(private=self.private[repo_id])

    def create_branch(self, repo_id, *, branch, exist_ok=False):
        (self.folder / repo_id / branch).mkdir(exist_ok=exist_ok)

    def upload_folder(self, *, repo_id, folder_path, commit_message=None, revision=None):
        self.message = commit_message
        self.put(repo_id, folder_path, revision or "main")
        return types.SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/0")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    of_api = ("create_repo", "repo_info", "create_branch", "upload_folder")
    for owner, name in ((huggingface_hub, "snapshot_download"), *((huggingface_hub.HfApi, name) for name in of_api)):
        real, method = inspect.signature(getattr(owner, name)), owner is not huggingface_hub

        def call(*arguments, real=real, method=method, fake=getattr(hub, name), **options):
            real.bind(*arguments, **options)
            return fake(*arguments[method:], **options)

        monkeypatch.setattr(owner, name, call)
    monkeypatch.chdir(tmp_path)
    return hub


def pushed(adapter, **options):
    return push_adapter(adapter, "someone/film", **{"base_model": "none", **options})


def card_of(hub):
    _, metadata, body = hub.files("someone/film")["README.md"].decode().split("---\n", 2)
    return yaml.safe_load(metadata), body


def test_an_id_is_an_owner_a_name_and_perhaps_a_revision():
    assert parse_id("some-one/film_2.0@v1.2") == HubId("some-one/film_2.0", "v1.2")
    assert parse_id("a/b@refs/pr/1") == HubId("a/b", "refs/pr/1") and parse_id("a/b") == HubId("a/b", None)
    for text in ("film", "./a/b", "/a/b", "a/b/c", "sst-2@ukp", "a/b@", "a b/c", "~/a"):
        assert parse_id(text) is None
    assert set(_ALIASES_ON_HUB) == set(ALIASES)


def test_a_folder_here_wins_and_what_is_no_id_is_never_asked_of_the_hub(hub, tmp_path):
    (tmp_path / "someone" / "film").mkdir(parents=True)
    for source in ("someone/film", "nothing", "./some/thing", "a/b/c", "/nowhere/at/all"):
        assert find_adapter(source) == pathlib.Path(source)
    assert hub.asked == []


# Both ways


def test_an_adapter_is_pushed_and_answers_as_before(hub, adapter, encoder):
    assert pushed(adapter, message="First") == "https://hub/someone/film/commit/0" and hub.message == "First"
    files = hub.files("someone/film")
    assert sorted(files) == ["README.md", "adapter.safetensors", "tf_adapters.json"]
    assert files["adapter.safetensors"] == (adapter / "adapter.safetensors").read_bytes()
    assert tf_adapters.predict("someone/film", TEXTS, backbone=encoder) == tf_adapters.predict(adapter, TEXTS)
    goes_on = tf_adapters.load_backbone(encoder)
    load_pretrained_adapter(goes_on, "someone/film")
    assert state_of(goes_on).owner.pretrained["directory"] == "someone/film"
    bank = tf_adapters.AdapterBank(str(encoder)).add("film", "someone/film")
    assert list(bank.tasks) == ["film"]


def test_no_path_of_this_machine_goes_up(hub, adapter, encoder, tmp_path):
    is_refused("give its id on the hub by base_model, or 'none'", push_adapter, adapter, "someone/film")
    assert hub.asked == []
    copy = shutil.copytree(adapter, tmp_path / "copy")
    settings = json.loads((copy / "tf_adapters.json").read_text())
    settings["pretrained_adapter"] = {
        "task": "texts", "kind": "masked-lm", "sha256": "0" * 64, "trainable": "adapters", "head_steps": 0, "step": 9,
        "directory": "/home/me/tapt",
    }  # fmt: skip
    (copy / "tf_adapters.json").write_text(json.dumps(settings))
    pushed(copy)
    files = hub.files("someone/film")
    public = json.loads(files["tf_adapters.json"])
    assert public["backbone"]["source"] is None and public["pretrained_adapter"]["directory"] == "tapt"
    for content in (files["tf_adapters.json"], files["README.md"]):
        assert str(encoder).encode() not in content and b"/home/me" not in content
    is_refused("does not say where its encoder came from", tf_adapters.load_trained, "someone/film")


def test_the_card_has_what_the_hub_indexes_and_what_a_person_wrote_into_it(hub, adapter, encoder, tmp_path):
    pushed(adapter, license="mit", base_model="someone/small")
    data, body = card_of(hub)
    assert data == {
        "library_name": "tf-adapters", "license": "mit", "base_model": "someone/small",
        "pipeline_tag": "text-classification", "tags": ["adapter", "tensorflow", "keras", "bert"],
    }  # fmt: skip
    assert 'load_trained("someone/film")' in body and "DIRECTORY" not in body
    copy = shutil.copytree(adapter, tmp_path / "copy")
    own = "---\nlicense: cc-by-4.0\nlanguage: de\ntags: [films]\n---\n# My adapter\nIt is good.\n"
    (copy / "README.md").write_text(own)
    pushed(copy)
    data, body = card_of(hub)
    assert body == "# My adapter\nIt is good.\n" and data["tags"][0] == "films"
    assert {"license": "cc-by-4.0", "language": "de", "library_name": "tf-adapters"}.items() <= data.items()
    (copy / "README.md").write_text(f"# Films on {encoder}\nnot {encoder}-large\n")
    pushed(copy, base_model="someone/small")
    assert card_of(hub)[1] == f"# Films on someone/small\nnot {encoder}-large\n"
    (copy / "README.md").write_text("---\nlicense: [\n---\nwords\n")
    is_refused("metadata at the top of README.md cannot be read", pushed, copy)


def test_a_revision_is_a_branch_and_what_is_to_be_private_goes_into_no_public_repository(hub, adapter):
    pushed(adapter, revision="v2", private=True)
    assert hub.files("someone/film") == {} and len(hub.files("someone/film", "v2")) == 3
    assert (find_adapter("someone/film@v2") / "tf_adapters.json").exists()
    assert hub.private == {"someone/film": True}
    pushed(adapter, private=True)
    hub.private["someone/film"] = False
    is_refused("private=True: someone/film is on the hub, and public", pushed, adapter, private=True)


# What goes wrong


def test_the_hubs_own_message_is_one_sentence_and_a_repository_of_something_else_is_said(hub, adapter, monkeypatch):
    missing = "there is no such directory. The HuggingFace hub .* Repository Not Found .* The token is in HF_TO"
    is_refused(f"someone/none: {missing}", tf_adapters.load_trained, "someone/none")
    for name, file, words in (
        ("someone/data", "rows.csv", "holds none of tf_adapters.json"),
        ("someone/peft", "adapter_config.json", "adapter_config.json there is of AdapterHub or PEFT"),
        ("someone/half", "tf_adapters.json", "no adapter.safetensors"),
    ):
        (hub.folder / name / "main").mkdir(parents=True)
        (hub.folder / name / "main" / file).write_text("{}")
        is_refused(words, tf_adapters.load_trained, name)

    def fail(*arguments, **options):
        raise ConnectionError("broken")

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", fail)
    is_refused("^The HuggingFace hub and someone/film: broken$", pushed, adapter)


def test_without_the_package_the_command_that_installs_it_is_said(adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for function in (lambda: find_adapter("someone/film"), lambda: pushed(adapter)):
        is_refused("huggingface_hub is not installed.*pip install huggingface_hub", function)


def test_a_wrong_name_and_a_damaged_directory_are_refused_before_the_hub_is_asked(hub, adapter, tmp_path):
    for name in ("film", "someone/film@v1", "a/b/c", "some one/film", None):
        is_refused("repository=.* must be OWNER/NAME", push_adapter, adapter, name)
    is_refused("is no adapter directory", push_adapter, tmp_path, "someone/film")
    copy = shutil.copytree(adapter, tmp_path / "copy")
    (copy / "adapter.safetensors").write_bytes(b"cut")
    is_refused("missing, truncated or not the file", pushed, copy)
    assert hub.asked == []


def test_weights_whose_save_was_killed_before_they_had_their_name_go_up(hub, adapter, tmp_path):
    copy = shutil.copytree(adapter, tmp_path / "copy")
    os.replace(copy / "adapter.safetensors", copy / ".adapter.safetensors.next")
    pushed(copy)
    assert hub.files("someone/film")["adapter.safetensors"] == (adapter / "adapter.safetensors").read_bytes()


# AdapterHub's and PEFT's repositories


def test_of_a_repository_comes_what_is_read_of_a_folder(hub):
    for name, has in (("seq_bn", {"adapter_config.json", "head_config.json"}), ("fusion", {"first", "second"})):
        (hub.put(f"AdapterHub/{name}", ADAPTERHUB / "bert" / name) / "optimizer.pt").write_bytes(b"state")
        folder = find_directory(f"AdapterHub/{name}")
        assert has <= {path.name for path in folder.iterdir()} and not (folder / "optimizer.pt").exists()
        model = tf_adapters.load_backbone(ADAPTERHUB / "bert" / "model", num_labels=3)
        assert import_adapter(model, f"AdapterHub/{name}", head=False)["config"]


def test_an_id_of_adapterhubs_former_index_is_told_what_to_give(hub, refused):
    for source in ("sst-2@ukp", "sentiment/sst-2@ukp"):
        arguments = "convert", source, "--model=bert-base-uncased", "--output=out"
        refused(*arguments, says="AdapterHub/bert-base-uncased-pf-sst2")
    assert hub.asked == []


# The command line


@pytest.mark.slow
def test_the_commands_take_the_id_in_place_of_a_directory(hub, adapter, encoder, cli, tmp_path):
    outcome = cli("push", adapter, "someone/film", "--base-model=none", "--license=mit", "--message=First")
    assert outcome.status == 0 and "Uploaded to https://hub/someone/film/commit/0" in outcome.out
    (tmp_path / "texts.csv").write_text("text,label\nthe film was good,good\nan awful plot,bad\n")
    here = cli("predict", adapter, "--input=texts.csv")
    there = cli("predict", "someone/film", "--input=texts.csv", f"--model={encoder}")
    assert there.rows() == here.rows() and "someone/film is commit 0123456789ab on the hub" in there.err
    assert json.loads(cli("info", "someone/film", "--json").out)["task"]["name"] == "rotten-tomatoes"


def test_the_commands_refuse_in_a_sentence(hub, adapter, refused):
    refused("push", adapter, "someone/film", says="by --base-model, or 'none'")
    refused("push", adapter, "film", says="OWNER/NAME")
    nothing = "someone/nothing"
    for arguments in (
        ("predict", nothing, "--input=-"),
        ("convert", nothing, "--output=out"),
        ("train", f"--from-pretrained-adapter={nothing}"),
        ("train", f"--fuse={nothing}", "--fuse=a/b"),
    ):
        refused(*arguments, says=f"{nothing}: there is no such directory")
