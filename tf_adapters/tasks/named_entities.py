"""Named entities: NCBI-disease (Dogan et al., 2014), CoNLL-2003 (Tjong Kim Sang and De Meulder, 2003), WikiANN
(Pan et al., 2017, in the splits of Rahimi et al., 2019), scored by the F1 of whole entities.

Each is read from column files as they are published. The labels are fixed, whichever of them a
file has, so that a model that was trained on one language of WikiANN is scored on another.
"""

import dataclasses
import pathlib
import re
from typing import Tuple

from tf_adapters.errors import InputError
from tf_adapters.tasks.about import About
from tf_adapters.tasks.rows import Splits
from tf_adapters.tasks.words import read_words

_SPLITS = ("train", "validation", "test")
_TEXT_FILES = ("train.txt", "dev.txt", "test.txt")


@dataclasses.dataclass(frozen=True)
class EntityTask:
    """One data set of entities; call `load` for its splits.

    Attributes:
        name: str, the task's name.
        entities: types of entities, from which the labels follow ("B-", "I-" and "O").
        folders: names under which its folder may lie in `data_dir` or in `data_dir/ner`.
        files: names of the files of train, validation and test, in order; several such
            triples, of which the first with a file is taken.
        origin, run_on_real_rows: as in `About`.
    """

    name: str
    entities: Tuple[str, ...]
    folders: Tuple[str, ...]
    files: Tuple[Tuple[str, str, str], ...]
    origin: str
    run_on_real_rows: bool = False

    @property
    def about(self):
        """`About`, for the list of tasks."""
        return About("token-classification", "entity-f1", self.origin, self.run_on_real_rows)

    @property
    def labels(self):
        """Label names in index order: a beginning and an inside of each entity, and what is outside."""
        return (*(f"{part}-{entity}" for part in "BI" for entity in sorted(self.entities)), "O")

    def load(self, splits, *, data_dir=None):
        """The named splits.

        Args:
            splits: names among train, validation, test; one that has no file is left out.
            data_dir: folder of the task's files, of its folder, or of a folder `ner` with it; the
                default is the current one.

        Returns: `Splits`.

        Raises: InputError, with what was looked for, if none of its files is there.
        """
        files = self._find(pathlib.Path(data_dir or "."))
        rows = {}
        for split, path in files.items():
            if split in splits:
                rows[split], _ = read_words(path, labels=self.labels, format="columns")
        return Splits(
            kind="token-classification",
            labels=self.labels,
            metric="entity-f1",
            rows=rows,
            source=f"{self.name} from {', '.join(path.name for path in files.values())}, the published splits.",
        )

    def _find(self, data_dir):
        # The folder itself comes last: `train.txt` may belong to any task.
        folders = [data_dir / "ner" / name for name in self.folders] + [data_dir / name for name in self.folders]
        for folder in (*folders, data_dir):
            for names in self.files:
                files = {split: folder / name for split, name in zip(_SPLITS, names) if (folder / name).is_file()}
                if files:
                    return files
        looked_for = " or ".join(", ".join(names) for names in self.files)
        raise InputError(
            f"Task {self.name!r} has no files in {data_dir}: looked there and in its folders "
            f"{', '.join(self.folders)}, also below ner/, for {looked_for}. Get {self.origin}"
        )


ENTITY_TASKS = (
    EntityTask(
        name="ner/ncbi-disease",
        entities=("Disease",),
        folders=("NCBI-disease", "ncbi-disease", "NCBI_disease"),
        files=(_TEXT_FILES, ("train.tsv", "devel.tsv", "test.tsv")),
        origin="train.txt, dev.txt and test.txt of data/ner/NCBI-disease in github.com/allenai/scibert.",
        run_on_real_rows=True,
    ),
    EntityTask(
        name="ner/conll2003",
        entities=("LOC", "MISC", "ORG", "PER"),
        folders=("conll2003", "CoNLL2003", "CoNLL-2003", "conll-2003"),
        files=(("eng.train", "eng.testa", "eng.testb"), ("train.txt", "valid.txt", "test.txt"), _TEXT_FILES),
        origin="eng.train, eng.testa and eng.testb of the CoNLL-2003 shared task; the texts are Reuters', under a "
        "licence.",
    ),
)


def wikiann(language):
    """WikiANN in one language, whose folder has the name of its code.

    Args:
        language: str, its code there, such as "en" or "zh-min-nan".

    Returns: `EntityTask`.

    Raises: InputError, if the code cannot be one.
    """
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", language):
        raise InputError(f"Task 'ner/wikiann-{language}' names no language: give its code, such as ner/wikiann-en.")
    return EntityTask(
        name=f"ner/wikiann-{language}",
        entities=("LOC", "ORG", "PER"),
        folders=(f"wikiann/{language}", f"wikiann-{language}", f"panx/{language}", language),
        files=(("train", "dev", "test"), _TEXT_FILES, ("train.txt", "valid.txt", "test.txt")),
        origin=f"folder {language} of WikiANN as split by Rahimi et al. 2019, github.com/afshinrahimi/mmner.",
    )
