"""What `mypy` checks: public names used as they are meant and, where a line ignores an error, as they are not."""

import pathlib

import tf_adapters


def trained(folder: pathlib.Path) -> float:
    task = tf_adapters.load_task("rotten-tomatoes", data_dir=folder)
    model = tf_adapters.load_backbone("minilm", labels=task.labels)
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=8), seed=0)
    counts = tf_adapters.parameter_counts(tf_adapters.set_trainable(model, "adapters"))
    settings = tf_adapters.TrainingSettings(epochs=1, learning_rate=1e-3)
    tf_adapters.Experiment("minilm", task, settings=settings).run_seeds(folder, 3)
    result = tf_adapters.fit(model, task, tf_adapters.load_tokenizer(model), folder / "film", settings)
    with tf_adapters.disable_adapters(model) as plain:
        tf_adapters.predict(plain, ["a film"])
    return result.metrics["accuracy"] * counts.trainable


def answered(folder: str) -> str:
    answers = tf_adapters.predict(folder, ["a film"], batch_size=8)
    model, settings = tf_adapters.load_trained(folder)
    bank = tf_adapters.AdapterBank(model).add("film", folder)
    written = tf_adapters.export_bank(bank, folder)
    return answers[0]["label"] + settings["backbone"]["source"] + written.name


def mistaken(folder: str) -> None:
    tf_adapters.load_backbone("minilm", heads=2)  # type: ignore[call-arg]
    tf_adapters.set_active("film")  # type: ignore[call-arg]
    tf_adapters.AdapterConfig(bottleneck_size="8")  # type: ignore[arg-type]
    tf_adapters.get_recipe(3)  # type: ignore[arg-type]
    tf_adapters.predict(folder, "a film", batch_size="8")  # type: ignore[arg-type]
    tf_adapters.nothing  # type: ignore[attr-defined]
