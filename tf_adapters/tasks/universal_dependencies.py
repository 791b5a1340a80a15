"""Parts of speech from Universal Dependencies (Nivre et al., 2020): `ud/TREEBANK`, with the treebank's own splits.

The labels are always the 17 universal tags, whichever of them a treebank has, so that a model
that was trained on one language is scored on another (zero-shot, He et al., 2021, section 4).
"""

import dataclasses
import pathlib
import re

from tf_adapters.errors import InputError
from tf_adapters.tasks.about import About
from tf_adapters.tasks.rows import Splits
from tf_adapters.tasks.words import read_words

UPOS = tuple("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())
_FILES = {"train": "train", "validation": "dev", "test": "test"}
_MOST_LISTED = 40


@dataclasses.dataclass(frozen=True)
class Treebank:
    """One treebank; call `load` for its splits.

    Its files are looked for in `data_dir`, in the folders there, and likewise in `data_dir/ud`:
    under the published names (`UD_English-EWT/en_ewt-ud-train.conllu`) or as
    `en_ewt/train.conllu`. A small treebank has only a test split, which is enough to be
    evaluated on.

    Attributes:
        code: str, as in the names of its files ("en_ewt").
        run_on_real_rows: as in `About`.
    """

    code: str
    run_on_real_rows: bool = False

    @property
    def name(self):
        return f"ud/{self.code}"

    @property
    def about(self):
        """`About`, for the list of tasks."""
        origin = f"{self.code}-ud-train.conllu, -dev and -test, from universaldependencies.org."
        return About("token-classification", "token-accuracy", origin, self.run_on_real_rows)

    def load(self, splits, *, data_dir=None):
        """The named splits.

        Args:
            splits: names among train, validation, test; one that the treebank does not have is left out.
            data_dir: folder of treebanks; the default is the current one.

        Returns: `Splits`.

        Raises: InputError, if no file of the treebank is there, with the treebanks that are; or if
            its words were left out for reasons of copyright.
        """
        folder = pathlib.Path(data_dir or ".")
        files = _files(folder).get(self.code)
        if files is None:
            raise InputError(self._missing(folder))
        rows = {}
        for split in splits:
            if split in files:
                rows[split], _ = read_words(files[split], labels=UPOS, format="conllu")
                self._check_words(rows[split], files[split])
        return Splits(
            kind="token-classification",
            labels=UPOS,
            metric="token-accuracy",
            rows=rows,
            source=f"Universal Dependencies treebank {self.code}, its own splits: forms and universal tags (UPOS).",
        )

    def _missing(self, folder):
        if re.fullmatch(r"[a-z]{2,4}_[a-z0-9]+", self.code):
            problem = (
                f"Task {self.name!r} has no files in {folder}: looked there, in its folders and in ud/ for "
                f"{self.code}-ud-train.conllu and {self.code}/train.conllu (also dev and test). Get {self.about.origin}"
            )
        else:
            problem = f"Task {self.name!r} names no treebank: give the code in its files' names, such as ud/en_ewt."
        names = find_treebanks(folder)
        more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
        return f"{problem} Treebanks in {folder}: {', '.join(names[:_MOST_LISTED]) or 'none'}{more}."

    def _check_words(self, rows, path):
        if set(rows.words.flat_values.numpy()) == {b"_"}:
            raise InputError(
                f"{path}: every word is '_', because {self.code} is published without its text: put the text in as the "
                "treebank's README says."
            )


TREEBANKS = tuple(Treebank(code, run_on_real_rows=True) for code in ("en_ewt", "fr_sequoia", "tr_imst"))


def find_treebanks(data_dir):
    """Codes of the treebanks of which `data_dir` or its folder `ud` holds a file, in alphabetical order."""
    return sorted(_files(pathlib.Path(data_dir)))


def _files(data_dir):
    """Dict from a treebank's code to a dict from split to path."""
    found = {}
    for folder in (data_dir, data_dir / "ud"):
        for split, part in _FILES.items():
            ending = f"-ud-{part}.conllu"
            for path in sorted(folder.glob(f"*/{part}.conllu")):
                found.setdefault(path.parent.name, {}).setdefault(split, path)
            for path in sorted((*folder.glob(f"*{ending}"), *folder.glob(f"*/*{ending}"))):
                found.setdefault(path.name.removesuffix(ending), {}).setdefault(split, path)
    return found
