"""How small adapters must be at the start."""

import dataclasses
from typing import Tuple

from tf_adapters.ranges import Real
from tf_adapters.studies.comparison import Arm, Comparison
from tf_adapters.studies.figure import band, look
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class Init(Comparison):
    """Adapters that start at different standard deviations, from almost the identity to far from it.

    The rate is chosen for each standard deviation. Houlsby et al. find no difference below 1e-2, and a loss above it.
    """

    name = "init"
    figures = "Houlsby et al. 2019, figure 6 right"

    sigmas: Tuple[float, ...] = option(
        tuple(10.0**power for power in range(-7, 1)), "Standard deviations of the adapters' initial weights.", of=float,
        smoke=(1e-4, 1e-1), range=Real(above=0, such_as=1e-2), extends=True,
    )  # fmt: skip

    def arms(self):
        return {f"{sigma:g}": Arm(f"sigma {sigma:g}", adapter={"init_stddev": sigma}) for sigma in self.sigmas}

    def draw(self, summary, figure):
        panel = figure.subplots()
        for number, (task, about) in enumerate(summary["tasks"].items()):
            found = [(float(name), row) for name, row in about["arms"].items()]
            band(panel, *zip(*sorted(found, key=lambda pair: pair[0])), number, f"{task}, {about['metric']}")
            if about["constant"] is not None:
                panel.axhline(100 * about["constant"], color=look(number)["color"], linestyle=":", linewidth=1)
        panel.set_xscale("log")
        panel.set_xlabel("standard deviation of the initial weights")
        panel.set_ylabel("score, % (mean, standard error)")
        panel.legend()
