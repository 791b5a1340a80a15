"""The same training with several seeds: each result is kept, and the best adapter by validation."""

import json
import shutil

from tf_adapters.errors import NAME
from tf_adapters.json_input import read_json
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import replacing, write_text
from tf_adapters.saving.directory import copy_adapter
from tf_adapters.tasks.analysis import summary_of_seeds
from tf_adapters.training.layout import LOG_FILE, SEEDS_FILE
from tf_adapters.training.leftovers import discard_seeds
from tf_adapters.training.resume import refuse_other


class SeedRuns:
    """Results of the seeds that are done, in `output/seeds.json`, and the folders of the seeds.

    Each seed trains in a folder of its own below `output`, so that a run that was killed
    goes on with the seed at work; `finish` keeps the best one's adapter.

    Args:
        output: path of the adapter directory to be.
        metric: str, the number that is compared, such as "accuracy".
        settings: dict for JSON, what all seeds have in common.
        resume: bool, go on with what is there.

    Raises:
        InputError: what is there was made with other settings.
    """

    def __init__(self, output, *, metric, settings, resume):
        self.output = to_path(output)
        self.metric = metric
        self.settings = json.loads(json.dumps(settings))
        self.path = self.output / SEEDS_FILE
        self.runs = []
        if resume and self.path.exists():
            content = read_json(self.path, "start anew with {overwrite}", overwrite=NAME)
            refuse_other(self.output, "seeds of a run", content["settings"], self.settings)
            self.runs = content["runs"]
            return
        if not resume:
            discard_seeds(self.output)
        # Before the first seed's folder, which is a left-over without it.
        self._write()

    def folder(self, seed):
        """Where a seed trains."""
        return self.output / f".seed-{seed}"

    def done(self, seed):
        """Whether a seed has its result."""
        return any(run["seed"] == seed for run in self.runs)

    def add(self, seed, *, best_epoch, seconds, validation, test):
        """Keep the result of a seed; `validation` and `test` (or None) are values of the metric."""
        run = {"seed": seed, "best_epoch": best_epoch, "seconds": seconds, "validation": validation}
        self.runs.append(run if test is None else {**run, "test": test})
        self._write()

    def best(self):
        """The run with the best validation, of equal ones the first."""
        return max(self.runs, key=lambda run: run["validation"])

    def summary(self):
        """Dict from "validation" and "test" (if every run has it) to mean, sd, sem and n."""
        splits = [split for split in ("validation", "test") if all(split in run for run in self.runs)]
        return {split: summary_of_seeds([run[split] for run in self.runs]) for split in splits}

    def finish(self):
        """Make the best seed's adapter the directory's content, with all results; the other seeds' go."""
        content = {"metric": self.metric, "runs": self.runs, "summary": self.summary()}
        best = self.folder(self.best()["seed"])
        copy_adapter(best, self.output, seeds=content)
        with replacing(self.output / LOG_FILE) as temporary:
            shutil.copyfile(best / LOG_FILE, temporary)
        discard_seeds(self.output)

    def _write(self):
        write_text(self.path, json.dumps({"settings": self.settings, "runs": self.runs}, indent=1) + "\n")
