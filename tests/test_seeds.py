"""The results of several seeds."""

from tf_adapters.training.disk import SeedRuns


def test_the_best_seed_is_the_first_one_with_the_best_validation_whatever_its_test(tmp_path, monkeypatch):
    runs = SeedRuns(tmp_path, metric="accuracy", settings={}, resume=False)
    for seed, validation, test in ((4, 0.7, 0.9), (5, 0.8, 0.6), (6, 0.8, 0.7)):
        runs.add(seed, best_epoch=1, seconds=1.0, validation=validation, test=test)
    assert runs.best()["seed"] == 5
    (tmp_path / ".seed-5" / "tensorboard").mkdir(parents=True)
    (tmp_path / ".seed-5" / "tensorboard" / "events").write_text("5")
    (tmp_path / ".seed-5" / "log.csv").write_text("epoch\n1\n")
    monkeypatch.setattr("tf_adapters.saving.directory.copy_adapter", lambda *_, **__: None)
    runs.finish()
    assert (tmp_path / "tensorboard" / "events").read_text() == "5" and not (tmp_path / ".seed-5").exists()
    SeedRuns(tmp_path, metric="accuracy", settings={}, resume=False)
    assert not (tmp_path / "tensorboard").exists()
