"""A hint works when it is followed, in the spelling of the door that gave it."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import VOCABULARY
from tests.test_adapterhub import BERT, PREFIX
from tf_adapters import InputError, load_backbone, load_tokenizer
from tf_adapters.adapterhub import import_adapter
from tf_adapters.models.state import state_of
from tf_adapters.serving.versions import check_version_directory
from tf_adapters.text import WordPiece


@pytest.fixture
def folders(tmp_path):
    """A folder `peft` of PEFT's with a head, and its encoder as `encoder`."""
    shutil.copytree(BERT / "peft", tmp_path / "peft")
    shutil.copytree(BERT / "model", tmp_path / "encoder")
    (tmp_path / "encoder" / "vocab.txt").write_text("\n".join(VOCABULARY[:60]) + "\n")
    return tmp_path


def change(path, function):
    arrays = load_file(path)
    function(arrays)
    save_file(arrays, path, {"format": "pt"})


def other_name(arrays):
    for part in ("weight", "bias"):
        arrays[f"{PREFIX}score.{part}"] = arrays.pop(f"{PREFIX}classifier.{part}")


def nested(arrays):
    arrays[f"{PREFIX}classifier.modules_to_save.bias"] = arrays.pop(f"{PREFIX}classifier.bias")


def no_pooler(arrays):
    for name in [name for name in arrays if "pooler" in name]:
        del arrays[name]


HEADS = {
    "other name": ("peft/adapter_model.safetensors", other_name),
    "nested": ("peft/adapter_model.safetensors", nested),
    "incomplete": ("peft/adapter_model.safetensors", lambda arrays: arrays.pop(f"{PREFIX}classifier.bias")),
    "labels": ("peft/adapter_model.safetensors", lambda a: a.update({f"{PREFIX}classifier.bias": np.zeros(2, "f4")})),
    "no pooler": ("encoder/model.safetensors", no_pooler),
}


@pytest.mark.filterwarnings("ignore:.*no pooler")
@pytest.mark.parametrize("why", HEADS)
def test_a_head_that_cannot_be_read_is_left_out_as_the_message_says(folders, cli, why):
    file, function = HEADS[why]
    change(folders / file, function)
    with pytest.raises(InputError, match="pass head=False[.]"):
        import_adapter(load_backbone(folders / "encoder", num_labels=3), folders / "peft")
    model = load_backbone(folders / "encoder", num_labels=3)
    import_adapter(model, folders / "peft", head=False)
    assert state_of(model).adapters
    if why in ("other name", "no pooler"):
        convert = ["convert", str(folders / "peft"), "--output", str(folders / "ours")]
        refused = cli(*convert)
        assert refused.status == 2 and refused.err.endswith("give --model.\n")
        convert += ["--model", str(folders / "encoder")]
        refused = cli(*convert)
        assert refused.status == 2 and refused.err.endswith("pass --no-head.\n"), refused.err
        assert not (folders / "ours").exists()
        assert cli(*convert, "--no-head").status == 0
        assert "give --overwrite." in cli(*convert, "--no-head").err
        assert cli(*convert, "--no-head", "--overwrite").status == 0


def test_the_kind_of_head_that_a_message_names_is_the_one_that_fits(folders):
    settings = json.loads((folders / "peft" / "adapter_config.json").read_text())
    (folders / "peft" / "adapter_config.json").write_text(json.dumps(settings | {"task_type": "TOKEN_CLS"}))
    with pytest.raises(InputError, match="load the encoder with head='token-classification'") as raised:
        import_adapter(load_backbone(folders / "encoder", num_labels=3), folders / "peft")
    (head,) = re.findall("head='([a-z-]+)'", str(raised.value))
    model = load_backbone(folders / "encoder", head=head, num_labels=3)
    import_adapter(model, folders / "peft")
    classifier = load_file(folders / "peft" / "adapter_model.safetensors")[f"{PREFIX}classifier.weight"]
    np.testing.assert_array_equal(model.classifier.kernel, classifier.T)


def test_versions_lengths_and_added_tokens(folders):
    with pytest.raises(InputError, match="looks for: .*film/1") as raised:
        check_version_directory(folders / "film")
    (path,) = re.findall("looks for: (.*)[.]", str(raised.value))
    (check_version_directory(path)).mkdir(parents=True)
    with pytest.raises(InputError, match="export the next version") as raised:
        check_version_directory(path)
    (path,) = re.findall("the next version, (.*)[.]", str(raised.value))
    assert check_version_directory(path) == folders / "film" / "2"

    model = load_backbone(folders / "encoder")
    with pytest.raises(InputError, match="give [0-9]+ or less") as raised:
        load_tokenizer(model, max_length=10**6)
    (most,) = re.findall("give ([0-9]+) or less", str(raised.value))
    assert load_tokenizer(model, max_length=int(most)).max_length == int(most)
    (folders / "encoder" / "added_tokens.json").write_text('{"[E1]": 60}')
    with pytest.raises(InputError, match="give an encoder without them"):
        load_tokenizer(model)
    (folders / "encoder" / "added_tokens.json").unlink()
    assert isinstance(load_tokenizer(model), WordPiece)


def test_a_message_that_names_an_argument_outright_names_the_option_at_the_command_line(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.conllu").write_text("1\ta\t_\tX\n\n")
    outcome = cli("train", "--output=o", "--task=imdb_reviews", "--data-dir=w.conllu")
    assert outcome.status == 2 and "--data-dir is 'w.conllu'" in outcome.err, outcome.err
