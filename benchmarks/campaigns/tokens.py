"""Whether KerasHub's preprocessors cut texts as this package's tokenizers do, which equal those of transformers.

All lines of all text files of a folder are compared, and what differs is told apart by what the line has in it.
"""

import pathlib
import re
import unicodedata

import numpy as np

from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, origin

_SUFFIXES = (".conllu", ".csv", ".json", ".jsonl", ".tsv", ".txt", "")
_LONGEST = 2000  # characters
_CONTRACTION = re.compile(r"[^\w]'(s|t|re|ve|m|ll|d)", re.IGNORECASE)


def parse(arguments=None):
    parser = make_parser(description=__doc__, smoke="500 lines")
    parser.add_argument("--lines", type=at_least_1, default=100_000, help="at most so many, drawn by the seed")
    parser.add_argument("--granite", help="directory of a RoBERTa with vocab.json; without it BERT alone")
    parser.add_argument("--seed", type=int, default=0)
    options = parse_arguments(parser, arguments, "tokens", lines=500)
    if options.data_dir is None:
        parser.error("give --data-dir, the folder whose texts are cut.")
    if not pathlib.Path(options.data_dir).is_dir():
        parser.error(f"--data-dir {options.data_dir} is no folder: give the one whose texts are cut.")
    return options


def read_lines(folder, number, seed):
    """Distinct lines of the text files below a folder, a list of str."""
    found = set()
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and path.suffix in _SUFFIXES:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found |= {line[:_LONGEST] for line in lines if line.strip()}
    if not found:
        raise SystemExit(f"{folder} has no text files ({', '.join(filter(None, _SUFFIXES))}): give another --data-dir.")
    found = sorted(found)
    chosen = np.random.default_rng(seed).choice(len(found), min(number, len(found)), replace=False)
    return [found[index] for index in sorted(chosen)]


def of_wordpiece(text):
    """What a line has in it that BERT's tokenizers may take differently."""
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cn") or letter == "\ufffd" for letter in text.strip()):
        return "control characters, U+FFFD"
    if unicodedata.normalize("NFKD", text) != unicodedata.normalize("NFD", text):
        return "characters with a compatible form, such as ½ and …"
    return "anything else"


def of_byte_bpe(text):
    """As `of_wordpiece`, of RoBERTa's."""
    if _CONTRACTION.search(text):
        return "'s and its like behind a space or a sign"
    if any(ord(letter) > 0x24F for letter in text):
        return "letters that are not Latin"
    return "anything else"


def compare(texts, ours, theirs, kind_of):
    """How many texts are cut differently, a dict by what they have in them."""
    found = {}
    for start in range(0, len(texts), 512):
        part = texts[start : start + 512]
        for text, one, other in zip(part, _ids(ours(part)), _ids(theirs(part))):
            if one != other:
                kind = kind_of(text)
                found[kind] = found.get(kind, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _ids(encoded):
    ids, mask = (
        np.asarray(next(encoded[name] for name in names if name in encoded))
        for names in (("input_ids", "token_ids"), ("attention_mask", "padding_mask"))
    )
    return [row[kept].tolist() for row, kept in zip(ids, mask.astype(bool))]


def run(options):
    """Compare; dict of the number of lines and, for each preprocessor, of `compare`."""
    import keras_hub
    import tensorflow as tf

    import tf_adapters

    texts, found = read_lines(options.data_dir, options.lines, options.seed), {}
    model = tf_adapters.load_backbone("minilm")
    ours = tf_adapters.load_tokenizer(model, max_length=128)
    vocabulary = (pathlib.Path(_directory(model)) / "vocab.txt").read_text(encoding="utf-8").splitlines()
    for strips in (False, True):
        cut = keras_hub.models.BertTokenizer(vocabulary, lowercase=True, strip_accents=strips)
        theirs = keras_hub.models.BertTextClassifierPreprocessor(cut, sequence_length=128)
        kind_of = of_wordpiece if strips else _accents
        found[f"BertTokenizer, strip_accents={strips}"] = compare(
            texts, lambda part: ours(tf.constant(part)), lambda part: theirs(tf.constant(part)), kind_of
        )
    if options.granite:
        model, folder = tf_adapters.load_backbone(options.granite), pathlib.Path(options.granite)
        ours = tf_adapters.load_tokenizer(model, max_length=128)
        cut = keras_hub.models.RobertaTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
        theirs = keras_hub.models.RobertaTextClassifierPreprocessor(cut, sequence_length=128)
        found["RobertaTokenizer"] = compare(
            texts, lambda part: ours(tf.constant(part)), lambda part: theirs(tf.constant(part)), of_byte_bpe
        )
    return {"lines": len(texts), "different": found}


def _accents(text):
    decomposed = unicodedata.normalize("NFD", text)
    return "accents" if any(unicodedata.category(letter) == "Mn" for letter in decomposed) else of_wordpiece(text)


def _directory(model):
    from tf_adapters.models.state import state_of

    return state_of(model).directory


def table(result):
    """Markdown of one result of tokens.py."""
    lines = [
        "**Lines that KerasHub's preprocessors cut differently from this package and transformers**",
        "",
        f"| of {result['lines']:,} lines | different | by what they have in them |",
        "|---|---|---|",
    ]
    for name, kinds in result["different"].items():
        told = "; ".join(f"{kind}: {number:,}" for kind, number in kinds.items())
        lines.append(f"| `{name}` | {sum(kinds.values()):,} | {told} |")
    return "\n".join([*lines, "", origin(result, "texts of all tasks")])


TABLE = Table(table, lambda result: (), in_notes)


def main():
    options = parse()
    finish("tokens", options, ("lines", "seed"), run(options), table)
