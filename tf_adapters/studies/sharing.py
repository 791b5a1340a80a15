"""The report's own question: how much may adapters share?"""

import dataclasses

from tf_adapters.studies.comparison import Arm, Comparison
from tf_adapters.studies.numbers import paired, score_of


@dataclasses.dataclass(frozen=True)
class Sharing(Comparison):
    """Adapters of each place, of each block and of three blocks beside full fine-tuning: scores and counts.

    The models are the report's: `unshared` trains the encoder's LayerNorms and has two classifier layers; in
    `per-layer` and `3-shared` LayerNorms are frozen. `houlsby` follows the study's recipe, that of Houlsby et al. 2019,
    whose adapters are not shared: all LayerNorms train, and there is one classifier.
    """

    name = "sharing"
    figures = "report, tables 1, 2 and 3"

    def arms(self):
        return {
            "full": Arm("full fine-tuning", trainable="full", adapter=None),
            "houlsby": Arm("Houlsby"),
            "unshared": Arm("unshared", recipe="report-unshared"),
            "per-layer": Arm("one per layer", recipe="report-per-layer"),
            "3-shared": Arm("3-shared", recipe="report-3-shared"),
        }

    def summarise(self, values):
        summary, best = super().summarise(values), self.best_runs(values)
        for task, about in summary["tasks"].items():
            full = {run["seed"]: run for run in best[task].get("full", ()) if run["scores"]}
            for name, row in about["arms"].items():
                pairs = [
                    (score_of(run), score_of(full[run["seed"]]))
                    for run in best[task][name]
                    if run["scores"] and run["seed"] in full
                ]
                row["minus_full"] = None if name == "full" or not pairs else paired(*zip(*pairs))
        return summary
