"""The eight tasks of task adaptation evaluation (Gururangan et al. 2020), as in He et al. 2021, tables 1 and 8.

The files are those of "Don't Stop Pretraining": JSON lines with `text` and `label`, and an
official split. CHEMPROT and RCT count by micro-F1, the others by macro-F1.
"""

from tf_adapters.tasks.published import PublishedTask
from tf_adapters.tasks.published_files import Layout

URL = "https://allennlp.s3-us-west-2.amazonaws.com/dont_stop_pretraining/data"
_FILES = {"train": "train", "validation": "dev", "test": "test"}


def _task(name, folder, *, metric="macro-f1", also=None, run_on_real_rows=False):
    def places(file):
        places = [f"{parent}{folder}/{file}.jsonl" for parent in ("", "tae/")]
        # SciBERT's repository has the three small ones under other names.
        return (*places, *(f"{parent}{also}/{file}.txt" for parent in ("", "tae/") if also))

    return PublishedTask(
        name=f"tae/{name}",
        files={split: places(file) for split, file in _FILES.items()},
        layout=Layout("jsonl"),
        origin=f"train.jsonl, dev.jsonl and test.jsonl of {URL}/{folder}/.",
        metric=metric,
        run_on_real_rows=run_on_real_rows,
    )


TAE = (
    _task("chemprot", "chemprot", metric="micro-f1", also="chemprot", run_on_real_rows=True),
    _task("rct", "rct-20k", metric="micro-f1"),
    _task("acl-arc", "citation_intent", also="citation_intent", run_on_real_rows=True),
    _task("scierc", "sciie", also="sciie-relation-extraction", run_on_real_rows=True),
    _task("hyperpartisan", "hyperpartisan_news"),
    _task("agnews", "ag"),
    _task("helpfulness", "amazon"),
    _task("imdb", "imdb"),
)
