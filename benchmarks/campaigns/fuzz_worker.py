"""Reads damaged files in a process of its own, and says of each what came of it: a load, a refusal or a failure."""

import gzip
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback

from benchmarks.campaigns.fuzz_changes import change_file
from benchmarks.provenance import ROOT

FIXTURES = ROOT / "tests" / "adapterhub" / "bert"
HUB = ("double_seq_bn", "seq_bn", "scaled_par_bn", "norm_before", "lora", "lora_values", "fusion")
PEFT = ("peft", "peft-pattern")
TEXTS = ["the film was good", "", "\u00e9t\u00e9 \u4e2d\u6587 a\u0301 \U0001f642", "x" * 200]
# How much a case may add to what the process ever held, beyond what its files hold.
MOST_MEMORY = 512 * 2**20
MOST_MESSAGE = 2000


class Failure(Exception):
    """What a case must not do; its first word is the kind of failure."""


class Watch:
    """Notes what a case does that it must not: write, run, connect."""

    def __init__(self):
        self.on, self.found = False, []
        sys.addaudithook(self._note)

    def _note(self, event, arguments):
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT
            )
            # What a large file's texts go to has no name, and is gone with the process: the folder itself is opened for
            # it.
            nameless = path == tempfile.gettempdir()
            if writes and path != os.devnull and not nameless:
                self.found.append(f"writes {path}")
        elif event.partition(".")[0] in ("subprocess", "socket", "shutil") or event in (
            "os.system",
            "os.exec",
            "os.remove",
            "os.rename",
            "os.mkdir",
        ):
            self.found.append(f"{event} {arguments!r}"[:200])


class Reader:
    """One kind of files: whole ones to start from, and what reads them.

    Attributes:
        name: str.
        weight: int, how often it is drawn.
        bases: list of functions, each of which writes a whole folder.
    """

    def __init__(self, name, weight, bases, read, before=None):
        self.name, self.weight, self.bases, self.read, self.before = name, weight, bases, read, before


class Models:
    """The tiny model that adapters are loaded into, made anew when a case leaves something behind."""

    def __init__(self):
        self.model = None

    def get(self):
        import numpy as np

        from tf_adapters import AdapterConfig, add_adapters, load_backbone, set_trainable

        if self.model is None:
            self.model = load_backbone(FIXTURES / "model", num_labels=3)
            # An adapter is there already, active and in training: a refusal must leave it so.
            set_trainable(
                add_adapters(self.model, AdapterConfig(2, train_layer_norm="encoder"), name="first", seed=0), "adapters"
            )
            chooser = np.random.default_rng(0)
            for variable in self.model.trainable_variables:
                variable.assign_add(chooser.normal(0, 0.05, variable.shape))
            self.digest = self.state()
        return self.model

    def state(self):
        """A digest of all of a model's variables, and what is written of its adapters."""
        import numpy as np

        from tf_adapters.models.state import state_of

        digest = hashlib.sha256()
        for variable in self.model.weights:
            digest.update(variable.name.encode())
            digest.update(np.ascontiguousarray(variable.numpy()))
        state = state_of(self.model)
        trains = [variable.name for variable in self.model.trainable_variables]
        return (
            digest.hexdigest(),
            sorted(state.adapters),
            state.active,
            state.trainable,
            len(state.newly_initialized),
            trains,
        )

    def try_load(self, load):
        """Load into the model; it must be whole afterwards: as before if that was refused, with finite weights if
        not."""
        import numpy as np

        from tf_adapters.errors import InputError

        model, whole = self.get(), False
        try:
            try:
                load(model)
            except InputError:
                if self.state() != self.digest:
                    raise Failure("changed: the model is another one after a refusal") from None
                whole = True
                raise
            if not all(np.isfinite(variable.numpy()).all() for variable in model.weights):
                raise Failure("numbers: a weight is NaN or infinite")
        finally:
            if not whole:
                self.model = None  # another one is made


def copy(folder):
    return lambda target: shutil.copytree(folder, target, dirs_exist_ok=True)


def write(**files):
    def base(target):
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (target / name.replace("__", ".")).write_bytes(content if isinstance(content, bytes) else content.encode())

    return base


def natives(models, folder):
    """Adapter directories of this package."""
    import numpy as np

    import tf_adapters
    from tf_adapters.methods.ia3 import IA3Config
    from tf_adapters.methods.lora import LoraConfig

    configs = {
        "bottleneck": tf_adapters.AdapterConfig(2),
        "variant": tf_adapters.AdapterConfig(3, sharing=2, inner_norm="before", scaling="learned"),
        "lora": LoraConfig(rank=2, alpha=3),
        "ia3": IA3Config(),
    }
    for name, config in configs.items():
        model = tf_adapters.remove_adapters(models.get())
        tf_adapters.set_trainable(tf_adapters.add_adapters(model, config, seed=0), "adapters")
        chooser = np.random.default_rng(1)
        for variable in model.trainable_variables:
            variable.assign_add(chooser.normal(0, 0.05, variable.shape))
        tf_adapters.save_adapter(model, folder / name)
        models.model = None
    return [copy(folder / name) for name in configs]


def sign(chooser, folder):
    """Write the digest of changed weights into the settings, most of the time, so that they are looked into."""
    path = folder / "tf_adapters.json"
    if chooser.randrange(8):
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            settings["weights"]["sha256"] = hashlib.sha256((folder / "adapter.safetensors").read_bytes()).hexdigest()
            path.write_text(json.dumps(settings))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass


def shards(target):
    """An encoder in two shards."""
    from safetensors.numpy import load_file, save_file

    copy(FIXTURES / "model")(target)
    arrays = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    names, places = sorted(arrays), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: arrays[name] for name in part}, target / file)
        places |= dict.fromkeys(part, file)
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def sentencepiece_model():
    """A SentencePiece model of a few pieces, bytes."""
    from tf_adapters.text.sentencepiece_files import CONTROL, NORMAL, UNKNOWN, Model, Piece

    kinds = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    words = [
        "<unk>",
        "<s>",
        "</s>",
        "\u2581",
        "\u2581the",
        "\u2581film",
        "\u2581good",
        "s",
        *"abcdefghilmnotw",
        "\u00e9",
        "\u4e2d",
    ]
    pieces = tuple(Piece(word, -0.5 * number, kinds.get(word, NORMAL)) for number, word in enumerate(words))
    # trainer_spec with model_type UNIGRAM, normalizer_spec with the name "identity".
    return Model(pieces, b"\x12\x02\x18\x01" + b"\x1a\x0a\x0a\x08identity").encoded()


def bpe_json():
    from tf_adapters.text.byte_bpe import _byte_alphabet

    tokens = ["<s>", "<pad>", "</s>", "<unk>", *_byte_alphabet(), "th", "the", "\u0120f", "oo"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["t h", "th e", "\u0120 f", "o o"]},
        "normalizer": None,
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]},
    }


def readers(folder):
    """All kinds, by name."""
    import tf_adapters
    from tf_adapters.adapterhub import import_adapter
    from tf_adapters.adapterhub.torch_files import read_torch_file
    from tf_adapters.models.transformers.config_file import read_config
    from tf_adapters.models.transformers.loading import WEIGHT_FILES
    from tf_adapters.models.weight_files import open_weights
    from tf_adapters.saving.directory import read_adapter
    from tf_adapters.tasks.files import BadRows
    from tf_adapters.tasks.own_files import rows_from_file, unlabelled_chunks

    models = Models()

    def native(target, chooser):
        name = "first" if chooser.random() < 0.3 else "default"
        if chooser.random() < 0.3:
            read_adapter(target)
        models.try_load(lambda model: tf_adapters.load_adapter(model, target, name=name))

    def hub(target, chooser):
        models.try_load(lambda model: import_adapter(model, target))

    def torch(target, chooser):
        for path in target.glob("*.bin"):
            read_torch_file(path)

    def weights(target, chooser):
        read_config(target)
        with open_weights(target, WEIGHT_FILES) as found:
            for name in found:
                found.shape(name)
                found.read(name)

    def encoder(target, chooser):
        tf_adapters.load_backbone(target, num_labels=3)

    def tokenizer(make):
        def read(target, chooser):
            made = make(target)
            made(TEXTS)
            made.tokenize_with_offsets(TEXTS)

        return read

    def data(kind, file):
        def read(target, chooser):
            rows_from_file(
                target / file, kind=kind, labels=None, label_column=None, bad_rows=chooser.choice([None, BadRows()])
            )
            for chunk in unlabelled_chunks(target / file, kind=kind):
                chunk.rows()

        return read

    table = 'text,label\nthe film was good,good\n"a, ""b""",bad\nc,good\n'
    lines = "".join(
        json.dumps({"text": f"text {number}", "label": number % 2, "more": [number]}) + "\n" for number in range(5)
    )
    words = (
        "# sent_id = 1\n1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tfilm\tfilm\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
        "1\tgood\t_\tADJ\t_\t_\t0\troot\t_\t_\n\n"
    )
    paragraph = {
        "context": "the film was good",
        "qas": [{"id": "a", "question": "what?", "answers": [{"text": "film", "answer_start": 4}]}],
    }
    squad = json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph]}]})
    wordpiece = {
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {word: number for number, word in enumerate(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "film", "##s", "good", "a"])}},
        "normalizer": {"type": "BertNormalizer", "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    }  # fmt: skip
    vocabulary = "\n".join(wordpiece["model"]["vocab"])
    lowering, classes = (
        json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}),
        json.dumps({"add_prefix_space": True}),
    )
    bpe, piece = bpe_json(), sentencepiece_model()
    bpe_files = {
        "vocab__json": json.dumps(bpe["model"]["vocab"]),
        "merges__txt": "#version: 0.2\n" + "\n".join(bpe["model"]["merges"]),
    }
    pickled = [copy(path.parent) for path in sorted(FIXTURES.glob("*/pytorch_adapter.bin"))]
    found = [
        Reader("native", 14, natives(models, folder / "native"), native, sign),
        Reader("adapterhub", 14, [copy(FIXTURES / name) for name in HUB], hub),
        Reader("peft", 10, [copy(FIXTURES / name) for name in PEFT], hub),
        Reader("pickle", 14, [*pickled, copy(FIXTURES.parent / "bert-v1")], torch),
        Reader("shards", 8, [shards, copy(FIXTURES / "model")], weights),
        Reader("encoder", 3, [shards, copy(FIXTURES / "model")], encoder),
        Reader(
            "sentencepiece",
            8,
            [write(sentencepiece__bpe__model=piece)],
            tokenizer(lambda target: tf_adapters.SentencePiece.from_directory(target, layout="xlm-roberta")),
        ),
        Reader(
            "wordpiece",
            5,
            [
                write(vocab__txt=vocabulary, tokenizer_config__json=lowering),
                write(tokenizer__json=json.dumps(wordpiece)),
            ],
            tokenizer(tf_adapters.WordPiece.from_directory),
        ),
        Reader(
            "bpe",
            5,
            [write(tokenizer__json=json.dumps(bpe)), write(**bpe_files, tokenizer_config__json=classes)],
            tokenizer(tf_adapters.ByteLevelBpe.from_directory),
        ),
        Reader("csv", 4, [write(rows__csv=table)], data("classification", "rows.csv")),
        Reader(
            "tsv",
            4,
            [write(rows__tsv='text\tlabel\nthe film was good\tgood\na "b\tbad\nc\tgood\n')],
            data("classification", "rows.tsv"),
        ),
        Reader("jsonl", 4, [write(rows__jsonl=lines)], data("classification", "rows.jsonl")),
        Reader(
            "gzip",
            2,
            [write(rows__csv__gz=gzip.compress(b"text,label\na,0.5\nb,2\n", mtime=0))],
            data("regression", "rows.csv.gz"),
        ),
        Reader("conllu", 4, [write(rows__conllu=words)], data("token-classification", "rows.conllu")),
        Reader("squad", 4, [write(rows__json=squad)], data("question-answering", "rows.json")),
    ]
    return {reader.name: reader for reader in found}


def make_case(seed, number, kinds, target):
    """Write the files of a case; the name of its kind, and the generator for what else is random in it."""
    chooser = random.Random(f"{seed} {number}")
    reader = chooser.choices(list(kinds.values()), [kind.weight for kind in kinds.values()])[0]
    chooser.choice(reader.bases)(target)
    files = sorted(
        path for path in target.rglob("*") if path.is_file() and path.suffix != ".npz" and path.name != "README.md"
    )
    others = [path.read_bytes() for path in files]
    for _ in range(chooser.choice([1, 1, 1, 1, 2, 3])):
        change_file(chooser, chooser.choice(files), others)
    if reader.before is not None:
        reader.before(chooser, target)
    return reader.name, chooser


def snapshot(folder):
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def try_case(reader, target, chooser, watch):
    """What came of a case: `(outcome, detail)`; the outcome is "loaded", "refused" or a kind of failure."""
    from tf_adapters.errors import InputError

    before, memory = snapshot(target.parent), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome, detail = "loaded", ""
    watch.found, watch.on = [], True
    try:
        reader.read(target, chooser)
    except InputError as error:
        outcome, detail = "refused", str(error)
        if len(detail) > MOST_MESSAGE or "\n" in detail:
            outcome, detail = "message", f"{len(detail)} characters: {detail[:300]!r}"
    except Failure as failure:
        outcome, _, detail = str(failure).partition(": ")
    except MemoryError:
        outcome, detail = "memory", traceback.format_exc()[-1500:]
    except BaseException as error:
        outcome, detail = f"exception {type(error).__name__}", traceback.format_exc()[-1500:]
    finally:
        watch.on = False
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024
    if watch.found or snapshot(target.parent) != before:
        outcome, detail = "outside", "; ".join(watch.found) or "the folder is another one"
    elif grown > MOST_MEMORY and outcome in ("loaded", "refused"):
        outcome, detail = "memory", f"{grown / 2**20:,.0f} MiB"
    return outcome, detail


def warm_up(kinds, folder, watch):
    """Read a whole folder of each kind, which must load: imports and caches belong to no case."""
    for reader in kinds.values():
        for number, base in enumerate(reader.bases):
            target = folder / "whole" / reader.name / str(number)
            base(target)
            outcome, detail = try_case(reader, target, random.Random(0), watch)
            watch.found = []
            if outcome not in ("loaded", "outside"):
                raise RuntimeError(f"A whole folder of {reader.name} is {outcome}: {detail}")
    shutil.rmtree(folder / "whole")


def main():
    folder = pathlib.Path(sys.argv[1])
    # Libraries may print; the answers have a channel of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    watch = Watch()
    kinds = readers(folder)
    warm_up(kinds, folder, watch)
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30, -1))
    print(json.dumps({"kinds": list(kinds)}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        target = folder / "case" / "given"
        shutil.rmtree(target.parent, ignore_errors=True)
        if "files" in request:
            copy(request["files"])(target)
            kind, chooser = request["kind"], random.Random(request["number"])
        else:
            kind, chooser = make_case(request["seed"], request["number"], kinds, target)
        choice = chooser.randrange(2**32)
        print(json.dumps({"kind": kind, "choice": request.get("choice", choice)}), file=answers, flush=True)
        started = time.perf_counter()
        outcome, detail = try_case(kinds[kind], target, random.Random(request.get("choice", choice)), watch)
        seconds = time.perf_counter() - started
        print(json.dumps({"outcome": outcome, "detail": detail, "seconds": seconds}), file=answers, flush=True)
