"""A hint works when it is followed, in the spelling of the door that gave it."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import VOCABULARY, is_refused
from tests.test_adapterhub import BERT, PREFIX
from tf_adapters import InputError, load_backbone
from tf_adapters.adapterhub import import_adapter
from tf_adapters.models.state import state_of


@pytest.fixture
def folders(tmp_path):
    """A folder `peft` of PEFT's with a head, and its encoder as `encoder`."""
    shutil.copytree(BERT / "peft", tmp_path / "peft")
    shutil.copytree(BERT / "model", tmp_path / "encoder")
    (tmp_path / "encoder" / "vocab.txt").write_text("\n".join(VOCABULARY[:60]) + "\n")
    return tmp_path


BIAS = f"{PREFIX}classifier.bias"
HEADS = {
    "nested": lambda arrays: arrays.update({f"{PREFIX}classifier.modules_to_save.bias": arrays.pop(BIAS)}),
    "incomplete": lambda arrays: arrays.pop(BIAS),
    "labels": lambda arrays: arrays.update({BIAS: np.zeros(2, "f4")}),
}


@pytest.mark.parametrize("why", HEADS)
def test_a_head_that_cannot_be_read_is_left_out_as_the_message_says(folders, cli, refused, why):
    path = folders / "peft" / "adapter_model.safetensors"
    arrays = load_file(path)
    HEADS[why](arrays)
    save_file(arrays, path, {"format": "pt"})
    is_refused("pass head=False[.]", import_adapter, load_backbone(folders / "encoder", num_labels=3), folders / "peft")
    model = load_backbone(folders / "encoder", num_labels=3)
    import_adapter(model, folders / "peft", head=False)
    assert state_of(model).adapters
    if why == "incomplete":
        convert = ["convert", folders / "peft", "--output", folders / "ours"]
        assert refused(*convert).endswith("give --model.\n")
        convert += ["--model", folders / "encoder"]
        assert refused(*convert).endswith("pass --no-head.\n")
        assert cli(*convert, "--no-head").status == 0
        refused(*convert, "--no-head", says="give --overwrite.")
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
