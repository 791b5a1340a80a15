"""The 17 additional classification tasks of Houlsby et al. 2019, section 3.3 and table 2.

The paper names the data sets, and neither their files nor their columns. These are the public
files that fit its names and the ranges it gives (900 to 330,000 training rows, 2 to 157 classes,
57 to 1,900 characters); where it leaves a choice, the entry's note says which was taken. Its
split was not published: the one here is another, so that numbers compare as averages and not
row by row.
"""

from tf_adapters.tasks.published import ALL, PublishedTask
from tf_adapters.tasks.published_files import LATIN1, UTF8_OR_MAC, Layout

_NO_VERDICT = "without a verdict"


def _crowdflower(name, file, *, text, label, short=None, **entry):
    """A task of Crowdflower's "Data for Everyone": CSV with a header, in an encoding that is no one's."""
    return PublishedTask(
        name=f"crowdflower/{name}",
        files={ALL: ((f"crowdflower/{short}.csv",) if short else ()) + (f"crowdflower/{file}", file)},
        layout=Layout("csv", text=text, label=label, encoding=UTF8_OR_MAC),
        origin=f"{file} of Crowdflower's Data for Everyone, now at https://data.world/crowdflower.",
        **entry,
    )


_POLITICS = {"file": "Political-media-DFE.csv", "text": "text"}
_PROGRESSIVE = {"file": "progressive-tweet-sentiment.csv", "text": "tweet"}
_RELEVANCE = {"label": "relevance", "labels": ("no", "yes"), "dropped": {"not sure": _NO_VERDICT}}

ADDITIONAL = (
    PublishedTask(
        name="20-newsgroups",
        files={
            ALL: (
                ("20news-bydate-train", "20news-bydate-test"),
                ("20news-bydate/20news-bydate-train", "20news-bydate/20news-bydate-test"),
                "20news-18828",
                "20_newsgroups",
            )
        },
        layout=Layout("folders", encoding=LATIN1),
        origin="20news-bydate.tar.gz of http://qwone.com/~jason/20Newsgroups/, unpacked.",
        note="The paper's sizes are of a random split of all 18,846 posts, not of the split by date.",
    ),
    _crowdflower(
        "airline",
        "Airline-Sentiment-2-w-AA.csv",
        short="airline",
        text="text",
        label="airline_sentiment",
        labels=("negative", "neutral", "positive"),
        run_on_real_rows=True,
    ),
    _crowdflower(
        "corporate-messaging",
        "Corporate-messaging-DFE.csv",
        short="corporate_messaging",
        text="text",
        label="category",
        labels=("Action", "Dialogue", "Exclude", "Information"),
        note="The paper has four classes, so that Exclude is one of them.",
        run_on_real_rows=True,
    ),
    _crowdflower(
        "disasters",
        "socialmedia-disaster-tweets-DFE.csv",
        text="text",
        label="choose_one",
        labels=("Not Relevant", "Relevant"),
        dropped={"Can't Decide": _NO_VERDICT},
    ),
    _crowdflower("economic-news-relevance", "Full-Economic-News-DFE-839861.csv", text="text", **_RELEVANCE),
    _crowdflower(
        "emotion",
        "text_emotion.csv",
        short="emotion",
        text="content",
        label="sentiment",
        run_on_real_rows=True,
        labels=(
            "anger",
            "boredom",
            "empty",
            "enthusiasm",
            "fun",
            "happiness",
            "hate",
            "love",
            "neutral",
            "relief",
            "sadness",
            "surprise",
            "worry",
        ),
    ),  # fmt: skip
    _crowdflower(
        "global-warming",
        "1377884570_tweet_global_warming.csv",
        short="global_warming",
        text="tweet",
        label="existence",
        labels=("no", "yes"),
        spellings={"Yes": "yes", "Y": "yes", "No": "no", "N": "no"},
        dropped={"NA": _NO_VERDICT, "N/A": _NO_VERDICT, "": "without a label"},
        run_on_real_rows=True,
    ),
    _crowdflower("political-audience", label="audience", labels=("constituency", "national"), **_POLITICS),
    _crowdflower("political-bias", label="bias", labels=("neutral", "partisan"), **_POLITICS),
    _crowdflower(
        "political-message",
        label="message",
        labels=(
            "attack",
            "constituency",
            "information",
            "media",
            "mobilization",
            "other",
            "personal",
            "policy",
            "support",
        ),
        **_POLITICS,
    ),  # fmt: skip
    _crowdflower("primary-emotions", "primary-plutchik-wheel-DFE.csv", text="sentence", label="emotion"),
    _crowdflower(
        "progressive-opinion",
        label="q2_which_of_the_options_below_is_true_about_the_opinion_in_the_tweet",
        **_PROGRESSIVE,
    ),
    _crowdflower(
        "progressive-stance",
        label="q1_from_reading_the_tweet_which_of_the_options_below_is_most_likely_to_be_true_about_the_stance_or_"
        "outlook_of_the_tweeter_towards_the_target",
        **_PROGRESSIVE,
    ),
    _crowdflower("us-economic-performance", "us-economic-newspaper.csv", text="text", **_RELEVANCE),
    PublishedTask(
        name="customer-complaints",
        files={ALL: ("customer_complaints/complaints.csv", "complaints.csv", "Consumer_Complaints.csv")},
        layout=Layout("csv", text="Consumer complaint narrative", label="Issue"),
        origin="complaints.csv of https://www.consumerfinance.gov/data-research/consumer-complaints/.",
        dropped={"": "without a label"},
        note="The class is the column Issue, which the paper does not name. The file grows by the day: the paper's had "
        "183,334 complaints with a text and 157 classes.",
    ),
    PublishedTask(
        name="news-aggregator",
        files={ALL: ("news_aggregator/newsCorpora.csv", "newsCorpora.csv")},
        layout=Layout(
            "tsv",
            text="TITLE",
            label="CATEGORY",
            header=("ID", "TITLE", "URL", "PUBLISHER", "CATEGORY", "STORY", "HOSTNAME", "TIMESTAMP"),
        ),
        origin="newsCorpora.csv of the UCI News Aggregator data set, https://archive.ics.uci.edu/dataset/359.",
        labels=("b", "e", "m", "t"),
        note="b is business, e entertainment, m health, t science and technology.",
    ),
    PublishedTask(
        name="sms-spam",
        files={ALL: ("sms_spam/SMSSpamCollection", "SMSSpamCollection")},
        layout=Layout("tsv", text="text", label="label", header=("label", "text"), other_header=("Label", "SMS")),
        origin="SMSSpamCollection of the UCI SMS Spam Collection, https://archive.ics.uci.edu/dataset/228.",
        labels=("ham", "spam"),
        run_on_real_rows=True,
    ),
)
