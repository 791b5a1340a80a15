"""pretraining.py, with runs that are made up and a small one that runs."""

import json

import pytest

from benchmarks import tables
from benchmarks.studies import pretraining, study, training_runs
from tests.benchmarks.support import run_script, step_result

PERPLEXITIES = {"before": {"perplexity": 40.2}, "after": {"perplexity": 12.6}, "train_texts": 9, "held_out_texts": 3}


def test_summary_of_pretraining_by_hand():
    def run(method, seed, primary, task="tae/scierc"):
        return {
            "settings": {"task": task},
            "method": method,
            "seed": seed,
            "primary": primary,
            "metric": "macro_f1",
            "constant": 0.25,
            "train_rows": 1000,
            "reported_rows": 5,
        }

    # Of the first seed alone there are two, of which the newer counts; the third seed has no pair.
    runs = [
        run("alone", 0, 0.1),
        {"settings": {"task": "tae/scierc"}, "method": "pretraining", "seed": 0},
        run("alone", 0, 0.5),
    ]
    runs += [run("alone", 1, 0.6), run("alone", 2, 0.9), run("pretrained", 1, 0.8), run("pretrained", 0, 0.6)]
    runs.append(run("alone", 0, 0.3, "another task"))
    summary = pretraining.summarise(runs, {"tae/scierc": PERPLEXITIES})
    row = summary["tae/scierc"]
    assert list(summary) == ["tae/scierc"] and row["seeds"] == [0, 1] and row["alone"]["values"] == [0.5, 0.6]
    # Differences 0.1 and 0.2: mean 0.15, standard error 0.05; t(0.975, 1) = 12.7062.
    assert row["pretrained - alone"]["interval"] == pytest.approx(
        [0.15 - 0.05 * 12.7062, 0.15 + 0.05 * 12.7062], abs=1e-5
    )
    about = {name: step_result()[name] for name in ("date", "machine", "git")}
    settings = {"model": "minilm", "rows": 2000, "steps": 1500, "fit_head_steps": 500, "epochs": 3}
    result = {"kind": "pretraining", "file": "a.json", "versions": {"tensorflow": "2.21.0"}, **about, "seeds": [0, 1]}
    result |= {"settings": settings, "tasks": summary}
    text = tables.make_tables([result])
    assert (
        "| tae/scierc | macro f1 | 1,000 | 40, 13 | 25.0 | 55.0 ± 7.1 | 70.0 ± 14.1 | +15.0 (-48.5 to +78.5) |" in text
    )
    assert (
        "1,500 steps of masked words, after 500 that fitted a new head" in text and "then 3 epochs, seeds 0, 1;" in text
    )
    one = pretraining.summarise([run("alone", 0, 0.5), run("pretrained", 0, 0.6)], {"tae/scierc": PERPLEXITIES})
    assert "| 50.0 | 60.0 | +10.0 |" in tables.make_tables([{**result, "tasks": one}])


def write_citations(folder, rows):
    """Sentences of the tiny encoder's words in the layout of the task adaptation datasets."""
    (folder / "citation_intent").mkdir(parents=True)
    lines = [
        json.dumps({"text": f"the {'good' if i % 2 else 'bad'} film", "label": "Uses" if i % 2 else "Future"})
        for i in range(rows)
    ]
    for name, count in (("train", rows), ("dev", 8), ("test", 8)):
        (folder / "citation_intent" / f"{name}.jsonl").write_text("\n".join(lines[:count]) + "\n")


def test_a_killed_study_of_pretraining_repeats_neither_the_pretraining_nor_a_run(tmp_path, monkeypatch):
    write_citations(tmp_path / "data", 20)
    calls = []

    def pretrain(task, settings, options, folder):
        calls.append("pretraining")
        folder.mkdir(parents=True)
        (folder / "tf_adapters.json").write_text("{}")
        return {**PERPLEXITIES, "seconds": 1.0}

    def make_run(settings, model):
        def run(data, reported, method, seed, *, pretrained, **others):
            # Behind the task's name is a digest of the settings.
            calls.append((seed, len(data.train), None if pretrained is None else pretrained.name.rpartition("-")[0]))
            if len(calls) == 4:
                raise KeyboardInterrupt
            return {"scores": {"reported": {"macro_f1": 0.5, "accuracy": 0.75}}, "validation_best": 0.5}

        return run

    monkeypatch.setattr(pretraining, "_pretrain", pretrain)
    monkeypatch.setattr(study, "make_run", make_run)
    options = pretraining.parse(
        ["--data-dir", str(tmp_path / "data"), "--work", str(tmp_path / "work"), "--seeds", "0", "1"]
    )
    options.tasks = ["tae/acl-arc"]
    settings = {"model": "minilm", "rows": 12, "validation_rows": 4, "bottleneck": 4, "max_length": 16}

    def conduct(**changes):
        return pretraining.conduct({**settings, **changes}, options, training_runs.Runs(tmp_path / "results"))[
            "tae/acl-arc"
        ]

    with pytest.raises(KeyboardInterrupt):
        conduct()
    with open(tmp_path / "results" / "runs.jsonl", "a") as file:
        file.write('{"half a li')
    assert conduct() == PERPLEXITIES
    everything = ["pretraining", (0, 12, None), (0, 12, "tae-acl-arc"), (1, 12, None), (1, 12, "tae-acl-arc")]
    assert calls == [*everything[:4], *everything[3:]]
    runs = training_runs.Runs(tmp_path / "results").runs
    assert [run["method"] for run in runs] == ["pretraining", "alone", "pretrained", "alone", "pretrained"]
    # The most frequent of two labels that are equally frequent: F1 of 2/3, and of 0.
    assert runs[1]["primary"] == 0.5 and runs[1]["constant"] == pytest.approx(1 / 3) and runs[1]["reported_rows"] == 8
    calls.clear()
    assert conduct() == PERPLEXITIES and not calls
    (folder,) = (tmp_path / "work" / "minilm").iterdir()
    (folder / "tf_adapters.json").unlink()
    folder.rmdir()
    conduct()
    assert calls == ["pretraining"]
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        conduct(steps=9)  # other settings begin anew
    assert calls[0] == "pretraining" and len(list((tmp_path / "work" / "minilm").iterdir())) == 2


@pytest.mark.nightly
def test_pretraining_for_five_steps_makes_a_table_and_goes_on_with_nothing_left(checkpoint, tmp_path):
    write_citations(tmp_path / "data", 40)
    small = {
        "steps": 5,
        "fit-head-steps": 2,
        "rows": 16,
        "validation-rows": 8,
        "epochs": 1,
        "bottleneck": 4,
        "max-length": 16,
        "seeds": 0,
    }
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    folders = {"data-dir": "data", "work": "work", "output": "results/a"}
    options += [word for name, value in folders.items() for word in (f"--{name}", str(tmp_path / value))]
    for _ in range(2):
        done = run_script("pretraining.py", "--model", str(checkpoint), "--tasks", "tae/acl-arc", *options)
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "results" / "a" / "runs.jsonl").read_text().splitlines()) == 3
    (result,) = tables.read_results(tmp_path / "results")
    assert result["tasks"]["tae/acl-arc"]["pretraining"][
        "train_texts"
    ] == 40 and "| tae/acl-arc | " in tables.make_tables([result])
