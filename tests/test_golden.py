"""Directories that older versions wrote still load, and answer what they did."""

import os

import numpy as np
import pytest

pytest.importorskip("tf_keras", reason="needs the first door")
pytest.importorskip("keras_hub", reason="needs KerasHub")

from tests.cases import nightly_but  # noqa: E402
from tests.golden.cases import CASES, DOORS, FOLDER, encoder, logits  # noqa: E402
from tf_adapters import load_trained  # noqa: E402

# Other processors round otherwise; 0 asks for the bits, on the machine that wrote them.
TOLERANCE = float(os.environ.get("GOLDEN_TOLERANCE", 1e-6))
QUICK = [
    *(("transformers", name) for name in ("classification", "question-answering", "fusion", "full")),
    *(("keras-hub", name) for name in ("token-classification", "multiple-choice", "dora", "shared")),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("door, name", nightly_but(QUICK, [(door, name) for door in DOORS for name in CASES]))
def test_a_directory_of_before_answers_what_it_did(source, door, name):
    directory = FOLDER / door / name
    expected = np.load(directory / "logits.npy")
    assert np.ptp(expected) > 0.01
    for reader in (door, *(other for other in DOORS if other != door)):
        model, _ = load_trained(directory, backbone=source, door=reader)
        # Between the doors the order of sums differs.
        tolerance = TOLERANCE if reader == door else 1e-5
        np.testing.assert_allclose(logits(model, CASES[name][0]), expected, rtol=0, atol=tolerance)
