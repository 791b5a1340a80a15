"""What `tf-adapters pretrain` shows."""

import csv
import importlib.util

from tf_adapters.cli.plots import draw_perplexity
from tf_adapters.cli.progress import TrainingProgress
from tf_adapters.cli.report import show_numbers
from tf_adapters.saving.settings import directory_size, read_settings
from tf_adapters.training.disk import LOG_FILE

PLOT_FILE = "perplexity.png"


class PeriodProgress(TrainingProgress):
    """Shows a run that is measured every so many steps; `period` may be None where that is once."""

    def __init__(self, console, period, description):
        super().__init__(console, None, description)
        self.period = period

    def epoch(self, epoch, numbers, best):
        step = self.steps if self.period is None else epoch * self.period
        self.console.print(
            f"{self.description}: step {step}/{self.steps}  training loss {numbers['loss']:.4f}  held-out perplexity "
            f"{numbers['perplexity']:.2f}  accuracy {numbers['accuracy']:.4f}" + ("  best so far" if best else "")
        )
        self.trains_on()


def show_pretraining(console, model, output, result, seconds):
    """Print and draw how perplexity fell."""
    from tf_adapters.models.state import state_of

    with open(output / LOG_FILE, newline="", encoding="utf-8") as file:
        log = [(int(row["step"]), float(row["validation_perplexity"])) for row in csv.DictReader(file)]
    before = result.head and result.head["perplexity"]
    drawn = importlib.util.find_spec("matplotlib") is not None
    if drawn:
        draw_perplexity(log, before, output / PLOT_FILE)
    parameters, numbers = read_settings(output)["parameters"], result.run.metrics
    rows = {} if before is None else {"held-out perplexity before, with the fitted head": f"{before:.2f}"}
    rows |= {
        "held-out perplexity": f"{numbers['perplexity']:.2f}",
        "hidden words guessed": f"{numbers['accuracy']:.2%}",
        "best step": f"{log[result.run.best_epoch - 1][0]:,} of {log[-1][0]:,}",
        "trained": f"{parameters['trained']:,} of {parameters['total']:,} parameters",
        "saved": f"{output} ({directory_size(output) / 1e6:.2f} MB), and {len(log)} checkpoints step-N",
        "plot": str(output / PLOT_FILE) if drawn else "none: `pip install matplotlib` for one",
        "time": f"{seconds:.0f} s",
    }
    show_numbers(console, "Pretraining: result", rows)
    if not state_of(model).pretrained_head:
        console.print(
            "The head of masked words was fitted here, on these texts: perplexities compare within this run, not with "
            "published ones."
        )
