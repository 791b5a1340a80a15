"""What a score costs in parameters."""

import dataclasses
import functools
from typing import Tuple

from tf_adapters.ranges import Whole
from tf_adapters.studies.comparison import RATE, Arm, Comparison
from tf_adapters.studies.figure import band, look, panels
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class Size(Comparison):
    """Adapters of different sizes, the uppermost blocks, and LayerNorms alone: score against trained parameters.

    Top-N fine-tuning trains the N uppermost blocks and the head; with all blocks it is full fine-tuning but for the
    embeddings. Full fine-tuning is a line.
    """

    name = "size"
    figures = "Houlsby et al. 2019, figures 4 and 5; He et al. 2021, table 5"

    sizes: Tuple[int, ...] = option(
        tuple(2**power for power in range(10)), "Sizes of the adapters.", of=int, smoke=(2, 8), extends=True,
        range=Whole(most=2**16),
    )  # fmt: skip
    learning_rates: Tuple[float, ...] = option(
        (3e-5, 3e-4, 3e-3), "Rates that are tried of each size, and of LayerNorms.", of=float, smoke=(1e-3,),
        extends=True, range=RATE,
    )  # fmt: skip
    full_learning_rates: Tuple[float, ...] = option(
        (2e-5, 3e-5, 5e-5), "Rates that are tried of full and top-N fine-tuning.", of=float, smoke=(1e-4,),
        extends=True, range=RATE,
    )  # fmt: skip
    top: Tuple[int, ...] = option(
        (), "Numbers of uppermost blocks that train. Default: 1 to all of them.", of=int, smoke=(1,),
        extends=True, range=Whole(),
    )  # fmt: skip

    def arms(self):
        top = self.top or range(1, depth_of(self.model) + 1)
        return {
            **{
                f"adapters-{size}": Arm(f"adapters of {size}", adapter={"bottleneck_size": size}) for size in self.sizes
            },
            **{f"top-{count}": Arm(f"top {count}", trainable=f"top-{count}", adapter=None) for count in top},
            "layer-norm": Arm("LayerNorms", trainable="layer-norm", adapter=None, recipe="houlsby-2019-layer-norm"),
            "full": Arm("full fine-tuning", trainable="full", adapter=None),
        }

    def draw(self, summary, figure):
        tasks = summary["tasks"]
        for panel, (task, about) in zip(panels(figure, list(tasks), width=4.0), tasks.items()):
            for number, (label, start) in enumerate(
                (("adapters", "adapters-"), ("uppermost blocks", "top-"), ("LayerNorms", "layer-norm"))
            ):
                rows = [row for name, row in about["arms"].items() if name.startswith(start)]
                rows.sort(key=lambda row: row["trained_parameters"])
                band(panel, [row["trained_parameters"] for row in rows], rows, number, label)
            full = about["arms"].get("full")
            if full and full["mean"] is not None:
                panel.axhline(100 * full["mean"], color=look(6)["color"], linestyle="--", label="full fine-tuning")
            if about["constant"] is not None:
                panel.axhline(100 * about["constant"], color="0.5", linestyle=":", label="constant answer")
            panel.set_xscale("log")
            panel.set_xlabel("trained parameters")
            panel.set_ylabel(f"{about['metric']}, % (mean, standard error)")
            panel.legend()


@functools.lru_cache
def depth_of(model):
    """How many blocks a pretrained encoder has."""
    from tf_adapters.models.transformers.loading import find_files, read_config

    family, config = read_config(find_files(model, config_only=True))
    return family.depth(config)
