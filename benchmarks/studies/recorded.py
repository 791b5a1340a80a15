"""The papers' studies that are recorded, one after the other, and what is kept of each.

A run of many hours is done in slices: after `--minutes` the run at hand is finished, and what is measured is kept. The
same command goes on, from another checkout too. It is niced and on one core, so that other work goes on beside it.
"""

import argparse
import json
import os
import pathlib
import shutil
import time

from benchmarks.result import ROOT, log, provenance
from tf_adapters.errors import InputError

KEPT = ROOT / "benchmarks" / "results" / "studies"
_PARTS = ("study.json", "values.jsonl", "made.json")  # of a study that is not finished
# Both arms: as many rates, around the best of earlier runs on this encoder.
_RATES = {"learning_rates": (3e-4, 1e-3, 3e-3), "full_learning_rates": (5e-5, 1e-4, 3e-4)}
_BEST = {"learning_rates": (1e-3,), "full_learning_rates": (1e-4,)}
_COMMON = {"validation_rows": 500, "fast": True}
_FEW = {**_COMMON, **_RATES, "epochs": 10, "seeds": 5}
_LOOKS = {**_COMMON, **_BEST, "tasks": ("glue/sst2",), "rows": 2000, "epochs": 10, "seeds": 3}
_SST2 = {**_COMMON, **_RATES, "tasks": ("glue/sst2",), "rows": 2000, "epochs": 5, "seeds": 3}

# Folder -> the study and its options, in the order in which they are run: what says most an hour first.
PLAN = {
    "sharing-1000": ("sharing", {**_FEW, "tasks": ("glue/sst2", "glue/stsb"), "rows": 1000}),
    "sharing-additional": ("sharing", {**_FEW, "tasks": ("tae/scierc", "crowdflower/airline"), "rows": 1000}),
    "low-resource-1000": ("low-resource", {
        **_FEW, "tasks": ("glue/sst2", "glue/stsb", "tae/scierc", "tae/acl-arc"), "counts": (1000,),
    }),
    "similarity-sst2": ("similarity", _LOOKS),
    "curves-sst2": ("curves", _LOOKS),
    "landscape-sst2": ("landscape", _LOOKS),
    "gradients-sst2": ("gradients", _LOOKS),
    "size-sst2": ("size", {**_SST2, "sizes": (1, 8, 64, 512), "top": (1, 2, 4, 6)}),
    "init-sst2": ("init", {**_SST2, "learning_rates": (1e-3,)}),
    "ablation-recipes": ("ablation", {
        **_COMMON, **_BEST, "tasks": ("glue/sst2", "tae/chemprot"), "rows": 2000, "epochs": 5, "seeds": 3,
        "variants": ("houlsby", "unshared", "per-layer", "3-shared", "frozen-norms"),
    }),
    "stability-sst2": ("stability", {
        **_COMMON, "tasks": ("glue/sst2",), "rows": 1000, "epochs": 5, "seeds": 10,
        "learning_rates": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), "full_learning_rates": (2e-5, 5e-5, 1e-4, 3e-4, 1e-3),
    }),
    "attack-recipes": ("attack", {
        **_COMMON, **_BEST, "tasks": ("glue/sst2",), "rows": 2000, "epochs": 5, "texts": 300, "checkpoints": (1000,),
        "seeds": 3,
    }),
}  # fmt: skip


def main(arguments=None):
    options = _options(arguments)
    if options.list:
        for name in options.studies:
            print(f"{name}: {command(name, options.precision)}")
        return
    # Before TensorFlow counts the cores.
    os.nice(10)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Before results are written: they would count as changes.
    made, deadline = provenance(), time.monotonic() + 60 * (options.minutes or float("inf"))
    refused = {}
    for name in options.studies:
        if (KEPT / name / "summary.json").exists():
            continue
        try:
            if not conduct(name, options, made, deadline):
                log(f"{name}: goes on with the same command")
                break
        except InputError as error:
            log(f"{name}: {error}")
            refused[name] = error
    if refused:
        raise SystemExit(f"Not done: {', '.join(refused)}.")


def _options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("studies", nargs="*", default=list(PLAN), metavar="STUDY", help=f"of {', '.join(PLAN)}")
    help = "stop after the run that is at hand then; without it when all are done"
    parser.add_argument("--minutes", type=float, help=help)
    parser.add_argument("--data-dir", help="folder that holds the tasks' files in its folders")
    parser.add_argument("--wordnet", help="folder with WordNet's files, for attack")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("studies"), help="where they go on")
    parser.add_argument("--precision", default="float32", help="of a machine whose processor has it: mixed_bfloat16")
    parser.add_argument("--list", action="store_true", help="print the commands and do nothing")
    options = parser.parse_args(arguments)
    for name in options.studies:
        if name not in PLAN:
            parser.error(f"{name} is no recorded study: give some of {', '.join(PLAN)}.")
    if not options.list and options.data_dir is None:
        parser.error("give --data-dir, the folder that holds the tasks' files.")
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes {options.minutes:g} must be above 0.")
    return options


def command(name, precision="float32"):
    """What a person types to run a study of the plan."""
    study, given = PLAN[name]
    words = ["tf-adapters", "study", study]
    for option, value in {**given, "precision": precision}.items():
        if option != "precision" or precision != "float32":
            words.append(f"--{option.replace('_', '-')}")
            words += [] if value is True else [_word(value)]
    return " ".join(words)


def _word(value):
    values = value if isinstance(value, tuple) else (value,)
    return ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


def study_of(name, **others):
    """The `Study` of a name of the plan."""
    from tf_adapters.studies import get_study

    study, given = PLAN[name]
    return get_study(study)(**given, **others)


def conduct(name, options, made, deadline):
    """Run a study until it is done or time is up, and keep what it has measured; whether it is done. InputError, if it
    is refused: what another version has begun, say."""
    from tf_adapters.studies.lab import Stopped, run

    folder, others = options.folder / name, {"data_dir": options.data_dir, "precision": options.precision}
    if options.wordnet and PLAN[name][0] == "attack":
        others["wordnet"] = options.wordnet
    take_up(name, folder)
    study = study_of(name, **others)
    before = read(folder / _PARTS[2])["commits"] if (folder / _PARTS[2]).exists() else ()
    commits = list(dict.fromkeys([*before, made["git"]["commit"]]))
    made = {**made, "command": command(name, options.precision), "precision": options.precision, "commits": commits}
    try:
        run(study, folder, resume=(folder / _PARTS[0]).exists(), observer=_until(name, deadline))
    except (Stopped, KeyboardInterrupt):
        keep_parts(name, folder, made)
        return False
    keep(name, folder, made)
    log(f"{name}: done")
    return True


def _until(name, deadline):
    """An observer that begins no run after the deadline."""
    from tf_adapters.studies.lab import Observer, Stopped

    class Until(Observer):
        def value(self, number, total, text, left):
            if time.monotonic() > deadline:
                raise Stopped
            log(f"{name} {number}{'' if total is None else f'/{total}'}: {text}")

    return Until()


def take_up(name, folder, kept=KEPT):
    """Let a study of which nothing is here go on from what is kept of it."""
    if (kept / name / _PARTS[0]).exists() and not (folder / _PARTS[0]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            shutil.copyfile(kept / name / part, folder / part)


def keep_parts(name, folder, made, kept=KEPT):
    """Keep what an unfinished study has measured."""
    if not (folder / _PARTS[1]).exists():
        return
    (kept / name).mkdir(parents=True, exist_ok=True)
    begun = read(folder / _PARTS[0])
    begun["settings"] = _without_folders(begun["settings"])
    _write(kept / name / _PARTS[0], begun)
    shutil.copyfile(folder / _PARTS[1], kept / name / _PARTS[1])
    for place in (folder, kept / name):
        _write(place / _PARTS[2], made)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path, document):
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _without_folders(settings):
    """A study's settings but for the folders of this machine."""
    return {option: value for option, value in settings.items() if option not in ("data_dir", "wordnet")}


def keep(name, folder, made, kept=KEPT):
    """Copy what a finished study has measured, its summary and its figure, beside where it came from."""
    (kept / name).mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        (kept / name / part).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".csv", ".svg"):
            shutil.copyfile(path, kept / name / path.name)
    summary = read(folder / "summary.json")
    summary["settings"] = _without_folders(summary["settings"])
    about = {"commits": made["commits"], "precision": made["precision"], "processor": made["machine"]["cpu"]}
    _write(kept / name / "summary.json", {**summary, **about})
    _write(kept / name / "made.json", made)
