"""Studies of models that are trained: by the study itself, at the best rate of each arm, or before."""

import dataclasses

from tf_adapters.saving.atomic import remove_folder
from tf_adapters.studies.comparison import Comparison, identity_of
from tf_adapters.studies.numbers import is_failed, rank


@dataclasses.dataclass(frozen=True)
class OfTrained(Comparison):
    """Base of the studies that train arms on tasks and then look into the models, of the best epochs."""

    keeps_last = False

    def measure(self, lab):
        self.check_tasks()
        arms = self.arms()
        of_each = sum(len(points) + self.seeds - 1 for points in map(self.points, arms.values()))
        lab.expect(len(self.tasks) * (of_each + len(arms) * self.seeds))
        for seed in range(self.seeds):
            for task in self.tasks:
                for name, arm in arms.items():
                    self.run_arm(lab, task, name, arm, seed)
                    self._look_into(lab, task, name, arm, seed)

    def train(self, lab, task, arm, identity, **others):
        return super().train(lab, task, arm, identity, keep=True, **others)

    def _look_into(self, lab, task, name, arm, seed):
        identities = [identity_of(task, name, point, seed) for point in self.points(arm)]
        runs = {id(run): identity for identity in identities if (run := lab.find(identity)) is not None}
        best = next(iter(rank([lab.find(identity) for identity in runs.values()])), None)
        if best is not None and not is_failed(best):
            identity = runs[id(best)]

            def look():
                directory = lab.model_of(identity)
                if not directory.is_dir():  # values alone were brought here
                    self.train(lab, task, arm, identity)
                return self.look_into(lab, directory, *self.experiment(lab, task, arm, identity)[:2], identity)

            lab.value({**identity, "measured": self.name}, look)
        for identity in runs.values():
            remove_folder(lab.model_of(identity))

    def look_into(self, lab, directory, experiment, reported, identity):
        """What is found in a trained model; a dict for `Lab.value`.

        Args:
            directory: path of its adapter directory.
            experiment: `Experiment` that trained it.
            reported: labelled rows.
            identity: dict of its run.
        """
        raise NotImplementedError

    def looks(self, values):
        """What `look_into` found in the best run of each task, arm and seed, a list of values."""
        found = {
            (value["task"], value["arm"], value["seed"]): value for value in values if value["measured"] == self.name
        }
        return list(found.values())
