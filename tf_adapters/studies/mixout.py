"""Mixout beside adapters."""

import dataclasses

from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import Arm, Comparison
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class Mixout(Comparison):
    """Full fine-tuning and adapters, with dropout and with Mixout in its place, on few rows.

    Mixout leaves the head alone, which was not pretrained; with it there is no dropout, in the head neither. It mixes
    entry by entry, as in the code of Lee et al.; He et al. speak of neurons.
    """

    name = "mixout"
    figures = "He et al. 2021, table 7"
    paper = "he-2021"

    rows: int = option(1000, "Training rows, drawn by the seed.", smoke=32, range=Whole())
    rate: float = option(0.9, "Probability with which an entry is the initial one.", range=Real(above=0, below=1))
    seeds: int = option(5, "Trainings at the best rate, with the seeds from 0 on.", smoke=2, extends=True)

    def arms(self):
        mixed = {"mixout": self.rate, "dropout": 0.0}
        return {
            "full": Arm("full fine-tuning", trainable="full", adapter=None),
            "full-mixout": Arm("full fine-tuning, Mixout", trainable="full", adapter=None, settings=mixed),
            "adapters": Arm("adapters"),
            "adapters-mixout": Arm("adapters, Mixout", settings=mixed),
        }
