"""Makes the benchmark tables of the two READMEs from the JSON files of benchmarks/results."""

import argparse
import json
import os
import pathlib
import sys
from typing import Callable, NamedTuple

import pretraining
import search
from methods import difference
from pairing import tracing_seconds
from tasks import VARIANTS

HERE = pathlib.Path(__file__).resolve().parent
README, NOTES = "README.md", "benchmarks/README.md"
START, END = "<!-- benchmarks:start -->", "<!-- benchmarks:end -->"
ARMS = {
    "adapters": "**adapters**, tf_adapters",
    "fast": "**adapters, fast**, tf_adapters",
    "checkpointed-adapters": "adapters, blocks computed again in the backward pass",
    "checkpointed-full": "full fine-tuning, the same",
    "checkpointed-fast": "adapters, fast, the same",
    "fast-upper": "adapters in the upper half, fast, no dropout",
    "fast-upper-cached": "the same on stored outputs of the lower half",
    "full": "full fine-tuning, TensorFlow",
    "torch-adapters": "adapters, PyTorch `adapters`",
    "torch-full": "full fine-tuning, PyTorch",
    "lora": "**LoRA r=8**, tf_adapters",
    "fast-lora": "**LoRA r=8, fast**, tf_adapters",
    "torch-lora": "LoRA r=8, PyTorch `peft`",
    "products": "the matrix products of the fast step alone",
    "forward-plain": "forward only, plain encoder",
    "forward-adapters": "forward only, **with adapters**",
    "forward-fast": "forward only, **with adapters, fast**",
    "torch-forward-adapters": "forward only, PyTorch `adapters`",
    "routed": "forward only, **bank of {} adapters, each row its own task**",
    "routed-single": "the same, one row at a time",
    "torch-switch": "forward only, PyTorch `adapters`, one row at a time, adapters switched",
}
METHODS = {
    "adapters": "**adapters**",
    "full": "full fine-tuning",
    "fast": "adapters, fast, bfloat16",
    "unsorted": "adapters, batches of random rows",
}

MODELS = {"minilm": "MiniLM (6 x 384)", "bert-base": "BERT-base (12 x 768)", "granite-embedding-30m-english": "granite-embedding-30m-english (RoBERTa, 6 x 384)"}


def read_results(folder):
    """All results below a folder: step results as `*.json`, studies as `*/summary.json`.

    Of results with the same key (model, batches, settings) only the newest counts.

    Returns: list of dicts, ordered by what they measure, so that the table never depends on
        the order of files.
    """
    folder = pathlib.Path(folder)
    newest = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/summary.json")]):
        result = json.loads(path.read_text(encoding="utf-8"))
        key = (result["kind"], *TABLES[result["kind"]].key(result))
        if key not in newest or newest[key]["date"] < result["date"]:
            newest[key] = {**result, "file": path.relative_to(folder).as_posix()}
    return [newest[key] for key in sorted(newest)]


def make_tables(results, file=README):
    """Markdown of the results that have their place in `file`, a path from the repository's root."""
    links = os.path.relpath("benchmarks/results", os.path.dirname(file) or ".")
    tables = [
        TABLES[result["kind"]].make({**result, "link": f"{links}/{result['file']}"})
        for result in results
        if TABLES[result["kind"]].place(result) == file
    ]
    return "\n\n".join(tables) or "No results yet."


def step_table(result):
    """Markdown of one result of step.py."""
    settings, batches = result["settings"], result["batches"]
    lengths = batches["lengths"]
    length = f"{lengths[0]}" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
    model = MODELS.get(settings["model"], settings["model"])
    weights = ", random weights" if result["weights"] == "random" else ""
    lines = [
        f"**{model}{weights}, {settings['batch_size']} rows of {length} tokens, {settings['precision']}"
        f"{', XLA' if settings['xla'] else ''}{'' if settings['bottleneck'] == 64 else ', bottleneck of %d' % settings['bottleneck']}**",
        "",
        "| | ms per step (min to max) | examples/s | tracing and compiling, s | peak memory, MiB | trained parameters | saved, MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    places = list(ARMS)
    for arm, row in sorted(result["arms"].items(), key=lambda item: (places.index(_shown_as(item[0])), row_number(item[1]), item[0])):
        _, _, precision = arm.partition("@")
        title = ARMS[_shown_as(arm)].format(f"{row_number(row):,}")
        step, tracing = row["step_ms"], tracing_seconds(row, len(lengths))
        trained = f"{row['trained_parameters']:,}" if row["trained_parameters"] else ""
        saved = f"{row['saved_bytes'] / 1e6:.1f}" if row["saved_bytes"] else ""
        lines.append(
            f"| {title}{precision and ', ' + precision} | {step['median']:.0f} ({step['min']:.0f} to {step['max']:.0f}) "
            f"| {row['examples_per_second']:.1f} | {tracing:.1f} | {row['peak_rss_mib']:,.0f} | {trained} | {saved} |"
        )
    if result["ratios"]:
        lines += ["", "| step time, paired by round | median | interval |", "|---|---:|---:|"]
    for name, ratio in result["ratios"].items():
        low, high = ratio["interval"] or (ratio["min"], ratio["max"])
        kind = "" if ratio["interval"] else " (range)"
        lines.append(f"| {name} | {ratio['median']:.2f} | {low:.2f} to {high:.2f}{kind} |")
    banks = [row for arm, row in result["arms"].items() if "resident" in row and not arm.endswith("single")]
    if banks:
        lines += ["", f"| {' | '.join(_BANK_COLUMNS)} |", "|---:" * len(_BANK_COLUMNS) + "|"]
    for row in sorted(banks, key=row_number):
        share = row["bytes_per_adapter"] / row["weights_per_adapter"]
        lines.append(
            f"| {row['resident']:,} | {row['weights_per_adapter'] / 1e6:.2f} | {share:.3f} times | {row['build_s']:.0f} | {row['built_rss_mib']:,.0f} "
            + (f"| {row['saved_bytes'] / 1e6:,.0f} | {row['load_s']:.1f} | {row['first_answer_s']:.1f} | {row['loaded_rss_mib']:,.0f} |"
               if "load_s" in row else "| not written | | | |")
        )
    lines += ["", _origin(result, f"{settings['rounds']} rounds of {settings['steps']} steps, {batches['text']}")]
    return "\n".join(lines)


_BANK_COLUMNS = (
    "resident adapters", "weights of one, MB", "in the bank", "ready after, s", "resident memory, MiB", "SavedModel, MB", "read, s",
    "first answer, s", "peak memory of its process, MiB",
)  # fmt: skip


def row_number(row):
    """The resident adapters of an arm, 0 of one without a bank."""
    return row.get("resident", 0)


def _shown_as(arm):
    """The entry of ARMS that an arm is shown as."""
    kind = arm.partition("@")[0]
    if not kind.startswith("routed"):
        return kind
    return "routed-single" if kind.endswith("single") else "routed"


def quality_table(result):
    """Markdown of one summary of quality.py."""
    settings = result["settings"]
    model = MODELS.get(settings["model"], settings["model"])
    lines = [
        f"**{settings['task']}, {model}: {settings['rows']:,} training rows, {settings['epochs']} epochs, accuracy on "
        f"{result['reported_rows']:,} rows that chose nothing**",
        "",
        "| | best learning rate | dropout | adapters' init | accuracy, % | sd | s.e.m. | trained parameters |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method, row in result["methods"].items():
        lines.append(
            f"| {METHODS[method]} | {row['learning_rate']:g}{' (edge of its grid)' if row['at_edge_of_grid'] else ''} "
            f"| {_dropout(row['dropout'])} | {_init(method, row)} | {100 * row['mean']:.2f} | {_points(row['sd'])} | {_points(row['sem'])} "
            f"| {row['trained_parameters']:,} |"
        )
    lines += ["", f"Adapters minus full fine-tuning: {_difference(result['adapters - full'])}."]
    if "further_rows" in result:
        means = ", ".join(f"{METHODS[method]} {100 * row['further']['mean']:.2f} %" for method, row in result["methods"].items())
        lines[-1] += (
            f" On {result['further_rows']:,} further rows of the training split, phrases of the same sentences as the training rows: "
            f"{means}; {_difference(result['adapters - full, further rows'])}."
        )
    lines += ["", _origin(result, f"seeds {', '.join(map(str, result['seeds']))}")]
    return "\n".join(lines)


def _difference(difference):
    text = f"{100 * difference['mean']:+.2f} points"
    if difference["interval"]:
        low, high = difference["interval"]
        text += f", 95 % interval {100 * low:+.2f} to {100 * high:+.2f} (paired t, {difference['n']} seeds)"
    return text


def tasks_table(result):
    """Markdown of one summary of tasks.py."""
    settings = result["settings"]
    model = MODELS.get(settings["model"], settings["model"])
    scores = [numbers for task in result["tasks"].values() for numbers in task["results"].values()]
    methods = [method for method in METHODS if any(method in numbers for numbers in scores)]
    variants = [method for method in methods if method in VARIANTS]
    columns = "".join(f" {METHODS[method]} |" for method in methods)
    columns += "".join(f" {method} minus adapters, points |" for method in variants)
    title = "Variants of adapter tuning" if variants else "Tasks"
    lines = [
        f"**{title}, {model}: at most {settings['rows']:,} training rows, {settings['epochs']} epochs, mean ± standard "
        "deviation over seeds, in %**",
        "",
        f"| | metric | training rows | constant answer |{columns} seeds |",
        "|---|---|---:|---:|" + "---:|" * (len(methods) + len(variants) + 1),
    ]
    for name, task in result["tasks"].items():
        for scored, numbers in task["results"].items():
            own = scored == "reported"
            constant = f"{100 * task['constant']:.1f}" if own and task["constant"] is not None else ""
            cells = " | ".join(
                [_mean_and_sd(numbers.get(method)) for method in methods]
                + [_short_difference(numbers.get(f"{variant} - adapters")) for variant in variants]
            )
            seeds = max(numbers[method]["n"] for method in methods if method in numbers)
            lines.append(
                f"| {name if own else f'{name}, zero-shot on {scored}'} | {task['metric'].replace('_', ' ')} "
                f"| {task['train_rows']:,} | {constant} | {cells} | {seeds} |"
            )
    for name, problem in result["passed_over"].items():
        lines.append(f"| {name} | not run: {problem.splitlines()[0]} |" + " |" * (len(methods) + len(variants) + 3))
    lines += ["", _origin(result, "tasks.py" + _rates(scores, methods))]
    return "\n".join(lines)


def _rates(scores, methods):
    """The learning rates that the methods had, where there were several, in words."""
    rates = {method: sorted({numbers[method]["learning_rate"] for numbers in scores if "learning_rate" in numbers.get(method, {})}) for method in methods}
    if all(len(of_method) < 2 for of_method in rates.values()):
        return ""
    listed = ", ".join(f"{method} {' or '.join(f'{rate:g}' for rate in of_method)}" for method, of_method in rates.items())
    return f"; learning rates, chosen for each task by validation at the first seed: {listed}"


def _mean_and_sd(numbers):
    if numbers is None:
        return ""
    return f"{100 * numbers['mean']:.1f}" + ("" if numbers["sd"] is None else f" ± {100 * numbers['sd']:.1f}")


def _short_difference(difference):
    if difference is None:
        return ""
    text = f"{100 * difference['mean']:+.2f}"
    if difference["interval"]:
        text += " ({:+.2f} to {:+.2f})".format(*(100 * bound for bound in difference["interval"]))
    return text


def pipeline_table(result):
    """Markdown of one result of pipeline.py."""
    settings = result["settings"]
    lines = [
        f"**Input pipeline and a step of adapter tuning on MiniLM, batches of {settings['batch_size']}**",
        "",
        "| rows of the file | MiB | read, s | pipeline, rows/s | training, rows/s | ratio | resident MiB: libraries, file read, peak |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size in result["sizes"]:
        memory = size["resident_mib"]
        lines.append(
            f"| {size['rows']:,} | {size['file_mib']:.0f} | {size['reading_s']:.1f} | {size['pipeline_rows_s']:,.0f} "
            f"| {size['training_rows_s']:,.0f} | {size['ratio']:.1f} "
            f"| {memory['libraries']:,.0f}, {memory['after_reading']:,.0f}, {memory['peak_of_batches']:,.0f} |"
        )
    return "\n".join([*lines, "", _origin(result, f"{settings['batches']} batches, {settings['steps']} steps")])


def costs_table(result):
    """Markdown of one result of costs.py."""
    settings = result["settings"]
    lines = ["**Small costs**", "", "| a process that imports | s (min to max) |", "|---|---:|"]
    lines += [f"| {name} | {_range(spread, 2)} |" for name, spread in result["imports_s"].items()]
    lines += [
        "",
        f"| a step of adapter tuning with fast blocks, MiniLM, {settings['batch_size']} sentences of SST-2, "
        f"{settings['precision']} | ms (min to max) | ratio, paired by round |",
        "|---|---:|---:|",
    ]
    first = next(iter(result["loops_ms"]))
    for name, spread in result["loops_ms"].items():
        ratio = result["ratios"].get(f"{name} / {first}")
        lines.append(f"| {name} | {_range(spread, 1)} | {_range(ratio, 3) if ratio else ''} |")
    return "\n".join([*lines, "", _origin(result, f"{settings['rounds']} rounds of {settings['steps']} steps")])


def _range(spread, digits):
    median, low, high = (f"{spread[name]:.{digits}f}" for name in ("median", "min", "max"))
    return f"{median} ({low} to {high})"


def padding_table(result):
    """Markdown of one result of padding.py."""
    lines = ["**Padding of an epoch of SST-2, sorted within shuffled windows**", "",
             "| rows of a batch | batches | padding, % of the tokens | shapes |", "|---:|---|---:|---:|"]  # fmt: skip
    for way in result["ways"]:
        lines.append(f"| {way['batch_size']} | {way['way']} | {100 * way['padding']:.1f} | {way['shapes']} |")
    return "\n".join([*lines, "", _origin(result, f"{result['rows']:,} rows")])


def profile_table(result):
    """Markdown of one result of profile_step.py."""
    settings, total = result["settings"], sum(group["ms"] for group in result["groups"].values())
    blocks = "plain" if settings["plain"] else "fast"
    lines = [
        f"**Where a step goes: adapter tuning on MiniLM with {blocks} blocks, {settings['batch_size']} rows of "
        f"{settings['length']} tokens, {settings['precision']}**",
        "", "| | ms, summed over threads | % | operations |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for name, group in result["groups"].items():
        lines.append(f"| {name} | {group['ms']:.1f} | {100 * group['ms'] / total:.0f} | {group['operations']:.0f} |")
    lines.append(f"| all, in a step of {result['step_ms']:.1f} ms | {total:.1f} | 100 | |")
    return "\n".join([*lines, "", _origin(result, f"{settings['steps']} steps")])


def scale_out_table(result):
    """Markdown of one result of scale_out.py."""
    settings, modes = result["settings"], result["modes"]
    lines = [
        f"**What a worker sends in a step: MiniLM, two workers, {settings['batch_size']} rows a step**", "",
        "| what trains | trained parameters | gradient without embedding tables, MB | sent by a worker in a step, MB |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for mode, row in modes.items():
        lines.append(
            f"| {METHODS[mode]} | {row['trained_parameters']:,} | {row['dense_gradient_bytes'] / 1e6:.2f} "
            f"| {row['bytes_per_step_and_worker'] / 1e6:.2f} |"
        )
    ratio = modes["full"]["bytes_per_step_and_worker"] / modes["adapters"]["bytes_per_step_and_worker"]
    lines += ["", f"Full fine-tuning sends {ratio:.1f} times as much."]
    return "\n".join([*lines, "", _origin(result, f"{settings['steps']} steps on the loopback interface")])


def soak_table(result):
    """Markdown of one result of soak.py."""
    changes, memory, settings = result["changes"], result["resident_mib"], result["settings"]
    rows = {
        "requests, of rows": f"{result['requests']:,}, {result['rows']:,}",
        "wrong answers": f"{len(result['wrong'])}",
        "tasks added, replaced, removed meanwhile": ", ".join(f"{changes[name]:,}" for name in ("added", "replaced", "removed")),
        "resident memory, MiB: at first, after a quarter, at most, at the end": (
            f"{memory[0]:,.0f}, {memory[len(memory) // 4]:,.0f}, {max(memory):,.0f}, {memory[-1]:,.0f}"
        ),
        "seconds": f"{result['seconds']:,.0f}",
    }
    kind = "random" if result["random_adapters"] else "trained ones and such with noise"
    return "\n".join([
        f"**A bank of {settings['tasks']:,} tasks under load: {result['adapters']} adapters, {kind}**", "", "| | |", "|---|---:|",
        *(f"| {name} | {value} |" for name, value in rows.items()), "", _origin(result, f"{settings['threads']} threads"),
    ])  # fmt: skip


def methods_table(result):
    """Markdown of one result of methods.py: for each task a row for each method."""
    lines = [
        f"**Methods at equal numbers of trained parameters on {MODELS.get(result['settings']['model'], result['settings']['model'])}**", "",
        "| task | method | trained | best rate | result, % | minus Houlsby, points (95 %) |", "|---|---|---:|---:|---:|---|",
    ]  # fmt: skip
    for task, row in result["tasks"].items():
        for method, numbers in row["methods"].items():
            size = numbers["config"].get("bottleneck_size", numbers["config"].get("rank"))
            edge = " (edge of the grid)" if numbers["at_edge_of_grid"] else ""
            lines.append(
                f"| {task}, {row['metric']} | {method}, {size} | {numbers['trained_parameters']:,} | {numbers['learning_rate']:g}{edge} | "
                f"{_mean_and_sd(numbers)} | {difference(numbers['minus houlsby'])} |"
            )
    settings = result["settings"]
    what = f"{settings['rows']:,} rows, {settings['epochs']} epochs, seeds {', '.join(map(str, result['seeds']))}"
    return "\n".join([*lines, "", _origin(result, what)])


def parity_table(result):
    """Markdown of one result of adapterhub_parity.py: the greatest differences of each adapter and head on each family."""
    names = sorted({name.split("/")[1] for name in result["imported"]})
    families = sorted({name.split("/")[0] for name in result["imported"]})

    def cell(name):
        if name not in result["imported"]:
            return ""
        if "refused" in result["imported"][name]:
            return "refused"
        # What came from PEFT is not exported.
        found = [result[direction][name] for direction in ("imported", "exported") if name in result[direction]]
        return ", ".join(f"{max(differences.values()):.0e}" for differences in found)

    return "\n".join([
        "**Greatest difference from `adapters` and PEFT on PyTorch, hidden states and logits: their file imported here, ours exported there**", "",
        f"| | {' | '.join(families)} |", "|---|" + "---:|" * len(families),
        *(f"| {name} | {' | '.join(cell(f'{family}/{name}') for family in families)} |" for name in names), "",
        _origin(result, "tiny random encoders, float32"),
    ])  # fmt: skip


def conformance_table(result):
    """Markdown of one result of conformance.py: a column for each family, a row for each variant, head or property."""
    families = sorted({case["parameters"]["family"] for case in result["cases"] if "family" in case["parameters"]})
    groups, alone, notes = {}, [], []
    for case in result["cases"]:
        if "family" not in case["parameters"]:
            alone.append(case)
            continue
        others = [value if isinstance(value, str) else f"{name}={value}" for name, value in case["parameters"].items() if name != "family"]
        groups.setdefault(case["test"], {}).setdefault(", ".join(others), {})[case["parameters"]["family"]] = case
    lines = ["**What the tests of every family found**", "", f"| | {' | '.join(families)} |", "|---|" + "---|" * len(families)]
    for test, rows in groups.items():
        # What a cell of the group stands for; one that announced less says so.
        checks = list(dict.fromkeys(check for row in rows.values() for case in row.values() for check in case["checks"]))
        title = f"**{_sentence(test)}**" + (f" ({'; '.join(checks)})" if checks else "")
        if list(rows) != [""]:
            lines.append(f"| {title} |" + " |" * len(families))
        for name, row in rows.items():
            cells = (_conformance_cell(row[family], checks, notes) if family in row else "" for family in families)
            lines.append(f"| {name or title} | {' | '.join(cells)} |")
    lines.append("")
    if alone:
        others = (f"{_sentence(case['test'])} {_conformance_cell(case, case['checks'], notes)}" for case in alone)
        lines += [f"Beside these: {'; '.join(others)}.", ""]
    lines += [*(f"{number}. {note}" for number, note in enumerate(notes, 1)), *([""] if notes else [])]
    selected = f", of those that `{result['settings']['select']}` selects" if result["settings"]["select"] else ""
    seconds = sum(case["seconds"] for case in result["cases"])
    return "\n".join([*lines, _origin(result, f"{len(result['cases'])} tests{selected}, {seconds:,.0f} s")])


def _sentence(test):
    return test.removeprefix("test_").replace("_", " ")


def _conformance_cell(case, checks, notes):
    """One cell; the reasons go to `notes`, each once."""
    outcome = case["outcome"]
    if outcome == "passed" and case["refused"] is None:
        return "✓" if len(case["checks"]) == len(checks) else f"✓ ({len(case['checks'])} of {len(checks)})"
    if outcome == "not run":
        return "**not run**"
    reason = case["refused"] if outcome == "passed" else case["reason"]
    word = {"passed": "refused", "skipped": "skipped", "failed": ": ".join(["**failed**", *case["checks"][-1:]])}[outcome]
    if reason not in notes:
        notes.append(reason)
    return f"{word} <sup>{notes.index(reason) + 1}</sup>"


class Table(NamedTuple):
    """How the results of one kind are shown: Markdown, what only the newest is shown of, and in which file."""

    make: Callable
    key: Callable  # strings and numbers only: they are sorted
    place: Callable = lambda result: README


def _settings(*names):
    return lambda result: tuple(result["settings"][name] for name in names)


def _is_of_cached_blocks(result):
    return any("upper" in arm for arm in result["arms"])


def _is_of_lora(result):
    return "lora" in result["arms"] or "fast-lora" in result["arms"]


def _residents(result):
    """How many adapters the banks of a result hold."""
    return sorted({row["resident"] for row in result["arms"].values() if "resident" in row})


def _methods(result):
    return sorted({name for task in result["tasks"].values() for numbers in task["results"].values() for name in numbers})


def _in_notes(result):
    return NOTES


TABLES = {
    "adapterhub-parity": Table(parity_table, lambda result: (), _in_notes),
    "conformance": Table(conformance_table, lambda result: (result["settings"]["select"] or "",), _in_notes),
    "costs": Table(costs_table, _settings("precision"), _in_notes),
    "methods": Table(methods_table, _settings("model", "rows", "epochs", "parameters")),
    "padding": Table(padding_table, lambda result: (), _in_notes),
    "pipeline": Table(pipeline_table, _settings("batch_size")),
    "pretraining": Table(lambda result: pretraining.table(result, _origin), _settings("model", "rows", "epochs", "steps")),
    "profile": Table(profile_table, _settings("batch_size", "length", "precision", "plain"), _in_notes),
    "quality": Table(quality_table, _settings("task", "model", "rows", "epochs")),
    "scale-out": Table(scale_out_table, _settings("batch_size", "bottleneck")),
    "search": Table(lambda result: search.table(result, _origin), _settings("task", "model", "rows", "epochs")),
    "soak": Table(soak_table, _settings("tasks", "copies"), _in_notes),
    "step": Table(
        step_table,
        lambda result: (
            *_settings("model", "batches", "precision", "batch_size", "bottleneck", "xla")(result), _is_of_cached_blocks(result), _is_of_lora(result),
            *_residents(result),
        ),
        lambda result: NOTES if _is_of_cached_blocks(result) or _is_of_lora(result) else README,
    ),
    "tasks": Table(
        tasks_table,
        lambda result: (*_settings("model", "rows", "epochs")(result), *_methods(result)),
        lambda result: NOTES if set(VARIANTS) & set(_methods(result)) else README,
    ),
}  # fmt: skip


def replace_section(text, tables):
    """The README's text with `tables` between the two marker lines; ValueError without them."""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise ValueError(f"it must hold the lines {START} and {END}, once each and in this order")
    before, rest = text.split(START)
    return f"{before}{START}\n{tables}\n{END}{rest.split(END)[1]}"


def _origin(result, what):
    versions = result["versions"]
    if result["kind"] == "step":
        versions = {**versions["torch"], **versions["tensorflow"]}
    names = {"tensorflow": "TensorFlow", "torch": "PyTorch", "adapters": "adapters", "peft": "peft"}
    used = ", ".join(f"{label} {versions[name]}" for name, label in names.items() if name in versions)
    machine, git = result["machine"], result["git"]
    commit = (git["commit"] or "unknown")[:7] + (" with changes" if git["dirty"] else "")
    busy = result.get("busy_cores_in_pauses", 0)
    warning = f" Other programs used {busy:.1f} cores meanwhile." if busy > 0.15 else ""
    return (
        f"<sub>{what}; {machine['cores']} cores of {machine['cpu']}; {used}; {result['date'][:10]}, commit {commit}; "
        f"[{result['file']}]({result['link']}).{warning}</sub>"
    )


def _dropout(rate):
    return "encoder's" if rate is None else f"{rate:g}"


def _init(method, row):
    return "" if method == "full" else "0.01" if row["init_stddev"] is None else f"{row['init_stddev']:g}"


def _points(value):
    return "" if value is None else f"{100 * value:.2f}"


def main():
    parser = argparse.ArgumentParser(
        description=f"{__doc__} They stand in {README} and {NOTES} between the lines {START} and {END}; everything else there "
        "stays as it is."
    )
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent, help="folder of the READMEs; default: the repository")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="default: benchmarks/results")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a table is out of date")
    options = parser.parse_args()
    changed = {}
    for file in (README, NOTES):
        try:
            old = (options.root / file).read_text(encoding="utf-8")
            new = replace_section(old, make_tables(read_results(options.results), file))
        except (OSError, ValueError) as error:
            print(f"{options.root / file}: {error}", file=sys.stderr)
            sys.exit(2)
        if new != old:
            changed[file] = new
    if options.check:
        if changed:
            sys.exit(f"The tables of {' and '.join(changed)} are out of date: run python benchmarks/table.py")
        return
    for file, text in changed.items():
        (options.root / file).write_text(text, encoding="utf-8")
    print(f"Updated {' and '.join(changed)}." if changed else "Nothing to do.")


if __name__ == "__main__":
    main()
