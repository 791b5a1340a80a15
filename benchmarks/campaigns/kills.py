"""Commands that are killed (`kill -9`) at random moments and at chosen file operations, or whose disk is full: what is
there is whole, and goes on."""

import collections
import contextlib
import csv
import dataclasses
import functools
import io
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import sys
import time

from benchmarks.campaigns.file_operations import FileOperations
from benchmarks.provenance import ROOT
from benchmarks.result_file import finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin

MOST_ATTEMPTS = 6
SECONDS_OF_A_COMMAND = 600
EVENTS = ("kill before", "kill after")
FAILURES = ("full disk", "read-only")
TRAINING = ["--max-length=16", "--adapter-size=2", "--batch-size=16", "--epochs=2", "--checkpoint-seconds=0"]
# What says how long something took, or is drawn; and keras-tuner's own notes, which a search that goes on makes anew.
_TIMES = {"seconds"}
_BY_NAME_ALONE = (".png", "oracle.json", "tuner0.json", "trial.json", "saved_model.pb", "fingerprint.pb")
# Drawn by `pretrain` after its end.
_OPTIONAL = ("perplexity.png",)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command on an output folder.

    Attributes:
        command: str, the one that its cases count for.
        words: list of the command's words, without the output and --overwrite.
        older: words of the command that made what is there before and is replaced, or, of versions, stays; or None.
        versions: bool, the output is a folder of versions, of which the command writes the second, and the same command
            goes on.
    """

    command: str
    words: list
    older: list = None
    versions: bool = False

    @property
    def first_flags(self):
        """What the command is begun with."""
        return ("--overwrite",) if self.older is not None and not self.versions else ()

    def line(self, output, *flags):
        """The words of the command line."""
        return [*self.words, *flags, f"--output={output / '2' if self.versions else output}"]


def scenarios(data):
    """All of them, by name, on what `prepare` made."""
    files = [f"--train={data / 'acme' / 'train.csv'}", f"--validation={data / 'acme' / 'dev.csv'}"]
    model = f"--model={data / 'encoder'}"
    train = ["train", model, *files, *TRAINING]
    tune = [
        "tune",
        model,
        *files,
        "--space=none",
        "--vary=adapter-size=2,4",
        "--vary=epochs=1",
        "--vary=batch-size=16",
        "--tuner=grid",
        "--max-length=16",
    ]
    pretrain = [
        "pretrain",
        model,
        f"--train={files[0][8:]}",
        f"--validation={files[1][13:]}",
        "--adapter-size=2",
        "--steps=4",
        "--save-every=2",
    ]
    pretrain += ["--fit-head-steps=2", "--batch-size=16", "--max-length=16", "--checkpoint-seconds=0"]
    bank = ["export", "--adapters", f"a={data / 'a'}", f"b={data / 'b'}"]
    return {
        "train": Scenario("train", train),
        "train, seeds": Scenario("train", [*train, "--epochs=1", "--seeds=2"]),
        "train, overwrite": Scenario("train", train, older=[*train, "--seed=1"]),
        "tune": Scenario("tune", tune),
        "tune, seeds, overwrite": Scenario("tune", [*tune, "--seeds=2"], older=[*tune, "--seed=1"]),
        "pretrain": Scenario("pretrain", pretrain),
        "pretrain, overwrite": Scenario("pretrain", pretrain, older=[*pretrain, "--save-every=1", "--seed=1"]),
        "export": Scenario("export", ["export", str(data / "a")], versions=True),
        "export, bank": Scenario("export", bank, older=bank, versions=True),
    }


def prepare(data):
    """An encoder, two tasks and two adapters."""
    from tests.conftest import write_checkpoint, write_csv

    write_checkpoint(data / "encoder", num_hidden_layers=1)
    for number, name in enumerate(("acme", "globex")):
        (data / name).mkdir(parents=True)
        for seed, (split, rows) in enumerate({"train": 48, "dev": 16}.items()):
            write_csv(data / name / f"{split}.csv", rows, seed=2 * number + seed)
    for seed, name in enumerate("ab"):
        words = [
            f"--train={data / 'acme' / 'train.csv'}",
            f"--validation={data / 'acme' / 'dev.csv'}",
            f"--model={data / 'encoder'}",
        ]
        done = call(["train", *words, *TRAINING, f"--seed={seed}", f"--output={data / name}"], data / name)
        if done.status:
            raise RuntimeError(done.text)


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command ended: its status, or None if it was killed; what it printed; its seconds; and its file
    operations."""

    status: int
    text: str
    seconds: float
    operations: list


def call(words, folder, *, after=None, at=None, event=None):
    """Run `tf-adapters` in a child of this process, which has imported everything and computed nothing; a `Done`.

    Args:
        words: of the command line.
        folder: path, whose file operations count.
        after: seconds after which it is killed, or None.
        at, event: as of `FileOperations`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = folder.parent / f"{folder.name}.output"
    operations, started = name.with_suffix(".operations"), time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _run(words, folder, name, operations, at, event)
    limit, status = SECONDS_OF_A_COMMAND if after is None else after, 0
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() - started >= limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if after is None:
                raise TimeoutError(f"{words} did not end within {limit} s.")
            status = signal.SIGKILL
            break
        time.sleep(0.005)
    seconds, text = time.monotonic() - started, name.read_text(errors="replace")
    lines = operations.read_text().splitlines()
    for path in (name, operations):
        path.unlink()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError(f"{words} ended by signal {os.WTERMSIG(status)}: {text}")
    return Done(None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), text, seconds, lines)


def _run(words, folder, name, operations, at, event):
    """The child: does not return."""
    status = 70
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        file = open(operations, "wb")
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        FileOperations(folder, file=file, at=at, event=event).install()
        from tf_adapters.cli.main import main

        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def import_everything():
    """What the commands import, before the first fork; nothing of it computes."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("COLUMNS", "200")
    # The commands import by tf_adapters.cli.quiet, which computes: a child of a process that did hangs.
    import keras_tuner  # noqa: F401
    import matplotlib.figure  # noqa: F401

    import tf_adapters.cli.plots
    import tf_adapters.cli.pretraining_report
    import tf_adapters.cli.runs
    import tf_adapters.cli.search_report
    import tf_adapters.serving.export
    import tf_adapters.tuning.tuner  # noqa: F401


def apart(function):
    """Let a function run in a child of this process, since a child that is forked from a process that computed
    hangs."""

    @functools.wraps(function)
    def call_apart(*arguments):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=lambda: sender.send(function(*arguments)))
        child.start()
        sender.close()
        try:
            return receiver.recv()
        finally:
            child.join()

    return call_apart


@apart
def clear(folder):
    """Remove what writers that are over left in a folder, as the next one does."""
    from tf_adapters.saving.atomic import remove_dead

    remove_dead(folder)


@apart
def content(folder):
    """What stands in a folder, by path: bytes, or what a file says without times; None of a folder or of what counts by
    its name alone."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = None
        elif path.name not in _OPTIONAL:
            by_name = (
                path.name.endswith(_BY_NAME_ALONE)
                or path.name.startswith("variables.data-")
                or ".tf_adapters.tmp/" in name
            )
            found[name] = None if by_name else _without_times(path)
    return found


def _without_times(path):
    if path.name == "variables.index":
        return _variables(path.with_suffix(""))
    if path.suffix == ".json":
        return _stripped(json.loads(path.read_text(encoding="utf-8")))
    if path.name == "trials.csv":
        return [{**row, "seconds": None} for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))]
    return path.read_bytes()


def _variables(prefix):
    """The variables of a SavedModel; the bytes of its files differ by the order in which TensorFlow found what they
    belong to."""
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = set(reader.get_variable_to_dtype_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
        return {name: reader.get_tensor(name).tolist() for name in names}
    except tf.errors.OpError as error:
        return str(error)


def _stripped(value):
    if isinstance(value, dict):
        return {name: _stripped(part) for name, part in value.items() if name not in _TIMES}
    return [_stripped(part) for part in value] if isinstance(value, list) else value


def difference(found, expected):
    """The first difference of two contents as text, or None."""
    for name in sorted({*found, *expected}):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} was left behind"
        if found[name] != expected[name]:
            return f"{name} differs"
    return None


@apart
def check_whole(scenario, output, expected):
    """What is wrong with what a kill left, as text, or None: adapters that cannot be read, versions that are not those
    of the whole run."""
    from tf_adapters.errors import InputError
    from tf_adapters.saving.directory import read_adapter

    if scenario.versions:
        there = content(output)
        for version in (path.name for path in output.iterdir() if path.name.isdecimal()) if output.is_dir() else ():
            problem = difference(
                *(
                    {name: value for name, value in part.items() if name.startswith(version + "/")}
                    for part in (there, expected)
                )
            )
            if problem:
                return f"not whole: {problem}"
        return None
    for path in output.rglob("tf_adapters.json"):
        if not any(part.endswith(".tmp") for part in path.parts):
            try:
                read_adapter(path.parent)
            except InputError as error:
                return f"not whole: {error}"
    return None


def next_flags(text, first_flags):
    """What a refusal advises: the flags of the next command, "done" if there is nothing left to do, or None if it
    advises nothing.

    To replace what is there is advice for a command that was to do that.
    """
    text = " ".join(text.split())
    if "start one without --resume" in text:
        return ()
    if "go on with it by --resume" in text:
        return ("--resume",)
    if "--overwrite" in first_flags and "--overwrite" in text:
        return first_flags
    if (
        "holds no interrupted run, but what one came to" in text
        or "is there already, and a server may be reading it" in text
    ):
        return "done"
    # It does not say whether what is there is complete.
    return ("--resume",) if "is not empty: replace it by --overwrite" in text else None


def run_case(scenario, whole, older, folder, case):
    """Do what a case plans, follow the advice until the command ends, and compare; returns `(problem or None,
    counts)`."""
    shutil.rmtree(folder, ignore_errors=True)
    output = folder / "output"
    if older is not None:
        shutil.copytree(older, output, symlinks=True)
    counts = collections.Counter()
    done = call(scenario.line(output, *scenario.first_flags), output, **case["first"])
    problem = _check_end(done, case["first"], counts) or check_whole(scenario, output, whole.content)
    if problem:
        return problem, counts
    flags, tried, second = () if scenario.versions or case["starts_plain"] else ("--resume",), [], case["second"]
    if done.status == 0:
        flags = "done"
        if case["first"].get("event") in FAILURES:
            # The disk failed while what was done with was removed, and the next writer's first act removes it.
            clear(output)
    while flags != "done":
        # A kill may come again; the same words twice without one lead in a circle.
        if flags in tried or len(tried) == MOST_ATTEMPTS:
            return f"the advice leads in a circle: {tried} and then {flags}: {done.text.strip()[-400:]}", counts
        done = call(scenario.line(output, *flags), output, **(second or {}))
        counts["commands"] += 1
        problem = check_whole(scenario, output, whole.content)
        if problem:
            return problem, counts
        if done.status == 0:
            break
        if second is not None and (done.status is None or second["event"] in FAILURES):
            problem = _check_end(done, second, counts)
            if problem:
                return problem, counts
            counts["second kills" if done.status is None else "second failures"] += 1
            tried, second = [], None
            continue
        problem = _check_sentence(done)
        if problem:
            return problem, counts
        tried.append(flags)
        flags = next_flags(done.text, scenario.first_flags)
        if flags is None:
            return f"no advice: {done.text.strip()[-400:]}", counts
    return difference(content(output), whole.content), counts


def _check_end(done, plan, counts):
    """What is wrong with how a command ended that was to be killed, or whose disk failed; or None."""
    if plan.get("event") in FAILURES:
        counts["failures" if done.status else "ended before"] += 1
        return _check_sentence(done) if done.status else None
    counts["kills" if done.status is None else "ended before"] += 1
    return None if done.status in (None, 0) else f"ended with {done.status}: {done.text.strip()[-400:]}"


def _check_sentence(done):
    """What is wrong with a refusal: it is one line, with status 2."""
    errors = [line for line in done.text.splitlines() if line.startswith("error: ")]
    if done.status != 2 or len(errors) != 1 or "Traceback" in done.text:
        return f"status {done.status}: {done.text.strip()[-800:]}"
    return None


@dataclasses.dataclass(frozen=True)
class Whole:
    """A run that was not killed: its content, seconds and operations."""

    content: dict
    seconds: float
    operations: list


def plan(scenario, whole, count, failures, random_share, second_share, hit, random):
    """The cases of a scenario: dicts for JSON of what happens `first` and perhaps `second`, and how one goes on.

    `hit` is a set of kinds of operations that the command's other scenarios are killed at, to which those of this one
    are added.
    """
    cases = []
    at_random = round(count * random_share)
    firsts = [{"after": float(random.uniform(0.02, 0.98) * whole.seconds)} for _ in range(at_random)]
    firsts += [
        {"at": at, "event": EVENTS[number % 2]}
        for number, at in enumerate(spread(whole.operations, count - at_random, hit, random))
    ]
    firsts += [
        {"at": at, "event": FAILURES[number % 2]}
        for number, at in enumerate(spread(whole.operations, failures, set(), random))
    ]
    for number, first in enumerate(firsts):
        second = None
        if not scenario.versions and random.random() < second_share:
            second = {"at": int(random.integers(len(whole.operations))), "event": str(random.choice(EVENTS))}
        cases.append({"first": first, "second": second, "starts_plain": number % 3 == 0})
    return cases


def kind_of(operation):
    """What an operation does to which file, in whatever folder of a run's."""
    what, path = operation.split(" ", 1)
    return f"{what} {re.sub(r'[0-9]+', '0', os.path.basename(path))}"


def spread(operations, count, hit, random):
    """Numbers of `count` operations: one of each kind first that is not in `hit`, which it joins, the rest at equal
    distances."""
    of_kind = {}
    for number, name in enumerate(operations):
        of_kind.setdefault(kind_of(name), []).append(number)
    kinds = [kind for kind in of_kind if kind not in hit]
    random.shuffle(kinds)
    chosen = [int(random.choice(of_kind[kind])) for kind in kinds[:count]]
    hit.update(kinds[:count])
    rest = count - len(chosen)
    return [*chosen, *(int((number + random.random()) * len(operations) / rest) for number in range(rest))]


def campaign(options):
    """All cases that are not done; the dict for JSON of all."""
    import numpy as np

    work = options.work.resolve()
    data = work / "data"
    shutil.rmtree(data, ignore_errors=True)
    import_everything()
    print("Making an encoder and adapters ...", flush=True)
    prepare(data)
    kinds = {
        name: scenario
        for name, scenario in scenarios(data).items()
        if not options.only or scenario.command in options.only
    }
    plans, wholes, olders, hit = {}, {}, {}, collections.defaultdict(set)
    for number, (name, scenario) in enumerate(kinds.items()):
        base = work / "whole" / name.replace(", ", "-")
        shutil.rmtree(base, ignore_errors=True)
        olders[name] = None
        if scenario.older is not None:
            olders[name] = base / "older" / "output"
            line = dataclasses.replace(scenario, words=scenario.older).line(olders[name])
            line = [word[:-2] + "/1" if scenario.versions and word.startswith("--output=") else word for word in line]
            _ended(call(line, olders[name]))
            shutil.copytree(olders[name], base / "output")
        done = _ended(call(scenario.line(base / "output", *scenario.first_flags), base / "output"))
        wholes[name] = Whole(content(base / "output"), done.seconds, done.operations)
        print(
            f"{name}: {done.seconds:.1f} s, {len(done.operations)} file operations of "
            f"{len(set(map(kind_of, done.operations)))} kinds",
            flush=True,
        )
        # Of a command's cases each scenario has its share.
        fellows = [other for other, one in kinds.items() if one.command == scenario.command]
        number_of = options.exports if scenario.command == "export" else options.kills
        share = [len(part) for part in np.array_split(np.arange(number_of), len(fellows))][fellows.index(name)]
        random = np.random.default_rng([options.seed, list(scenarios(data)).index(name)])
        if scenario.versions:
            share = number_of
        plans[name] = plan(
            scenario,
            wholes[name],
            share,
            options.failures,
            options.random_share,
            options.second_share,
            hit[scenario.command],
            random,
        )
    rows = _rows_that_are_there(work / "cases.jsonl", plans) if options.resume else []
    if not options.resume:
        (work / "cases.jsonl").unlink(missing_ok=True)
    done_before = {(row["scenario"], row["number"]) for row in rows}
    left = [
        (name, number, case)
        for name, cases in plans.items()
        for number, case in enumerate(cases)
        if (name, number) not in done_before
    ]
    left = [item for item in left if options.case is None or f"{item[0]} {item[1]}" == options.case]
    started = time.monotonic()
    for position, (name, number, case) in enumerate(left):
        folder = work / "cases" / f"{name.replace(', ', '-')}-{number}"
        began = time.monotonic()
        problem, counts = run_case(kinds[name], wholes[name], olders[name], folder, case)
        operation = wholes[name].operations[case["first"]["at"]] if "at" in case["first"] else None
        row = {
            "scenario": name,
            "number": number,
            **case,
            "operation": operation,
            "problem": problem,
            "counts": dict(counts),
        }
        row["seconds"] = round(time.monotonic() - began, 1)
        rows.append(row)
        with open(work / "cases.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if problem is None:
            shutil.rmtree(folder)
        else:
            print(f"FAILED {name} {number}: {json.dumps(case)} {operation}: {problem}\n  kept: {folder}", flush=True)
        each = (time.monotonic() - started) / (position + 1)
        failed = sum(row["problem"] is not None for row in rows)
        print(
            f"{position + 1} of {len(left)}, {failed} failed, {each:.0f} s a case, "
            f"{each * (len(left) - position - 1) / 60:.0f} min left",
            flush=True,
        )
    return {"commands": summarise(rows, kinds, wholes), "failed": [row for row in rows if row["problem"] is not None]}


def _ended(done):
    if done.status != 0:
        raise RuntimeError(done.text)
    return done


def _rows_that_are_there(path, plans):
    """Cases that an earlier call of the same campaign did, and that were as they should be."""
    rows = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
    known = []
    for row in rows:
        cases = plans.get(row["scenario"], [])
        if row["number"] < len(cases):
            # What follows from the seed; moments differ, being shares of a run's seconds.
            same = {name: value for name, value in cases[row["number"]]["first"].items() if name != "after"}
            if row["problem"] is None and same == {
                name: value for name, value in row["first"].items() if name != "after"
            }:
                known.append(row)
    return known


def summarise(rows, kinds, wholes):
    """Counts of each command, a dict for JSON."""
    summary = {}
    for command in dict.fromkeys(scenario.command for scenario in kinds.values()):
        names = [name for name, scenario in kinds.items() if scenario.command == command]
        own = [row for row in rows if row["scenario"] in names]
        total = collections.Counter()
        for row in own:
            total.update(row["counts"])
        hit = {
            kind_of(row["operation"]) for row in own if row["operation"] is not None and row["first"]["event"] in EVENTS
        }
        summary[command] = {
            "scenarios": names,
            "cases": len(own),
            "kills_at_random_moments": sum("after" in row["first"] for row in own),
            "kills_at_operations": sum(row["first"].get("event") in EVENTS for row in own),
            "failures": sum(row["first"].get("event") in FAILURES for row in own),
            "second_kills": total["second kills"],
            "ended_before": total["ended before"],
            "commands_to_go_on": total["commands"],
            "kinds_of_operations": len({kind_of(operation) for name in names for operation in wholes[name].operations}),
            "kinds_hit": len(hit),
            "failed": sum(row["problem"] is not None for row in own),
            "seconds": round(sum(row["seconds"] for row in own), 1),
        }
    return summary


def describe(result):
    """The result as lines of text."""
    lines = [
        f"{command}: {row['cases']} cases, {row['kills_at_random_moments']} killed at random moments, "
        f"{row['kills_at_operations']} at {row['kinds_hit']} of {row['kinds_of_operations']} kinds of file operations, "
        f"{row['second_kills']} killed again, {row['failures']} on a failing disk; {row['ended_before']} ended before; "
        f"{row['failed']} failed; {row['seconds']:.0f} s"
        for command, row in result["commands"].items()
    ]
    return "\n".join(
        [*lines, *(f"FAILED {row['scenario']} {row['number']}: {row['problem']}" for row in result["failed"])]
    )


def table(result):
    """Markdown of one result."""
    lines = [
        "**Commands that were killed, or whose disk was full or read-only, and then went on to what a run comes to "
        "that was not**",
        "",
        "| command | at random moments | at file operations (kinds) | killed again | on a failing disk | not as they "
        "should be |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for command, row in result["commands"].items():
        hit = f"{row['kills_at_operations']} ({row['kinds_hit']} of {row['kinds_of_operations']})"
        lines.append(
            f"| `{command}` | {row['kills_at_random_moments']} | {hit} | {row['second_kills']} | {row['failures']} | "
            f"{row['failed']} |"
        )
    total = sum(row["cases"] for row in result["commands"].values())
    return "\n".join([*lines, "", origin(result, f"{total} cases, seed {result['settings']['seed']}")])


TABLE = Table(table, of_settings("kills", "exports"), in_notes)


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " After each the files that are there must be whole, and following the command's own advice must end in the "
        "same bytes as a run that was not killed, with nothing left behind. A campaign that is stopped goes on by "
        "--resume.",
        smoke="two kills of each command",
    )
    parser.add_argument("--kills", type=int, default=50, help="of each of train, tune and pretrain")
    parser.add_argument(
        "--exports", type=int, default=20, help="kills of export, of a single adapter and of a bank each"
    )
    parser.add_argument(
        "--failures",
        type=int,
        default=10,
        help="of each scenario: at some operation the disk is full, or turns read-only",
    )
    parser.add_argument(
        "--random-share",
        type=float,
        default=0.4,
        help="share of the kills at random moments; the others at file operations",
    )
    parser.add_argument(
        "--second-share", type=float, default=0.4, help="share of the cases that are killed once more when they go on"
    )
    parser.add_argument(
        "--only", nargs="+", choices=["train", "tune", "pretrain", "export"], help="these commands alone"
    )
    parser.add_argument("--case", help="this case alone, such as `train 7`, as the campaign names it")
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=ROOT / ".benchmark-kills",
        help="folder of the cases; those that fail are kept",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the cases of the same campaign that are done and did not fail"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parse_arguments(parser, arguments, "kills", kills=3, exports=1, failures=1)


def main():
    options = parse()
    measured = campaign(options)
    if options.case is not None:
        options.output = None
    finish(
        "kills",
        options,
        ("kills", "exports", "failures", "random_share", "second_share", "only", "seed"),
        measured,
        describe,
    )
    if measured["failed"]:
        sys.exit(1)
