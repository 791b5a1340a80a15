"""The papers' analyses, each a command and a class: `tf-adapters study NAME`, or `run(Ablation(...), "studies/cola")`.

A new study is a class and its name here.
"""

from tf_adapters._installation import submodules_of
from tf_adapters.errors import InputError
from tf_adapters.studies.ablation import Ablation
from tf_adapters.studies.attack import Attack
from tf_adapters.studies.comparisons import Curves, Init, LowResource, Mixout, Sharing, Size, Stability, TradeOff
from tf_adapters.studies.inside import Gradients, Landscape, Similarity
from tf_adapters.studies.lab import run
from tf_adapters.studies.transfer import CrossLingual, Pretraining

STUDIES = {
    study.name: study
    for study in (
        *(Ablation, Init, Size, TradeOff, Sharing, Similarity, Landscape, Curves, Stability, Gradients, LowResource),
        *(Pretraining, CrossLingual, Mixout, Attack),
    )
}

__all__ = ["STUDIES", "get_study", "run", *(study.__name__ for study in STUDIES.values())]
__getattr__ = submodules_of(__name__)


def get_study(name):
    """The class of a study by its name; raises InputError with the known ones otherwise."""
    if name not in STUDIES:
        raise InputError(f"{{study}} is unknown: the studies are {', '.join(STUDIES)}.", study=name)
    return STUDIES[name]
