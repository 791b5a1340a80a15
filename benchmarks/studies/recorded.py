"""The papers' studies that are recorded: the commands, run one after the other, and what is kept of each.

A study goes on where it stopped, so that a list of many hours is done in parts. What an unfinished one has measured is
kept too, from where another checkout goes on.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import threading

from benchmarks.provenance import ROOT, log, provenance

KEPT = ROOT / "benchmarks" / "results" / "studies"
# Both arms: as many rates, around the best of earlier runs on this encoder.
_RATES = "--learning-rates 1e-4,3e-4,1e-3,3e-3 --full-learning-rates 2e-5,5e-5,1e-4,3e-4"
_TWO = "--learning-rates 3e-4,1e-3 --full-learning-rates 5e-5,1e-4"
_BEST = "--learning-rates 1e-3 --full-learning-rates 1e-4"
_WIDE = "--learning-rates 1e-4,3e-4,1e-3,3e-3,1e-2 --full-learning-rates 2e-5,5e-5,1e-4,3e-4,1e-3"
_FAST = "--fast"
_HELD_OUT = "--validation-rows 500"
_SHARING = f"sharing {_HELD_OUT} {_RATES} {_FAST}"
_PARTS = ("study.json", "values.jsonl")  # of a study that is not finished
_FEW = f"low-resource --batch-size 32 {_HELD_OUT} {_FAST}"
_LOOKS = f"--tasks glue/cola --rows 2000 {_HELD_OUT} --epochs 10 {_BEST}"
_LOOKS_MRPC = f"--tasks glue/mrpc --rows 1000 {_HELD_OUT} --epochs 10 {_BEST}"
_FIVE = f"--tasks glue/cola --rows 2000 {_HELD_OUT} --epochs 5 --seeds 3"
_FIVE_MRPC = f"--tasks glue/mrpc --rows 1000 {_HELD_OUT} --epochs 5 --seeds 3"
# One rate for all sizes: none is shown at its best.
_SIZES = f"--sizes 1,8,64,512 --top 1,2,4,6 {_BEST} {_FAST}"

# Folder -> the words after `tf-adapters study`. What says most an hour first.
PLAN = {
    "ablation": f"ablation --tasks glue/cola,glue/sst2 --variants unshared,per-layer,3-shared --rows 8000 --epochs 3"
    f" {_HELD_OUT} --learning-rates 1e-3 {_FAST}",
    "landscape": f"landscape {_LOOKS} --seeds 1 --fast",
    "gradients": f"gradients {_LOOKS} --seeds 1 --fast",
    "similarity": f"similarity {_LOOKS} --seeds 3 --fast",
    "curves": f"curves {_LOOKS} --batch-size 16 --seeds 3 {_FAST}",
    "sharing-cola": f"{_SHARING} --tasks glue/cola --rows 2000 --epochs 10 --seeds 5",
    "low-resource-cola-sst2": f"{_FEW} {_RATES} --tasks glue/cola,glue/sst2 --counts 1000 --seeds 5",
    "size": f"size {_FIVE} {_SIZES}",
    "init": f"init {_FIVE} --learning-rates 1e-3 --fast",
    "attack": f"attack --tasks glue/sst2 --texts 500 --rows 4000 {_HELD_OUT} --epochs 3 {_BEST} {_FAST}"
    " --checkpoints 1000",
    "stability-cola": f"stability --tasks glue/cola --rows 1000 {_HELD_OUT} --epochs 5 --batch-size 16"
    f" {_WIDE} --seeds 20 {_FAST}",
    "sharing-sst2": f"{_SHARING} --tasks glue/sst2 --rows 2000 --epochs 3 --seeds 3",
    "sharing-stsb": f"{_SHARING} --tasks glue/stsb --rows 1000 --epochs 10 --seeds 3",
    "pretraining-tae": f"pretraining --tasks tae/acl-arc,tae/scierc,tae/chemprot --rows 1000 {_HELD_OUT}"
    f" --max-length 128 --epochs 10 --checkpoints 500 --fit-head-steps 500 --seeds 3 {_BEST} {_FAST}",
    "mixout": f"mixout --tasks glue/cola --rows 1000 {_HELD_OUT} --epochs 10 --batch-size 32 --seeds 3 {_BEST}",
    "cross-lingual": f"cross-lingual --rows 2000 {_HELD_OUT} --epochs 3 --seeds 3 {_BEST}",
    "stability-rte": f"stability --tasks glue/rte --rows 1000 {_HELD_OUT} --epochs 5 --batch-size 16 {_BEST} --seeds 10"
    f" {_FAST}",
    "sharing-mrpc": f"{_SHARING} --tasks glue/mrpc --rows 1000 --epochs 10 --seeds 5",
    "low-resource-mrpc-stsb-rte": f"{_FEW} {_TWO} --tasks glue/mrpc,glue/stsb,glue/rte --counts 1000 --epochs 10"
    " --seeds 5",
    "low-resource-5000": f"{_FEW} {_TWO} --tasks glue/cola,glue/sst2 --counts 5000 --epochs 5 --seeds 5",
    "similarity-mrpc": f"similarity {_LOOKS_MRPC} --seeds 3 --fast",
    "curves-mrpc": f"curves {_LOOKS_MRPC} --batch-size 16 --seeds 3 {_FAST}",
    "landscape-mrpc": f"landscape {_LOOKS_MRPC} --seeds 1 --fast",
    "gradients-mrpc": f"gradients {_LOOKS_MRPC} --seeds 1 --fast",
    "size-mrpc": f"size {_FIVE_MRPC} {_SIZES}",
    "init-mrpc": f"init {_FIVE_MRPC} --learning-rates 1e-3 --fast",
    "sharing-rte": f"{_SHARING} --tasks glue/rte --rows 1000 --epochs 10 --seeds 5",
    "sharing-additional": f"{_SHARING} --tasks crowdflower/airline,crowdflower/corporate-messaging,"
    f"crowdflower/emotion,crowdflower/global-warming,sms-spam --rows 1000 --epochs 5 --seeds 3",
    "training-size-sst2": f"{_FEW} {_TWO} --tasks glue/sst2 --counts 250,1000,4000 --epochs 5 --seeds 3",
    "training-size-imdb": f"{_FEW} {_TWO} --tasks tae/imdb --counts 250,1000,4000 --epochs 3 --seeds 3",
}


def main(arguments=None):
    options = _options(arguments)
    if options.list:
        for name in options.studies:
            print(f"{name}: {command(name, options.precision)}")
        return
    # Before results are written: they would count as changes.
    options.made = provenance()
    running, stopping = set(), threading.Event()

    def stop(number, frame):
        stopping.set()
        for process in list(running):
            process.send_signal(signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    cores = sorted(os.sched_getaffinity(0))
    free = [cores[lane :: options.lanes] for lane in range(options.lanes)]

    def one(name):
        if stopping.is_set():
            return name, None
        own = free.pop()
        try:
            return name, _study(name, options, own, running)
        finally:
            free.append(own)

    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.lanes) as pool:
        for name, status in pool.map(one, options.studies):
            if status not in (0, None):
                failed.append(name)
    if failed:
        raise SystemExit(f"Not finished: {', '.join(failed)}. The same command goes on with them.")


def _options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("studies", nargs="*", default=list(PLAN), metavar="STUDY", help=f"of {', '.join(PLAN)}")
    parser.add_argument("--data-dir", help="folder that holds the tasks' files in its folders")
    parser.add_argument("--wordnet", help="folder with WordNet's files, for attack")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("studies"), help="where they go on")
    parser.add_argument("--precision", default="float32", help="of a machine whose processor has it: mixed_bfloat16")
    parser.add_argument("--lanes", type=int, default=2, help="studies at once, each with its share of the cores")
    parser.add_argument("--list", action="store_true", help="print the commands and do nothing")
    options = parser.parse_args(arguments)
    for name in options.studies:
        if name not in PLAN:
            parser.error(f"{name} is no recorded study: give some of {', '.join(PLAN)}.")
    if not options.list and options.data_dir is None:
        parser.error("give --data-dir, the folder that holds the tasks' files.")
    return options


def command(name, precision="float32"):
    """What a person types to run a study of the plan."""
    return f"tf-adapters study {PLAN[name]}" + (f" --precision {precision}" if precision != "float32" else "")


def _study(name, options, cores, running):
    """Run a study to its end, or as far as it gets; its exit status."""
    folder = options.folder / name
    take_up(name, folder)
    words = [*shlex.split(command(name, options.precision))[1:], "--data-dir", options.data_dir]
    words += ["--output", str(folder)]
    if name.startswith("attack") and options.wordnet:
        words += ["--wordnet", options.wordnet]
    words += ["--resume"] if (folder / "study.json").exists() else []
    threads = {"OMP_NUM_THREADS": str(len(cores)), "TF_NUM_INTRAOP_THREADS": str(len(cores))}
    options.folder.mkdir(parents=True, exist_ok=True)
    with open(options.folder / f"{name}.log", "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tf_adapters.cli", *words], stdout=output, stderr=output,
            env={**os.environ, **threads}, preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )  # fmt: skip
        running.add(process)
        log(f"{name}: begun")
        status = process.wait()
        running.discard(process)
    log(f"{name}: {'finished' if status == 0 else f'ended with {status}, see {folder}.log'}")
    if status == 0:
        keep(name, folder, {**options.made, "command": command(name, options.precision)})
    else:
        keep_parts(name, folder)
    return status


def take_up(name, folder, kept=KEPT):
    """Let a study of which nothing is here go on from what is kept of it."""
    if (kept / name / _PARTS[0]).exists() and not (folder / _PARTS[0]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            shutil.copyfile(kept / name / part, folder / part)


def keep_parts(name, folder, kept=KEPT):
    """Keep what an unfinished study has measured."""
    if not (folder / _PARTS[1]).exists():
        return
    (kept / name).mkdir(parents=True, exist_ok=True)
    begun = json.loads((folder / _PARTS[0]).read_text(encoding="utf-8"))
    begun["settings"] = _without_folders(begun["settings"])
    (kept / name / _PARTS[0]).write_text(json.dumps(begun, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(folder / _PARTS[1], kept / name / _PARTS[1])


def _without_folders(settings):
    """A study's settings but for the folders of this machine."""
    return {option: value for option, value in settings.items() if option not in ("data_dir", "wordnet")}


def keep(name, folder, made, kept=KEPT):
    """Copy what a finished study has measured, its summary and its figure, beside where it came from."""
    (kept / name).mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".csv", ".svg"):
            shutil.copyfile(path, kept / name / path.name)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["settings"] = _without_folders(summary["settings"])
    (kept / name / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (kept / name / "made.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    for part in _PARTS:
        (kept / name / part).unlink(missing_ok=True)
