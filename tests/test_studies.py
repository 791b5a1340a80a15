"""The papers' studies: that each runs, resumes and refuses, and that its arithmetic is right."""

import csv
import dataclasses
import functools
import json
import os
import re
import signal
import types
import warnings

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from tests.conftest import write_checkpoint, write_csv
from tf_adapters import AdapterConfig, InputError, add_adapters, load_backbone, load_tokenizer, pipeline
from tf_adapters._keras import keras
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import set_trainable
from tf_adapters.ranges import RANGES, choices_of
from tf_adapters.recipes import RECIPES
from tf_adapters.saving.directory import load_trained
from tf_adapters.studies import STUDIES, Ablation, Init, LowResource, Sharing, Stability, TradeOff, get_study, run
from tf_adapters.studies import attack as pwws
from tf_adapters.studies.ablation import VARIANTS
from tf_adapters.studies.attack import UNKNOWN, Text, attack, entities_of, entity_swaps, reading_unknown, synonyms
from tf_adapters.studies.baselines import block_means, train_baseline
from tf_adapters.studies.comparison import identity_of
from tf_adapters.studies.figure import finish, write_figure
from tf_adapters.studies.inside import batches_of, gradient_norms, groups_of, similarity, width
from tf_adapters.studies.lab import Lab, Stopped, read_values
from tf_adapters.studies.numbers import at_edge, at_floor, constant_loss, paired, rank, spread
from tf_adapters.studies.rows import by_language, held_out, load
from tf_adapters.studies.transfer import CrossLingual
from tf_adapters.tasks.own_files import rows_from_file, task_from_files
from tf_adapters.tasks.rows import Task
from tf_adapters.tasks.words import WordRows
from tf_adapters.text import ByteLevelBpe
from tf_adapters.text.byte_bpe import _byte_alphabet
from tf_adapters.training.experiment import Experiment
from tf_adapters.training.run import Run


@pytest.fixture(scope="module")
def task(sentences):
    """A folder with the files of a task."""
    return str(sentences)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "four-blocks"
    write_checkpoint(folder)
    return str(folder)


def small(study, task, model, **given):
    """A study on the tests' files, as small as its smoke."""
    return study.smoke(**{"tasks": (task,), "model": model, "validation_rows": 16, **given})


def made(study, arm, score, seed=0, task="a", **about):
    """A run of a study as `Lab.value` keeps it, with the accuracy `score`, or None of one that diverged."""
    return {
        **identity_of(task, arm, study.points(study.arms()[arm])[0], seed), "metric": "accuracy", "constant": 0.5,
        "reported_rows": 400, "train_rows": 9, "trained_parameters": 10, "validation": [{"accuracy": 0.5}],
        "scores": score and {"reported": {"accuracy": score}}, **about,
    }  # fmt: skip


def lemma(name, count):
    return types.SimpleNamespace(name=lambda: name, count=lambda: count)


class Thesaurus:
    """What of nltk's reader is used, with a few words."""

    SYNSETS = {
        "n": [[("film", 9), ("movie", 5), ("moving_picture", 0)], [("watch", 2), ("ticker", 0)]],
        "v": [[("watch", 30), ("view", 3)], [("film", 1), ("shoot", 4)]],
        "a": [[("good", 50), ("full", 1)], [("bad", 20), ("spoiled", 0)]],
    }

    def synsets(self, word, pos):
        base = self.morphy(word, pos)
        found = [synset for synset in self.SYNSETS.get(pos, ()) if base in dict(synset)]
        return [types.SimpleNamespace(lemmas=lambda s=s: [lemma(*pair) for pair in s]) for s in found]

    def morphy(self, word, pos):
        bases = [word, word.removesuffix("s"), word.removesuffix("ing")]
        names = {name for synset in self.SYNSETS.get(pos, ()) for name, _ in synset}
        return next((base for base in bases if base in names), None)


@pytest.mark.nightly
@pytest.mark.parametrize("name", STUDIES)
def test_each_study_runs_in_its_smoke_size(name, cli, task, model, tmp_path, monkeypatch):
    if name == "cross-lingual":
        # A made-up language: the rows of the task itself.
        data = load(task, None)
        split = type("Split", (), {"kind": data.kind, "labels": data.labels, "rows": data.validation})
        monkeypatch.setattr("tf_adapters.tasks.registry.load_split", lambda *given, **options: split)
    if name == "attack":
        pytest.importorskip("nltk")
        monkeypatch.setattr("tf_adapters.studies.attack.read_wordnet", lambda folder: Thesaurus())
    outcome = cli(
        *("study", name, "--smoke", "--fast", "--tasks", task, "--model", model, "--validation-rows", 16),
        *("--output", tmp_path / name),
    )
    assert outcome.status == 0, outcome.err
    for ending in ("png", "svg"):
        assert (tmp_path / name / f"{name}.{ending}").stat().st_size > 5000
    summary = json.loads((tmp_path / name / "summary.json").read_text())
    assert summary["study"] == name and summary["values"] == len(read_values(tmp_path / name)) > 0
    with open(tmp_path / name / "values.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == summary["values"]
    page = cli("study", "page", tmp_path)
    assert page.status == 0 and f'<h2 id="{name}">' in (tmp_path / "index.html").read_text()
    assert "1 study on" in page.out


@pytest.mark.slow
def test_a_study_goes_on_where_it_was_killed_and_takes_more_seeds(task, model, tmp_path, monkeypatch):
    study = small(Init, task, model, sigmas=(0.01,), seeds=1, learning_rates=(1e-3,))
    whole = run(study, tmp_path / "whole")
    measured = []
    real = Lab.train

    def train(self, identity, *arguments, **settings):
        measured.append(identity)
        return real(self, identity, *arguments, **settings)

    monkeypatch.setattr(Lab, "train", train)
    # A line that a killed writer left half is measured again.
    values = (tmp_path / "whole" / "values.jsonl").read_bytes()
    (tmp_path / "whole" / "values.jsonl").write_bytes(values[:-20])
    assert run(study, tmp_path / "whole", resume=True)["tasks"] == whole["tasks"] and len(measured) == 1
    more = small(Init, task, model, sigmas=(0.01,), seeds=2, learning_rates=(1e-3,))
    found = run(more, tmp_path / "whole", resume=True)
    assert len(measured) == 2 and measured[1]["seed"] == 1
    arm = found["tasks"][task]["arms"]["0.01"]
    assert arm["n"] == 2 and arm["values"][0] == whole["tasks"][task]["arms"]["0.01"]["values"][0]
    with pytest.raises(InputError, match="holds values with another epochs .1, now 3.: resume with the same"):
        run(small(Init, task, model, epochs=3), tmp_path / "whole", resume=True)
    monkeypatch.setattr(Task, "digests", lambda self: {"train": "others"})
    with pytest.raises(InputError, match="has other rows than those of the values in .*: give another output"):
        run(small(Init, task, model, sigmas=(0.01,), seeds=3, learning_rates=(1e-3,)), tmp_path / "whole", resume=True)
    with pytest.raises(InputError, match="holds values with another study .'init', now 'sharing'."):
        run(small(Sharing, task, model), tmp_path / "whole", resume=True)
    with pytest.raises(InputError, match="holds a study: go on with it by resume"):
        run(study, tmp_path / "whole")


@pytest.mark.slow
def test_ablation_takes_out_what_the_model_has_by_hand(cli, train_arguments, sentences, tmp_path):
    """Every span by `set_active`, against adapters whose up-projections are set to zero."""
    adapter_directory = tmp_path / "trained"
    arguments = [word for word in train_arguments if not word.startswith("--epochs")]
    given = ("--learning-rate=1e-2", "--epochs=12", "--init-stddev=0.3", f"--output={adapter_directory}")
    assert cli(*arguments, *given).status == 0
    rows = rows_from_file(sentences / "test.csv", kind="classification", labels=("negative", "positive"))
    with pytest.raises(InputError, match="was trained on files: give the rows to score by input"):
        run(Ablation(directories=(str(adapter_directory),)), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for name, value in {"metric": "f1", "model": "x", "recipe": "he-2021", "learning_rates": (1.0,)}.items():
        with pytest.raises(InputError, match=f"^{name}=.*: nothing trains with directories"):
            Ablation(directories=("a",), **{name: value})
    given = {"directories": (str(adapter_directory),), "input": str(sentences / "test.csv")}
    summary = run(Ablation(**given), tmp_path / "study")
    (found,) = summary["maps"].values()
    (value,) = read_values(tmp_path / "study")
    assert found["blocks"] == [0, 1] and set(value["spans"]) == {"0-0", "0-1", "1-1"} and value["whole"] > 0.7
    assert len({value["whole"], *value["spans"].values()}) > 1
    for span, score in value["spans"].items():
        first, last = map(int, span.split("-"))
        scorer, _ = pipeline.load_pipeline(adapter_directory)
        for (block, _), site in state_of(scorer.model).sites.items():
            if first <= block <= last:
                for layer in site.adapters.values():
                    layer.up_kernel.assign(0 * layer.up_kernel)
                    layer.up_bias.assign(0 * layer.up_bias)
        logits = scorer.logits(rows.text)
        assert score == np.mean(logits.argmax(-1) == rows.labels)
        assert found["drops"][span] == pytest.approx(1 - score / value["whole"])


def test_bad_options_are_refused_in_a_sentence(refused, tmp_path):
    for arguments, message in (
        ("init --sigmas a,b", "--sigmas a,b must be numbers with commas between them"),
        ("ablation --variants shared", "'shared' is none of houlsby, unshared, per-layer, 3-shared, frozen-norms"),
        ("sharing --tasks ,", "--tasks [] is empty: name a task"),
        ("ablation --input mine.csv", "--input mine.csv: it goes with --directories; leave it out"),
        ("ablation --directories a --seeds 2", "--seeds 2: nothing trains with --directories"),
        ("low-resource --rows 5", "--rows 5 is not for this study: give --counts"),
        ("sharing --resume", "holds no study; start one without --resume"),
        ("similarity --keep last", "--keep last is best in this study, which looks at more"),
        ("sharing --keep first", "--keep first must be best or last"),
        ("sharing --recipe gururangan-2020", "--recipe gururangan-2020 must be one of default, houlsby-2019, "),
    ):
        refused("study", *arguments.split(), "--output", tmp_path / "out", says=message)


def test_every_option_that_takes_numbers_has_a_range():
    for study in STUDIES.values():
        for option, about in choices_of(study).items():
            annotation = str(study.__dataclass_fields__[option].type)
            if about.of in (int, float) or re.search(r"\b(int|float)\b", annotation):
                assert about.range is not None or option in RANGES, option
                value = (-1,) if about.of is not None else -1
                with pytest.raises(InputError, match=f"{option}=-1"):
                    study(**{option: value})


def test_a_folder_that_holds_something_else_is_not_written_to(refused, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.txt").write_text("mine")
    refused("study", "init", "--output", tmp_path, says="holds other files than a study")
    with pytest.raises(InputError, match="holds other files than a study"):
        run(Init(tasks=("glue/colla",)), tmp_path)
    (tmp_path / "study.json").write_text("{}")
    refused("study", "init", "--overwrite", "--tasks=glue/colla", "--output", tmp_path, says="glue/colla")
    refused("study", "page", tmp_path, says="has no finished study below it")


def test_rows_that_choose_are_no_rows_that_train_and_all_arms_have_the_same(task, tmp_path):
    data = load(task, None)
    seen = [held_out(data, rows=20, validation_rows=8, reported_rows=10, seed=3) for _ in range(2)]
    assert [len(part) for part in (seen[0][0].train, seen[0][0].validation, seen[0][1])] == [20, 8, 10]
    assert seen[0][0].train.digest() == seen[1][0].train.digest()
    assert data.metric == "accuracy" and load(task, None, "matthews").metric == "matthews"
    with pytest.raises(InputError, match="metric 'spearman' is not for classification tasks"):
        load(task, None, "spearman")
    unlabelled = dataclasses.replace(data, test=None)
    split, reported = held_out(unlabelled, rows=None, validation_rows=1000, reported_rows=None, seed=3)
    texts = [set(part.text.numpy().tolist()) for part in (data.train, split.train, split.validation)]
    # A fifth of the training rows chooses, and the task's own validation rows are reported.
    assert len(split.validation) == len(data.train) // 5 and len(split.train) == len(data.train) - len(split.validation)
    assert texts[1] | texts[2] == texts[0] and reported is data.validation
    for name in ("train", "validation"):
        write_csv(tmp_path / f"{name}.csv", 8)
    load(str(tmp_path), None)
    (tmp_path / "train.csv").unlink()
    with pytest.raises(InputError, match="has no train.csv"):
        run(Init(tasks=(str(tmp_path),), model="none"), tmp_path / "study")
    with pytest.raises(InputError, match="counts=10000: .* of which 16 choose the epoch: give at least one row"):
        small(LowResource, task, "x").rows_of({"task": task, "arm": "full, 10000", "seed": 0})


def test_the_best_rate_is_chosen_by_validation_and_failed_runs_are_last():
    def run_at(rate, *validation, score=0.9):
        looks = [{"accuracy": value} for value in validation]
        return made(Sharing(), "houlsby", score, learning_rate=rate, validation=looks)

    runs = [run_at(1e-2, score=None), run_at(1e-3, 0.5, 0.7), run_at(1e-4, 0.7, 0.6), run_at(1e-5, 0.6)]
    assert [found["learning_rate"] for found in rank(runs)] == [1e-4, 1e-3, 1e-5, 1e-2]
    assert at_edge(1e-5, (1e-5, 1e-4)) and not at_edge(1e-4, (1e-5, 1e-4, 1e-3)) and not at_edge(1e-4, (1e-4,))


def test_spreads_and_paired_differences_by_hand():
    found = spread([1.0, 2.0, 4.0])
    assert found["mean"] == pytest.approx(7 / 3) and found["sd"] == pytest.approx((7 / 3) ** 0.5)
    assert found["sem"] == pytest.approx(7**0.5 / 3) and spread([1.0])["sd"] is None and spread([])["mean"] is None
    # Student's t with two degrees of freedom has 4.3027 at 97.5 %.
    difference = paired([1.0, 2.0, 4.0], [0.0, 0.0, 0.0])
    assert difference["interval"][1] == pytest.approx(7 / 3 + 4.302653 * 7**0.5 / 3)


def test_collapsed_runs_are_those_near_the_constant_answer_and_those_that_diverged():
    study = Stability(tasks=("a",), learning_rates=(1e-3,), full_learning_rates=(1e-4,), seeds=4)
    scores = {"adapters": (0.9, 0.8, 0.54, 0.5), "full": (None, 0.55, 0.5, 0.7)}
    values = [made(study, arm, score, seed) for arm in scores for seed, score in enumerate(scores[arm])]
    rates = {name: arm["rates"] for name, arm in study.summarise(values)["tasks"]["a"]["arms"].items()}
    # The line is at 0.5 + 0.1 * (0.9 - 0.5).
    assert rates["adapters"]["0.001"]["collapsed"] == 0.25 + 0.25 and rates["adapters"]["0.001"]["median"] == 0.67
    assert rates["full"]["0.0001"]["collapsed"] == 0.5 and rates["full"]["0.0001"]["n"] == 3


def test_what_counts_is_of_the_rates_and_seeds_asked_for_and_of_the_rate_that_the_first_seed_chose(tmp_path):
    study = get_study("similarity")(tasks=("a",), learning_rates=(1e-3, 1e-2), seeds=2)
    of_runs = {(1e-3, 0): 0.8, (1e-2, 0): 0.6, (1e-3, 1): 0.6, (1e-2, 1): 0.7, (1e-4, 0): 0.9, (1e-3, 2): 0.9}
    values = [
        made(study, "adapters", 0.5, seed, learning_rate=rate, validation=[{"accuracy": score}], **about)
        for about in ({}, {"measured": "similarity", "similarity": [0.5]})
        for (rate, seed), score in of_runs.items()
    ]
    (block,) = study.summarise(values)["tasks"]["a"]["adapters"]["blocks"]
    assert block["seeds"] == [0, 1]
    assert [run["learning_rate"] for run in study.best_runs(values)["a"]["adapters"]] == [1e-3, 1e-3]
    seen, lab = [], Lab(tmp_path, study)
    lab.values, lab.value = values, lambda identity, measure: seen.append(identity["learning_rate"])
    study.run_arm(lab, "a", "adapters", study.arms()["adapters"], 1)
    assert seen == [1e-3, 1e-3]


def test_an_arm_of_which_every_run_failed_has_no_score_of_other_languages():
    study = CrossLingual(tasks=("squad",))
    of_languages = {name: {"accuracy": score} for name, score in (("squad", 0.9), ("fr", 0.6), ("tr", 0.4))}
    scores = {"adapters of 256": {"reported": {"accuracy": 0.9}, **of_languages}, "full": None}
    values = [made(study, arm, None, task="squad", scores=of) for arm, of in scores.items()]
    columns, rows = study.table(study.summarise(values))
    assert columns[2:4] == ["target", "distant"] and set(rows[1][1:]) == {""}
    assert [word.split()[0] for word in rows[0][2:]] == ["50.00", "40.00", "90.00", "60.00", "40.00"]


def test_synonyms_are_of_the_same_part_of_speech_and_capitalised_alike():
    reader = Thesaurus()
    assert synonyms(reader, "film", "n") == ["movie", "moving picture"] and synonyms(reader, "film", "v") == ["shoot"]
    # Its texts have "film" as a noun ten times as often, and "watch" as a verb.
    assert synonyms(reader, "film") == ["movie", "moving picture"] and synonyms(reader, "watching") == ["view"]
    assert synonyms(reader, "Films") == ["Movie", "Moving picture"] and synonyms(reader, "good", "r") == []
    assert synonyms(reader, "is", "v") == synonyms(reader, "3rd") == synonyms(reader, "unheard") == []


def test_texts_are_cut_so_that_they_come_back_as_they_were():
    text = Text.of("It's a well-made film, isn't it?\n(2 of 3) ")
    assert text.words == ["It's", "a", "well-made", "film", "isn't", "it", "2", "of", "3"]
    assert text.replaced({}) == "It's a well-made film, isn't it?\n(2 of 3) "
    assert text.replaced({3: "movie", 1: "one"}) == "It's one well-made movie, isn't it?\n(2 of 3) "


def test_an_attack_follows_the_paper_step_by_step_on_a_made_up_classifier():
    """Ren et al. 2019, equations 4 to 8, with a classifier whose logit is a sum over words."""
    weights = {"good": 2.0, "fine": 0.5, "decent": 1.0, "film": 0.3, "movie": -0.2, "very": 0.4, "awful": -3.0}
    asked = []

    def probabilities(variants):
        asked.append(len(variants))
        logits = [sum(weights.get(word, 0.0) for word in text.split()) - 0.4 for _, text in variants]
        positive = 1 / (1 + np.exp(-np.asarray(logits)))
        return np.stack([1 - positive, positive], axis=1)

    texts = [Text.of("very good film"), Text.of("awful film"), Text.of("good day"), Text.of("good")]
    candidates = [[[], ["fine", "decent"], ["movie"]], [[], ["movie"]], [["fine"], []], [[]]]
    found = attack(texts, [1, 1, 1, 1], probabilities, candidates)

    def p(logit):
        return 1 / (1 + np.exp(-(logit - 0.4)))

    whole = p(2.7)
    saliency = np.asarray([whole - p(2.3), whole - p(0.7), whole - p(2.4)])
    lost = {1: whole - p(1.2), 2: whole - p(2.2)}
    weight = np.exp(saliency) / np.exp(saliency).sum()
    assert lost[1] * weight[1] > lost[2] * weight[2]
    # "fine" takes more than "decent"; 0.8 of the logit are left, and 0.3 with "movie": it never turns.
    assert found[0].success is False and found[0].changed == [("good", "fine"), ("film", "movie")]
    assert found[0].text == "very fine movie" and found[0].words == 3
    # It was wrong before, so that there is nothing to attack.
    assert found[1].success is None and found[1].text == "awful film"
    # 0.5 - 0.4 is still positive; without a candidate nothing is tried.
    assert found[2].success is False and found[3].success is False and found[3].changed == []
    assert len(asked) == 3 and asked[0] == 4
    weights["movie"] = -3.0
    turned = attack(texts[:1], [1], probabilities, candidates[:1])[0]
    # Now "movie" takes the most and is replaced first, which suffices.
    assert turned.success is True and turned.changed == [("film", "movie")] and turned.text == "very good movie"


def test_names_are_swapped_for_the_most_frequent_one_of_the_other_classes():
    texts = [["Ann", "Lee", "ran"], ["Bo", "ran"], ["Bo", "sat"], ["Cy", "sat"], ["Ann", "Lee", "sat"]]
    tags = [["B-PER", "I-PER", "O"], ["B-PER", "O"], ["B-PER", "O"], ["B-PER", "O"], ["B-PER", "I-PER", "O"]]
    # Class 1 has "Ann Lee" too, so that "Cy" is the name of its own that class 0 may get.
    assert entity_swaps(texts, tags, [0, 0, 0, 1, 1]) == {(0, "PER"): "Cy", (1, "PER"): "Bo"}
    assert entities_of(["I-A", "I-A", "B-A", "O", "I-B", "I-A"]) == [
        ("A", 0, 1), ("A", 2, 2), ("B", 4, 4), ("A", 5, 5)
    ]  # fmt: skip


def test_wordnet_is_read_from_a_folder_that_nltk_does_not_know_and_named_where_it_is_missing(tmp_path, monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(InputError, match="WordNet is missing: run `python -m nltk.downloader wordnet`"):
        pwws.read_wordnet(None)
    # As where the folder for temporary files is shared, from which nltk opens nothing.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
    for part in ("noun", "verb", "adj", "adv"):
        for name in (f"data.{part}", f"index.{part}", f"{part}.exc"):
            (tmp_path / name).write_text("")
    (tmp_path / "data.adj").write_text("  1 WordNet 3.0 Copyright\n")
    (tmp_path / "lexnames").write_text("00\tadj.all\t3\n")
    (tmp_path / "data.noun").write_text("00000000 00 n 02 film 0 movie 0 000 | moving pictures\n")
    (tmp_path / "index.noun").write_text("film n 1 0 1 0 00000000\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no other languages
        (found,) = pwws.read_wordnet(tmp_path).synsets("film")
    assert found.lemma_names() == ["film", "movie"]


def test_similarity_is_that_of_the_matrices_of_cosines_by_hand():
    from scipy.stats import pearsonr

    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 12, 5))
    cosines = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in rows] for rows in (one, other) for a in rows]
    above = [np.asarray(cosines[12 * place : 12 * place + 12])[np.triu_indices(12, 1)] for place in (0, 1)]
    assert similarity(one, other) == pytest.approx(pearsonr(*above)[0], abs=1e-6)


def test_a_landscape_is_as_wide_as_its_loss_is_at_most_twice_the_least():
    places = np.linspace(-2, 2, 401)
    losses = {f"{place:.4f}": 1 + place**2 for place in places}
    assert width(losses) == width(losses, around=0.5) == pytest.approx(2.0, abs=0.01) and width(losses, around=1.5) == 0
    # Two valleys, each half a unit wide, and only the one around 1.
    losses = {f"{place:.4f}": 1 + (4 * min(abs(place - 1), abs(place + 1))) ** 2 for place in places}
    assert width(losses) == pytest.approx(1.0, abs=0.01) and width(losses, around=1.0) == pytest.approx(0.5, abs=0.01)


def test_languages_are_tried_by_size_and_by_share_of_the_rows(task, tmp_path):
    study = get_study("cross-lingual")(tasks=(task,), sizes=(64, 128), shares=(0.5, 1), validation_rows=16)
    arms = study.arms()
    kinds = ("adapters of 64", "adapters of 128", "full")
    assert list(arms) == [*(f"{kind}, 0.5 of the rows" for kind in kinds), *kinds]
    assert list(dataclasses.replace(study, sizes=(8,), shares=(1,)).arms()) == ["adapters of 8", "full"]
    assert arms["adapters of 128"].adapter == {"bottleneck_size": 128} and arms["full"].trainable == "full"
    available = len(load(task, None).train)
    rows = [len(study.rows_of({"task": task, "arm": arm, "seed": 0})[0].train) for arm in (kinds[0], list(arms)[0])]
    assert rows == [len(study.rows_of({"task": task, "arm": "full", "seed": 0})[0].train), round(available / 2)]
    few = dataclasses.replace(study, rows=10).rows_of({"task": task, "arm": list(arms)[0], "seed": 0})[0]
    assert len(few.train) == 5
    assert len(dataclasses.replace(study, shares=(0.12344, 0.12341)).arms()) == 6
    Lab(tmp_path, study)
    with pytest.raises(InputError, match="with another others"):
        Lab(tmp_path, dataclasses.replace(study, others=("ud/fr_sequoia",)), resume=True)


def test_looks_beyond_the_end_of_a_run_are_refused_by_the_studys_own_name(task, model, tmp_path):
    study = small(get_study("curves"), task, model, every=1000)
    with pytest.raises(InputError, match="^every=1000 is above the 8 steps that epochs=2 has on 32 training examples"):
        run(study, tmp_path / "study")


def test_curves_are_of_other_languages_rows_where_there_are_some(task, monkeypatch):
    data = load(task, None)
    splits = {"fr": data.validation, "de": data.train}

    def load_split(name, split, data_dir):
        labels = ("other",) if name == "tr" else data.labels
        return type("Split", (), {"kind": data.kind, "labels": labels, "rows": splits.get(name)})

    monkeypatch.setattr("tf_adapters.tasks.registry.load_split", load_split)
    study = get_study("curves")(tasks=(task,), others=("fr", "de"), validation_rows=16, rows=20)
    found, reported = study.rows_of({"task": task, "seed": 0})
    assert len(found.train) == 20 and reported is data.test
    texts = found.validation.text.numpy().tolist()
    assert texts == [*data.validation.text.numpy(), *data.train.text.numpy()]
    with pytest.raises(InputError, match="others.*: tr has other labels than"):
        dataclasses.replace(study, others=("tr",)).rows_of({"task": task, "seed": 0})


def test_pretraining_has_a_curve_and_a_box_for_each_checkpoint(tmp_path):
    study = get_study("pretraining")(tasks=("a",), checkpoints=(10, 20), seeds=2, keep="last")
    values = [
        made(
            study, arm, 0.8, seed, last_scores={"reported": {"accuracy": 0.6}},
            validation=[{"accuracy": 0.7 + seed / 10}, {"accuracy": len(arm) / 100}],
        )
        for seed in (0, 1) for arm in study.arms()
    ]  # fmt: skip
    values.append({"measured": "pretraining", "task": "a", "arm": "full", "head": "own", "numbers": {}, "texts": 9})
    summary = study.summarise(values)
    arms = summary["tasks"]["a"]["arms"]
    assert {name: arm["curve"]["values"] for name, arm in arms.items()} == {
        name: pytest.approx([0.75, len(name) / 100]) for name in study.arms()
    }
    assert all(arm["mean"] == pytest.approx(0.6) for arm in arms.values())
    columns, rows = study.table(summary)
    assert {len(row) for row in rows} == {len(columns)}
    write_figure(study, summary, tmp_path)
    drawn = (tmp_path / "pretraining.svg").read_text()
    assert all(title in drawn for title in ("a: adapters", "a: full fine-tuning", "a: spread over epochs", "20 steps"))


@pytest.mark.parametrize("name", ["curves", "pretraining"])
def test_an_evaluation_without_a_score_is_left_out_of_its_means(name, tmp_path):
    """A correlation with constant answers is none, and `Lab.value` keeps it as None."""
    options = {} if name == "curves" else {"checkpoints": (10,), "keep": "best"}
    study = get_study(name)(tasks=("a",), seeds=2, **options)
    looks = ([None, 0.5, 0.8], [None, None, 0.6])
    values = [
        made(study, arm, 0.8, seed, validation=[{"accuracy": score, "loss": score} for score in looks[seed]])
        for seed in (0, 1) for arm in study.arms()
    ]  # fmt: skip
    summary = study.summarise(values)
    columns, rows = study.table(summary)
    if name == "curves":
        found = summary["tasks"]["a"]["adapters"]
        assert found["scores"] == found["losses"] == [None, 0.5, pytest.approx(0.7)]
        assert found["mean"] == pytest.approx(0.6) and found["best"] == found["last"] == pytest.approx(0.7)
        assert rows[0][-3:-1] == ["0.500", "0.700"]
    else:
        curve = summary["tasks"]["a"]["arms"]["adapters"]["curve"]
        assert curve["values"] == [None, 0.5, pytest.approx(0.7)] and curve["mean"] == pytest.approx(0.6)
    write_figure(study, summary, tmp_path)
    assert (tmp_path / f"{name}.svg").stat().st_size > 1000


def test_of_a_metric_with_a_long_name_an_axis_is_labelled_in_two_lines():
    panels = Figure().subplots(1, 2)
    for panel, metric in zip(panels, ("accuracy", "pearson_spearman")):
        panel.plot([1, 2], label="scores")
        finish(panel, "rows", about={"metric": metric})
    labels = ["accuracy, % (mean, standard error)", "pearson_spearman, %\n(mean, standard error)"]
    assert [panel.get_ylabel() for panel in panels] == labels


@pytest.mark.parametrize("titles, columns", [("a, x|a, y|b, x|b, y", 2), ("a, w|a, x|a, y|a, z", 3), ("a|b", 2)])
def test_the_variants_of_a_task_stand_side_by_side(titles, columns):
    found = {"drops": {"0-0": 0.1, "0-1": 0.2, "1-1": 0.1}, "blocks": [0, 1], "number": "accuracy"}
    figure, titles = Figure(), titles.split("|")
    Ablation().draw({"maps": dict.fromkeys(titles, found)}, figure)
    drawn = [panel for panel in figure.axes if panel.get_title()]
    assert [panel.get_title() for panel in drawn] == titles
    assert drawn[0].get_subplotspec().get_topmost_subplotspec().get_gridspec().ncols == columns


def test_pretraining_computes_as_the_study_does(task, model, tmp_path, monkeypatch):
    def pretrain(model, *arguments, fast, **options):
        raise InputError(f"{keras.mixed_precision.global_policy().name}, fast={fast}")

    monkeypatch.setattr("tf_adapters.training.pretrain.pretrain", pretrain)
    study = small(get_study("pretraining"), task, model, precision="mixed_bfloat16", fast=True)
    try:
        with pytest.raises(InputError, match="mixed_bfloat16, fast=True"):
            run(study, tmp_path / "study")
    finally:
        keras.mixed_precision.set_global_policy("float32")


PAPERS = {
    "han-2021": ("pretraining", "gradients", "attack"),
    "he-2021": ("similarity", "landscape", "curves", "stability", "low-resource", "mixout"),
    "he-2021-xtreme": ("cross-lingual",),
    "houlsby-2019": ("ablation", "init", "size", "trade-off", "sharing"),
}


@pytest.mark.parametrize("paper", PAPERS)
def test_a_study_is_by_default_its_papers(paper, task, model):
    assert sorted(name for names in PAPERS.values() for name in names) == sorted(STUDIES)
    with pytest.raises(InputError, match="study='ablations' is unknown: the studies are ablation, "):
        get_study("ablations")
    for name in PAPERS[paper]:
        study = get_study(name)(tasks=(task,), model=model, validation_rows=16)
        recipes = {"adapters": RECIPES[paper], "full": RECIPES[f"{paper}-full"]}
        assert (study.recipe, study.full_recipe) == tuple(recipe.name for recipe in recipes.values())
        for about in study.arms().values():
            if about.recipe is None and about.trainable in recipes:
                assert study.recipe_of(about) == recipes[about.trainable]
        assert study.keep == ("last" if name == "pretraining" else "best")
        if name not in ("size", "trade-off", "stability"):  # whose rates are searched, or are the question
            assert study.changes() == {}


def test_what_shortens_a_study_is_told_in_its_summary(task, model):
    study = Sharing(tasks=(task,), model=model, epochs=10, learning_rates=(3e-4, 1e-3))
    assert study.changes() == {
        "epochs": {"full": 3, "houlsby": 20},  # the report has 10
        "learning_rate": dict.fromkeys(("houlsby", "unshared", "per-layer", "3-shared"), 3e-4),
    }


def test_variants_train_the_layer_norms_that_the_reports_do(task, model):
    study, found = Ablation(tasks=(task,), model=model, validation_rows=16, variants=tuple(VARIANTS)), {}
    for name, arm in study.arms().items():
        one, *_ = study.experiment(None, arm, {"task": task, "arm": name, "seed": 0, **study.points(arm)[0]})
        assert one.settings.epochs == one.recipe.epochs and one.settings.weight_decay == one.recipe.weight_decay
        found[name] = one.adapter.sharing, one.adapter.train_layer_norm, one.recipe.head_layers
    assert found == {
        "houlsby": ("none", "all", 1), "unshared": ("none", "encoder", 2), "per-layer": ("layer", "none", 1),
        "3-shared": (3, "none", 1), "frozen-norms": ("none", "none", 1),
    }  # fmt: skip


def test_arms_within_noise_of_the_constant_answer_are_marked(task, tmp_path):
    rows = type("Rows", (), {"labels": np.asarray([1] * 721 + [0] * 322), "__len__": lambda self: 1043})()
    assert constant_loss(load(task, None), rows) == pytest.approx(0.618, abs=5e-4)
    run = {"constant": 0.5, "reported_rows": 400}
    # 0.05 for the rows; of three seeds 4.303 standard errors.
    assert at_floor(spread([0.549]), run) and not at_floor(spread([0.551]), run)
    assert at_floor(spread([0.6, 0.7, 0.9]), run) and not at_floor(spread([0.69, 0.7, 0.71]), run)
    assert at_floor(spread([0.7]), {**run, "constant": None}) is None and at_floor(spread([]), run) is None
    study = Sharing(tasks=("a",))
    values = [
        made(study, arm, 0.52 if arm == "full" else 0.8, seed, constant_loss=0.69, trained_pooler=4 * (arm == "full"))
        for arm in study.arms() for seed in (0, 1)
    ]  # fmt: skip
    columns, rows = study.table(study.summarise(values))
    assert columns == ["task", "arm", "trained", "rate", "score", "sd", "seeds"]
    full, *others, constant = rows
    assert full[2] == "10, the pooler too" and full[4] == "52.00 (at the floor)"
    assert {(row[2], row[4]) for row in others} == {("10", "80.00")}
    assert constant[1] == "constant answer, log loss 0.690" and constant[4] == "50.00"
    write_figure(study, study.summarise(values), tmp_path)
    drawn = (tmp_path / "sharing.svg").read_text()
    assert all(about.title in drawn for about in study.arms().values()) and "constant answer" in drawn


@pytest.mark.slow
def test_the_last_epoch_is_scored_beside_the_best(task, model, tmp_path):
    study = small(Sharing, task, model, epochs=6, learning_rates=(3e-2,), rows=64)
    lab = Lab(tmp_path, study)
    arm = dataclasses.replace(study.arms()["houlsby"], settings={"keep_periods": True})
    name = {"task": task, "arm": "houlsby", "learning_rate": 3e-2, "seed": 1}
    experiment, rows, _ = study.experiment(lab, arm, name)
    run = lab.train(name, experiment, seed=1, scored={"reported": rows}, keep=True)
    assert run["best_epoch"] < 6 == len(run["validation"])
    for folder, scores in ((lab.model_of(name), "scores"), (lab.model_of(name) / "step-48", "last_scores")):
        trained, _ = load_trained(folder)
        tokenizer = load_tokenizer(trained, max_length=16)
        assert experiment.score_rows(trained, tokenizer, rows) == run[scores]["reported"]
    run = {**run, "metric": "accuracy", "last_scores": {"reported": {"accuracy": 0.125}}}
    counted = dataclasses.replace(study, keep="last").counted(run)
    assert counted["scores"] == run["last_scores"] and counted["validation"] == run["validation"][-1:]
    assert study.counted(run) is run


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["the last epoch is measured", "the best is scored"])
def test_a_run_of_a_study_that_is_ended_when_it_is_trained_is_not_trained_again(
    moment, task, model, tmp_path, monkeypatch
):
    study = small(Sharing, task, model, epochs=6, learning_rates=(3e-2,), rows=64)
    name = {"task": task, "arm": "houlsby", "learning_rate": 3e-2, "seed": 1}
    arm, scored, log = study.arms()["houlsby"], [], Run._log

    def train(folder):
        lab = Lab(folder, study)
        experiment, rows, _ = study.experiment(lab, arm, name)
        found = lab.train(name, experiment, seed=1, scored={"reported": rows}, keep=True)
        return found, {path.name for path in lab.model_of(name).iterdir()}

    def end(experiment, *arguments, **about):
        scored.append(1)
        if len(scored) == 2:
            raise KeyboardInterrupt
        return score(experiment, *arguments, **about)

    whole, files = train(tmp_path / "whole")
    assert whole["best_epoch"] < 6
    assert files == {"README.md", "adapter.safetensors", "log.csv", "tf_adapters.json"}
    with monkeypatch.context() as patch:
        if moment == "the best is scored":
            score = Experiment.score_rows
            patch.setattr(Experiment, "score_rows", end)
        else:
            ends = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
            patch.setattr(Run, "_log", lambda run, row: (log(run, row), row["epoch"] == 6 and ends()))
        with pytest.raises((Stopped, KeyboardInterrupt)):
            train(tmp_path / "ended")
    monkeypatch.setattr(Run, "on_train_batch_end", lambda *arguments: pytest.fail("it trained again"))
    resumed, others = train(tmp_path / "ended")
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0} and others == files


def test_an_unknown_word_is_one_unknown_token():
    # All bytes, as in every vocabulary of this kind, and one merge with a space.
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *_byte_alphabet(), "\u0120b"]
    tokenizer = ByteLevelBpe({token: place for place, token in enumerate(tokens)}, [("\u0120", "b")], max_length=16)
    reading = reading_unknown(tokenizer)
    plain = tf.constant(["a b", "good (b)"])
    assert reading.tokenize(plain).to_list() == tokenizer.tokenize(plain).to_list()
    for text, without in (
        (f"a {UNKNOWN} b", ("a", " b")),
        (f"{UNKNOWN} b", ("", " b")),
        (f"(b) {UNKNOWN}.", ("(b)", ".")),
    ):
        found = reading.encode(tf.constant([text]))["input_ids"][0].numpy().tolist()
        first, last = (tokenizer.tokenize(tf.constant([part]))[0].numpy().tolist() for part in without)
        assert found == [tokenizer.cls_id, *first, tokenizer.unk_id, *last, tokenizer.sep_id]


@pytest.mark.slow
def test_gradient_norms_are_those_of_a_tape_and_reach_frozen_layers(checkpoint, sentences):
    data = task_from_files(train=sentences / "train.csv", validation=sentences / "validation.csv")
    model = load_backbone(checkpoint)
    add_adapters(model, AdapterConfig(4, init_stddev=0.3, train_layer_norm="encoder"), seed=0)
    set_trainable(model, "adapters")
    batches = batches_of(model, load_tokenizer(model, max_length=16), data, 8, 2, 0)
    groups, found = groups_of(model), gradient_norms(model, data, batches)()
    assert list(found) == ["embeddings", *(f"block {block}" for block in range(4)), "pooler", "adapters", "head"]
    everything = {id(variable) for variable in model.weights if variable.dtype.is_floating}
    taken = [id(variable) for group in groups.values() for variable in group]
    assert len(taken) == len(set(taken)) and set(taken) == everything
    by_hand = {name: [] for name in groups}
    for inputs, labels in batches:
        for name, group in groups.items():
            with tf.GradientTape() as tape:
                tape.watch(group)
                logits = model(inputs, training=False).logits
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            parts = [tf.convert_to_tensor(part) for part in tape.gradient(loss, group) if part is not None]
            by_hand[name].append(float(tf.linalg.global_norm(parts)))
    assert found == pytest.approx({name: np.mean(values) for name, values in by_hand.items()}, rel=1e-4)
    assert min(found.values()) > 0 and not model.layers[0].embeddings.trainable_variables


def test_treebanks_of_a_language_are_joined(tmp_path):
    def made(*sentences):
        words = tf.ragged.constant(sentences, dtype=tf.string)
        return WordRows(words, tf.cast(tf.ragged.map_flat_values(tf.strings.length, words), tf.int32), ("A", "B"))

    rows = {"ud/en_ewt": made(["a", "bb"]), "ud/fr_gsd": made(["c"]), "ud/fr_sequoia": made(["dd", "e"], ["f"])}
    found = by_language(rows)
    assert set(found) == {"en", "fr"} and found["fr"].words.to_list() == [[b"c"], [b"dd", b"e"], [b"f"]]
    assert found["fr"].labels.to_list() == [[1], [2, 1], [1]] and found["fr"].label_names == ("A", "B")


def test_what_parameters_buy_is_told_by_the_best_run_of_each_task(model):
    rates = {"learning_rates": (1e-3,), "full_learning_rates": (1e-4,)}
    study = TradeOff(tasks=("a", "b"), model=model, sizes=(8,), top=(1,), seeds=2, **rates)
    trained = {"adapters-8": 100, "full": 50_000, "top-1": 9000}
    scores = {"adapters-8": (0.7, 0.6), "full": (0.8, 0.5), "top-1": (0.6, 0.4)}
    values = [
        made(
            study, arm, score - seed / 10, seed, task, trained_parameters=trained[arm],
            validation=[{"accuracy": 0.5 - seed / 10}],
        )
        for arm in scores for task, score in zip("ab", scores[arm]) for seed in (0, 1)
    ]  # fmt: skip
    summary = study.summarise(values)
    arms, encoder = summary["arms"], summary["encoder"]
    # The first seed has the better validation.
    assert arms["adapters-8"]["minus_full"] == pytest.approx({"a": -0.1, "b": 0.1})
    assert arms["adapters-8"]["macro"] == pytest.approx(0.65) and arms["full"]["macro"] == pytest.approx(0.65)
    assert arms["adapters-8"]["percentiles"]["20"] == pytest.approx(-0.06)
    # One encoder and two adapters, against two models.
    assert arms["adapters-8"]["times_encoder"] == pytest.approx((encoder + 200) / encoder)
    assert arms["full"]["times_encoder"] == pytest.approx(100_000 / encoder)


@pytest.mark.parametrize(
    "name", ["tf-idf", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("network", "layer-mix"))]
)
def test_baselines_learn_words_without_fine_tuning(name, task, model):
    data, reported = held_out(load(task, None), rows=None, validation_rows=40, reported_rows=None, seed=0)
    given = {"seed": 0, "learning_rate": 1e-2, "batch_size": 16, "source": model, "max_length": 16}
    found = train_baseline(name, data, reported, **given)
    # The label follows from one word; a random encoder's states say less of it than words do.
    assert found["scores"]["reported"]["accuracy"] > (0.6 if name == "layer-mix" else 0.9)
    looks = [look["accuracy"] for look in found["validation"]]
    assert found["trained_parameters"] > 0 and found["best_epoch"] == 1 + looks.index(max(looks))
    words = dataclasses.replace(data, kind="token-classification")
    with pytest.raises(InputError, match=f"baselines='{name}' are for classification and regression"):
        train_baseline(name, words, words.validation)
    if name == "layer-mix":
        blocks, hidden = 5, 32
        assert found["trained_parameters"] == blocks + 2 * (hidden + 1)


def test_means_of_blocks_are_those_of_the_tokens_that_are_there(task, one_block):
    encoder, rows = load_backbone(one_block), load(task, None).validation.take(range(3))
    tokenizer = load_tokenizer(encoder, max_length=16)
    found = block_means(encoder, tokenizer, rows, 2)
    for number in range(3):
        ids = tokenizer.encode(rows.text[number : number + 1])["input_ids"].to_tensor()
        inputs = {"input_ids": ids, "attention_mask": tf.ones_like(ids), "token_type_ids": tf.zeros_like(ids)}
        states = encoder.bert(inputs, output_hidden_states=True).hidden_states
        np.testing.assert_allclose(found[number], [tf.reduce_mean(block[0], 0) for block in states], atol=1e-5)
