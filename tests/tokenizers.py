"""Small tokenizers of every kind in directories of their own, each made once, and HuggingFace's like."""

import functools
import io
import json
import pathlib
import random
import tempfile

import pytest

from tests.conftest import VOCABULARY, WORDS
from tf_adapters.text import ByteLevelBpe, SentencePiece, WordPiece
from tf_adapters.text.sentencepiece import LAYOUTS

SENTENCEPIECE = {"xlm-roberta": "XLMRoberta", "camembert": "Camembert", "albert": "Albert", "deberta-v2": "DebertaV2"}
# Of the encoder's family: HuggingFace's class.
CLASSES = {"bert": "Bert", "mpnet": "MPNet", "roberta": "Roberta", **SENTENCEPIECE}
FOREIGN = [
    "\u00e9t\u00e9", "stra\u00dfe", "\u043a\u0438\u043d\u043e", "\u4e2d\u6587",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\u1006\u1025\u102e\u1038", "\uc601\ud654", "1,000", "9,9",
    "\u03bf\u03b4\u03cc\u03c2 \u03c3\u03ac\u03c2", "'s", "(a)",
]  # fmt: skip
# How each family's SentencePiece model is trained: its own special pieces.
_TRAINING = {
    "xlm-roberta": {},
    "albert": dict(
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP]",
        user_defined_symbols='(,),"""",-,[MASK]',
    ),
    "deberta-v2": dict(
        pad_id=0, bos_id=1, eos_id=2, unk_id=3,
        pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]",
    ),
}  # fmt: skip


@functools.cache
def sentencepiece_model(family):
    """The content of a model's file."""
    if family == "camembert":
        return sentencepiece_model("xlm-roberta")
    sentencepiece = pytest.importorskip("sentencepiece")
    chooser, written = random.Random(0), io.BytesIO()
    words = [*WORDS, *map(str.capitalize, WORDS), *3 * FOREIGN]
    lines = (" ".join(chooser.choices(words, k=9)) + chooser.choice([".", "!", ", 1,000, 9, 9,"]) for _ in range(600))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=written, vocab_size=240, hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc", minloglevel=2, **_TRAINING[family],
    )  # fmt: skip
    return written.getvalue()


def _write_bpe(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special, alphabet = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    texts = ["it's a dull plot, aaaa bad", "\u00e9t\u00e9 \u4e2d\u6587 the story"]
    tokenizer.train_from_iterator([*["the film was good and the cast is great"] * 9, *texts * 9], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))


@functools.cache
def directory(family):
    """A directory with the files of a family's tokenizer; not to be changed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=family))
    if family in LAYOUTS:
        (folder / LAYOUTS[family].file).write_bytes(sentencepiece_model(family))
    elif family == "roberta":
        _write_bpe(folder)
    else:
        special = {"bert": VOCABULARY[:5], "mpnet": ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]}[family]
        (folder / "vocab.txt").write_text("\n".join([*special, *VOCABULARY[5:]]) + "\n", "utf-8")
    return folder


def from_directory(family, folder):
    if family in LAYOUTS:
        return SentencePiece.from_directory(folder, layout=family)
    if family == "roberta":
        return ByteLevelBpe.from_directory(folder)
    return WordPiece.from_directory(folder, style=family)


@functools.cache
def ours(family):
    return from_directory(family, directory(family))


@functools.cache
def theirs(family, fast=True):
    """HuggingFace's fast tokenizer, or its Python one."""
    transformers = pytest.importorskip("transformers")
    folder, kind = directory(family), getattr(transformers, f"{CLASSES[family]}Tokenizer{'Fast' if fast else ''}")
    if family == "roberta":
        return kind.from_pretrained(folder)
    return kind(str(folder / (LAYOUTS[family].file if family in LAYOUTS else "vocab.txt")))


def content_of(folder):
    return json.loads((folder / "tokenizer.json").read_text("utf-8"))
