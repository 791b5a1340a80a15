"""What a run scores after its last epoch, before the best one is loaded, and what of the pooler trains."""

import math

from tf_adapters.training.run import Reporter


class LastEpoch(Reporter):
    """Scores rows after a run's last epoch, unless that is the best one, whose model `fit` returns.

    Args:
        reporter: `Reporter` that hears of the run, or None.
        score: function of nothing that gives the scores of the model as it is.

    Attributes:
        scores: what it gave, or None.
    """

    def __init__(self, reporter, score):
        self.reporter, self.score, self.scores = reporter or Reporter(), score, None
        self.steps = self.done = 0
        self.caching, self.note, self.finish = self.reporter.caching, self.reporter.note, self.reporter.finish

    def start(self, steps, done):
        self.steps = steps
        self.reporter.start(steps, done)

    def step(self, done, numbers):
        self.done = done
        self.reporter.step(done, numbers)

    def epoch(self, epoch, numbers, best):
        if self.done == self.steps and not best:
            self.scores = self.score()
        self.reporter.epoch(epoch, numbers, best)


def pooler_parameters(model):
    """How many parameters of the encoder's pooler train, an int."""
    from tf_adapters.models.state import state_of

    pooler = state_of(model).family.pooler(model)
    trains = {id(variable) for variable in model.trainable_variables}
    weights = pooler.weights if pooler is not None else ()
    return sum(math.prod(variable.shape) for variable in weights if id(variable) in trains)
