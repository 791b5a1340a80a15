"""The results of several seeds."""

from tf_adapters.training.disk import SeedRuns


def test_the_best_seed_is_the_first_one_with_the_best_validation_whatever_its_test(tmp_path):
    runs = SeedRuns(tmp_path, metric="accuracy", settings={}, resume=False)
    for seed, validation, test in ((4, 0.7, 0.9), (5, 0.8, 0.6), (6, 0.8, 0.7)):
        runs.add(seed, best_epoch=1, seconds=1.0, validation=validation, test=test)
    assert runs.best()["seed"] == 5
