"""XNLI (Conneau et al. 2018): entailment in fifteen languages, and in Burmese.

A model is trained in English, on MNLI, and read in the other languages. The classes are those of
glue/mnli in its order, so that an adapter trained on it can be evaluated on `xnli/sw`.

Two published layouts are read: xnli.dev.tsv and xnli.test.tsv of XNLI 1.0, which hold all
languages, and one file a language (`sw.genre.dev.tsv`, columns `sentence1_sw` and so on).
"""

import dataclasses
import os

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.about import About
from tf_adapters.tasks.published_files import Layout, collect, read_records
from tf_adapters.tasks.rows import Splits

LABELS = ("entailment", "neutral", "contradiction")
LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "my", "ru", "sw", "th", "tr", "ur", "vi", "zh")
ORIGIN = "XNLI-1.0.zip (validation, test) and XNLI-MT-1.0.zip (training) of https://cims.nyu.edu/~sbowman/xnli/."
# Files in which each language was read here.
_READ_HERE = {"en", "my", "sw", "ur"}
_SPELLINGS = {"contradictory": "contradiction"}  # in the translated training files


@dataclasses.dataclass(frozen=True)
class XnliTask:
    """XNLI in one language; call `load`.

    Attributes:
        language: two letters.
    """

    language: str

    @property
    def name(self):
        """str, as on the command line."""
        return f"xnli/{self.language}"

    @property
    def about(self):
        """`About`, for the list of tasks."""
        return About("classification", "accuracy", ORIGIN, self.language in _READ_HERE)

    def load(self, splits, *, data_dir=None):
        """The named splits.

        Args:
            splits: names among train, validation, test.
            data_dir: folder with the files, itself or in XNLI-1.0/, XNLI-MT-1.0/multinli/ or xnli/.
                English is trained on MNLI/train.tsv where there is no multinli.train.en.tsv.

        Returns: `Splits`, without the splits whose file is not there.

        Raises: InputError, naming folder, files and where to get them, if none is there.
        """
        if data_dir is None:
            raise InputError(
                f"Task {self.name!r} is read from files: give their folder as {{data_dir}}. Origin: {ORIGIN}",
                data_dir=NAME,
            )
        places = {split: self.places(split) for split in ("train", "validation", "test")}
        found = {split: _first(places[split], data_dir) for split in places}
        if not any(found.values()):
            names = ", ".join(path for split in places for path, _ in places[split])
            raise InputError(f"Task {self.name!r}: {data_dir} holds none of {names}. Origin: {ORIGIN}")
        rows, skipped = {}, []
        for split in splits:
            if found.get(split):
                rows[split] = self._read(*found[split], skipped)
        used = "; ".join(f"{split}: {os.path.basename(found[split][0])}" for split in rows)
        missing = ", ".join(split for split in splits if split in found and not found[split])
        return Splits(
            kind="classification",
            labels=LABELS,
            metric="accuracy",
            rows=rows,
            source=f"XNLI, {self.language}: {used or 'nothing'}."
            + (f" {len(skipped)} malformed rows are left out." if skipped else "")
            + (f" No file was found for {missing}." if missing else "")
            + f" Origin: {ORIGIN}",
        )

    def places(self, split):
        """Pairs of a path below `data_dir` and its `Layout`, in the order in which they are tried."""
        if split == "train":
            file = f"multinli.train.{self.language}.tsv"
            translated = Layout("tsv", text="premise", text_pair="hypo", label="label", skip_malformed=True)
            places = [(f"{folder}{file}", translated) for folder in ("XNLI-MT-1.0/multinli/", "multinli/", "")]
            if self.language == "en":
                original = Layout("tsv", text="sentence1", text_pair="sentence2", label="gold_label")
                places += [(f"{folder}MNLI/train.tsv", original) for folder in ("", "glue/")]
            return places
        part = {"validation": "dev", "test": "test"}[split]
        both = Layout(
            "tsv", text="sentence1", text_pair="sentence2", label="gold_label", where=("language", self.language)
        )
        one = Layout("tsv", text=f"sentence1_{self.language}", text_pair=f"sentence2_{self.language}", label="label")
        # English stands beside each language in the Burmese files alone.
        file = f"{'my' if self.language == 'en' else self.language}.genre.{part}.tsv"
        return [(f"{folder}xnli.{part}.tsv", both) for folder in ("XNLI-1.0/", "", "xnli/")] + [
            (f"{folder}{file}", one) for folder in ("", "xnli/")
        ]

    def _read(self, path, layout, skipped):
        number = {name: i for i, name in enumerate(LABELS)}

        def number_of(record):
            label = record.label.strip()
            value = number.get(_SPELLINGS.get(label, label))
            if value is None:
                record.fail(f"the label {label!r} is none of {', '.join(LABELS)}.")
            return value

        return collect(read_records(path, layout, skipped=skipped), number_of, path=path)


def _first(places, data_dir):
    """The first path that is there, and its layout; None if there is none."""
    for place, layout in places:
        path = os.path.join(os.fspath(data_dir), place)
        if os.path.isfile(path):
            return path, layout
    return None


XNLI = tuple(XnliTask(language) for language in LANGUAGES)
