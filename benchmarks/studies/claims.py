"""What the recorded studies say of the papers' claims: the tables of docs/results.md and of the studies' folder.

A claim is a function over what is recorded. It yields a line and its verdicts, a dict from a task to a figure and a
word, so that a further task of a study that is here needs no new sentence.
"""

import math
import statistics

from benchmarks.studies.evidence import (
    UNCLEAR,
    Recorded,
    apart_by_seed,
    budget,
    by_seed,
    difference,
    edges,
    least,
    of_seeds,
    of_shares,
    of_spreads,
    one_rate,
    per_cent,
    ratio_of,
    reach,
    says,
    score,
    shown_by,
    verdict,
)
from benchmarks.studies.recorded import KEPT
from tf_adapters.studies.numbers import at_edge, paired_seeds

PAGE = "benchmarks/results/studies/README.md"
CLAIMS = []  # (claim, function), in the order of the table
_BEHIND = 0.004  # that adapters may be: Houlsby et al., section 3.2
_APART = 0.005  # that variants and sizes may be: the report, table 2; Houlsby et al., section 3.6
_ENOUGH = 0.1  # what all adapters must give together for a block's 2 % to say something


def make(recorded=None, *, brief=False):
    """Markdown of the claims of which something is recorded, "" if nothing is; `brief` with nothing but the figures
    from which the verdicts follow."""
    rows, recorded = [("claim", "found here", "verdict"), ("---",) * 3], recorded or Recorded(KEPT)
    for claim, look in CLAIMS:
        found = list(look(recorded))
        if found:
            verdicts = {task: both for _, of_line in found for task, both in of_line.items()}
            figures = [f"{task}: {figure}" for task, (figure, _) in verdicts.items()]
            lines = figures if brief else [line for line, _ in found]
            rows.append((claim, "<br>".join(lines), verdict({task: word for task, (_, word) in verdicts.items()})))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) if rows[2:] else ""


def claim(words):
    """Register a generator of `(line, verdicts)`, of each task a figure and a verdict on it."""

    def register(look):
        CLAIMS.append((words, look))
        return look

    return register


_GLUE = ("sharing-cola", "sharing-sst2", "sharing-stsb", "sharing-1000")
_ABLATIONS = ("ablation", "ablation-recipes")


@claim("Adapters score within 0.4 points of full fine-tuning on GLUE (Houlsby et al., table 1)")
def as_good(recorded):
    yield from _less_full(recorded, *_GLUE)
    result = recorded.other("sst2-minilm")
    if result:
        apart, further = result["adapters - full"], result["adapters - full, further rows"]
        share = recorded.constant_accuracies.get("glue/sst2")
        constant = "" if share is None else f"constant answer {100 * share:.1f}; "
        settings = {**result["settings"], "seeds": len(result["seeds"])}
        line = (
            f"SST-2 (accuracy; {budget(settings)}; {constant}`sst2-minilm`): full fine-tuning "
            f"{score(result['methods']['full'])}; less that: adapters {difference(apart)}, on "
            f"{result['further_rows']:,} further rows {difference(further)}"
        )
        figure = f"{difference(apart)}, on further rows {difference(further)}"
        word = least([says(one, above=-_BEHIND) for one in (apart, further)])
        yield line, {"SST-2 with 8,000 rows": (figure, word)}


@claim("And on further classification tasks (Houlsby et al., table 2; report, table 3)")
def as_good_elsewhere(recorded):
    yield from _less_full(recorded, "sharing-additional")


def _said(numbers, **bounds):
    """A difference and the verdict on it."""
    return difference(numbers), says(numbers, **bounds)


def _less_full(recorded, *names):
    means = []
    for found in recorded.tasks(*names):
        arms = found.about["arms"]
        less = [f"{arm['title']} {difference(arm['minus_full'])}" for arm in arms.values() if arm["minus_full"]]
        line = f"{found.words}: full fine-tuning {score(arms['full'])}; less that: {', '.join(less)}{edges(arms)}"
        yield line, {found.title: _said(arms["houlsby"]["minus_full"], above=-_BEHIND)}
        means.append(arms["houlsby"]["minus_full"]["mean"])
    if len(means) > 1:
        mean = 100 * statistics.fmean(means)
        yield f"Houlsby less full fine-tuning, mean of {len(means)} tasks: {mean:+.1f}", {}


@claim("Variants that share adapters lose 0.5 points at most (report, table 2)")
def sharing_costs_little(recorded):
    counts = None
    for found in recorded.tasks(*_GLUE, "sharing-additional"):
        arms, verdicts, shown = found.about["arms"], [], []
        for name in ("per-layer", "3-shared"):
            apart = apart_by_seed(arms[name], arms["unshared"])
            verdicts.append(says(apart, above=-_APART))
            shown.append(f"{arms[name]['title']} {difference(apart)}")
        line = f"{found.words}: unshared {score(arms['unshared'])}; less that: {', '.join(shown)}"
        yield line, {found.title: (", ".join(shown), least(verdicts))}
        counts = [f"{arms[name]['trained_parameters']:,}" for name in ("unshared", "per-layer", "3-shared")]
    if counts:
        yield f"Trained parameters: {', '.join(counts)}", {}


@claim("Adapters score higher than full fine-tuning on 1,000 rows (He et al., table 2)")
def few_rows(recorded):
    for found in recorded.tasks("low-resource-cola-sst2", "low-resource-1000"):
        (count,), arms = found.settings["counts"], found.about["arms"]
        few, full = (arms[f"{arm}, {count:g}"] for arm in ("adapters", "full"))
        yield _less(found, found.title, full, few["minus_full"], arms)
    for found in recorded.others("low-resource-minilm"):
        result, arms = found.about["results"]["reported"], {}
        for arm in ("adapters", "full"):
            tried = {run["learning_rate"] for run in recorded.other_runs("low-resource-minilm") if run["method"] == arm}
            arms[arm] = {"at_edge": at_edge(result[arm]["learning_rate"], tried)}
        title = f"{found.title} in {found.settings['epochs']} epochs"
        yield _less(found, title, result["full"], result["adapters - full"], arms)


def _less(found, title, full, apart, arms):
    line = f"{found.words}: full fine-tuning {score(full)}; adapters less that: {difference(apart)}{edges(arms)}"
    return line, {title: _said(apart, above=0)}


@claim("Adapters vary less over seeds (He et al., figure 4; Han et al., figure 2)")
def less_spread(recorded):
    for found in recorded.tasks("stability-cola", "stability-sst2"):
        arms = [max(arm["rates"].values(), key=lambda row: row["mean"]) for arm in found.about["arms"].values()]
        shown = (f"{score(row)} of {row['n']} seeds, {100 * row['collapsed']:.0f} % collapsed" for row in arms)
        ratio, at_best = of_spreads(*arms), f"{found.words}, each at its best rate"
        line = f"{at_best}: {' with adapters; '.join(shown)} with full fine-tuning; ratio of the deviations "
        word = says(ratio, below=1) if ratio else UNCLEAR
        yield line + ratio_of(ratio), {found.title: (f"ratio {ratio_of(ratio)}", word)}


@claim("Adapters depend less on the learning rate (He et al., figure 4)")
def any_rate(recorded):
    for found in recorded.tasks("stability-cola", "stability-sst2"):
        apart, shown, lost = [], [], []
        for arm in found.about["arms"].values():
            rates = [of_seeds(row) for row in arm["rates"].values()]
            scores = {seed: [row[seed] for row in rates] for seed in set.intersection(*map(set, rates))}
            apart.append({seed: max(of_seed) - min(of_seed) for seed, of_seed in scores.items()})
            scores = ", ".join(f"{100 * row['mean']:.1f} at {rate}" for rate, row in arm["rates"].items())
            lost.append(sum(row["collapsed"] > 0.5 for row in arm["rates"].values()))
            shown.append(
                f"{arm['title']} {scores}, from best to worst {100 * statistics.fmean(apart[-1].values()):.1f}, most "
                f"runs collapsed at {lost[-1]} of {len(arm['rates'])} rates"
            )
        less = paired_seeds(*apart)
        # Where both grids reach the constant answer, the best to the worst is only the best.
        line = f"{found.words}: {'; '.join(shown)}; best to worst, adapters less full fine-tuning: {difference(less)}"
        yield line, {found.title: (difference(less), UNCLEAR if all(lost) else says(less, below=0))}


@claim("With fewer trained parameters adapters score higher than the uppermost block (Houlsby et al., figure 4)")
def cheaper(recorded):
    for found in recorded.tasks("size", "size-sst2"):
        arms = found.about["arms"]
        shown = (
            f"{arms[name]['title']} {score(arms[name])} with {arms[name]['trained_parameters'] / 1e6:.1f} million"
            for name in ("adapters-64", "adapters-512", "top-1", "top-2", "top-4", "full")
        )
        apart = apart_by_seed(arms["adapters-64"], arms["top-1"])
        line = f"{found.words}: {', '.join(shown)}; adapters of 64 less top 1: {difference(apart)}"
        yield line + one_rate(found.settings), {found.title: _said(apart, above=0)}


@claim("The size of the adapters matters by 0.5 points at most (Houlsby et al., section 3.6)")
def size_matters_little(recorded):
    for found in recorded.tasks("size", "size-sst2"):
        arms = found.about["arms"]
        of_size = {size: arms[f"adapters-{size}"] for size in (8, 64, 512)}
        others = f"; with one {score(arms['adapters-1'])}, the LayerNorms alone {score(arms['layer-norm'])}"
        yield _sizes(found.words, found.title, of_size, others + one_rate(found.settings))
    result = recorded.other("search-cola-minilm")
    if result:
        of_size, settings = {}, result["settings"]
        for cell in sorted(result["cells"], key=lambda cell: cell["mean"]):
            of_size[cell["bottleneck_size"]] = cell  # the last one is the best
        words = (
            f"CoLA ({settings['metric']} of the rows that chose; {settings['rows']:,} rows, {settings['epochs']} "
            f"epochs, {settings['seeds']} seeds; the constant answer 0.0; `search-cola-minilm`)"
        )
        share = recorded.constant_accuracies.get(settings["task"])
        tested = "" if share is None else (
            f"; accuracy of the best on the reported rows {100 * result['test']['accuracy']:.1f}, the constant "
            f"answer's {100 * share:.1f}"
        )  # fmt: skip
        yield _sizes(words, "CoLA, each size at its best rate", dict(sorted(of_size.items())), tested)


def _sizes(words, title, of_size, others):
    apart = {size: apart_by_seed(row, of_size[64]) for size, row in of_size.items() if size != 64}
    shown = ", ".join(f"with {size} {difference(numbers)}" for size, numbers in apart.items())
    verdicts = [says(numbers, above=-_APART, below=_APART) for numbers in apart.values()]
    return f"{words}: {score(of_size[64])} with 64; less that: {shown}{others}", {title: (shown, least(verdicts))}


@claim("Adapters of other places score alike, to 0.5 points (Houlsby et al., section 3.6)")
def other_places(recorded):
    for found in recorded.others("methods-minilm"):
        methods = found.about["methods"]
        apart = {name: methods[name]["minus houlsby"] for name in ("parallel", "pfeiffer")}
        titles = {"parallel": "beside the feed-forward part", "pfeiffer": "after the block alone"}
        shown = ", ".join(f"{titles[name]} {difference(numbers)}" for name, numbers in apart.items())
        verdicts = [says(numbers, above=-_APART, below=_APART) for numbers in apart.values()]
        arms = {name: {"at_edge": methods[name]["at_edge_of_grid"]} for name in ("houlsby", *apart)}
        line = f"{found.words}: Houlsby {score(methods['houlsby'])}; less that, of as many parameters: {shown}"
        yield line + edges(arms), {found.title: (shown, least(verdicts))}


@claim("Initial weights of a standard deviation below 0.01 are as good, to 0.5 points (Houlsby et al., figure 6)")
def small_weights(recorded):
    yield from _against_the_papers(recorded, lambda sigma: sigma < 0.01, above=-_APART, below=_APART)


@claim("Larger ones are worse (Houlsby et al., figure 6)")
def large_weights(recorded):
    yield from _against_the_papers(recorded, lambda sigma: sigma > 0.01, below=0)


def _against_the_papers(recorded, wanted, **bounds):
    for found in recorded.tasks("init", "init-sst2"):
        arms = found.about["arms"]
        apart = {name: apart_by_seed(arm, arms["0.01"]) for name, arm in arms.items() if wanted(float(name))}
        shown = ", ".join(f"{name} {difference(numbers)}" for name, numbers in apart.items())
        most = max(apart, key=lambda name: abs(apart[name]["mean"]))
        figure = f"{difference(apart[most])} at {most}, the greatest of {len(apart)}"
        word = least([says(numbers, **bounds) for numbers in apart.values()])
        yield f"{found.words}: {score(arms['0.01'])} at 0.01; less that, at {shown}", {found.title: (figure, word)}


def _maps(recorded):
    for name in _ABLATIONS:
        yield from recorded.maps(name)


@claim("Without the adapters of one block the score falls by 2 % at most (Houlsby et al., section 3.6)")
def single_block(recorded):
    for found, maps, _ in _maps(recorded):
        worst = [max(drop for span, drop in one["drops"].items() if len(set(span.split("-"))) == 1) for one in maps]
        together = [one["drops"]["0-5"] for one in maps]
        shares = [100 * one / all_of_it for one, all_of_it in zip(worst, together)]
        word = shown_by(max(worst) <= 0.02, found.settings["seeds"]) if min(together) > _ENOUGH else UNCLEAR
        line = f"{found.words}: of {len(maps)} variants the worst block gives {per_cent(worst)} %, which is "
        line += f"{reach(shares, 0)} % of the {per_cent(together)} % that all adapters give together"
        yield line, {found.title: (f"{per_cent(worst)} % of {per_cent(together)} %", word)}


@claim("With all adapters taken out, about the constant answer is left (Houlsby et al., section 3.6)")
def no_adapters(recorded):
    for found, maps, _ in _maps(recorded):
        drops = [one["drops"]["0-5"] for one in maps]
        left, constant = [one["whole"]["mean"] * (1 - one["drops"]["0-5"]) for one in maps], maps[0]["constant"]
        figure = f"{per_cent(left)} left of a constant answer of {100 * constant:.1f}"
        word = shown_by(all(abs(one - constant) < 0.005 for one in left), found.settings["seeds"])
        yield f"{found.words}: {per_cent(drops)} % are lost, {per_cent(left)} are left", {found.title: (figure, word)}


@claim("The adapters of lower blocks matter less (Houlsby et al., section 3.6)")
def lower_blocks(recorded):
    for found, maps, rows in _maps(recorded):
        lower, upper = ([one["drops"][span] for one in maps] for span in ("0-2", "3-5"))
        more = [round((a - b) * one["whole"]["mean"] * rows) for a, b, one in zip(lower, upper, maps)]
        counts = ", ".join(f"{count:+d}" for count in more)
        line = f"{found.words}: {per_cent(lower)} % are lost without those of the lower three blocks of 6, "
        line += f"{per_cent(upper)} % without those of the upper three; the lower three are worth more of {rows:,} rows"
        word = shown_by(max(more) < 0, found.settings["seeds"])
        yield f"{line} by {counts}", {found.title: (f"{counts} of {rows:,} rows", word)}


@claim("Adapters drift less from the pretrained encoder in every block (He et al., figure 2)")
def drift(recorded):
    for found in recorded.tasks("similarity", "similarity-sst2"):
        words, shown = {}, []
        pairs = list(zip(*(found.about[arm]["blocks"] for arm in ("adapters", "full"))))
        for block, (adapters, full) in enumerate(pairs[1:], start=1):
            apart = apart_by_seed(adapters, full)
            more = sum(one < 0 for one in apart["values"])
            shown.append(
                f"block {block} {100 * adapters['mean']:.1f} and {100 * full['mean']:.1f}, {difference(apart)}"
                + (f", more drift with {more} of {apart['n']} seeds" if more else "")
            )
            words.setdefault(says(apart, above=0), {})[str(block)] = difference(apart)
        line = f"{found.words}, similarity to the pretrained encoder in per cent with adapters and with full"
        titles = {word: f"block{'s' if len(blocks) > 1 else ''} {', '.join(blocks)}" for word, blocks in words.items()}
        verdicts = {f"{found.title} {titles[word]}": (", ".join(words[word].values()), word) for word in words}
        yield f"{line} fine-tuning, and the difference: {'; '.join(shown)}", verdicts


@claim("Adapters overfit less (He et al., figure 5)")
def overfitting(recorded):
    for found, runs in _curves(recorded):
        losses = {arm: [run["validation"][-1]["loss"] for run in runs if run["arm"] == arm] for arm in found.about}
        lowest = [min(look["loss"] for look in run["validation"]) for run in runs]
        apart = by_seed(runs, lambda run: run["validation"][-1]["loss"])
        yield (
            f"{found.words}: the validation loss ends at {reach(losses['adapters'], 2)} with adapters, at "
            f"{reach(losses['full'], 2)} with full fine-tuning, and was at {reach(lowest, 2)}; difference of the ends: "
            f"{difference(apart, 1, 2)}",
            {found.title: (difference(apart, 1, 2), says(apart, below=0))},
        )


@claim("They depend less on when training stops (He et al., table 6)")
def stopping(recorded):
    for found, runs in _curves(recorded):
        metric = found.about["full"]["metric"]

        def fall(run, metric=metric):
            scores = [look[metric] for look in run["validation"]]
            return max(scores) - statistics.fmean(scores)

        arms = [found.about[arm] for arm in ("adapters", "full")]
        shown = " and ".join(f"{100 * arm['mean']:.1f} ({100 * arm['best']:.1f})" for arm in arms)
        falls = [100 * statistics.fmean(fall(run) for run in runs if run["arm"] == arm) for arm in ("adapters", "full")]
        apart = by_seed(runs, fall)
        yield (
            f"{found.words}, {metric} every {found.settings['every']} steps, the mean (best): {shown}; best minus mean "
            f"{falls[0]:.2f} with adapters and {falls[1]:.2f} with full fine-tuning, {difference(apart)}",
            {found.title: _said(apart, below=0)},
        )


def _curves(recorded):
    for name, task in (("curves", "glue/cola"), ("curves-sst2", "glue/sst2")):
        for found in recorded.tasks(name):
            yield found, recorded.runs(name, task)


@claim("Adapters end in flatter minima than full fine-tuning (He et al., figure 6)")
def flatter(recorded):
    from tf_adapters.studies.inside import width

    for found in recorded.tasks("landscape", "landscape-sst2"):
        adapters, full = (found.about[arm] for arm in ("adapters", "full"))
        if "width_around" in adapters:
            widths = [arm["width_around"] for arm in (adapters, full)]
            apart = apart_by_seed(*widths)
            yield (
                f"{found.words}: around the trained model the loss of the rows that trained is at most twice its least "
                f"over {widths[0]['mean']:.2f} units of the line with adapters, over {widths[1]['mean']:.2f} with full "
                f"fine-tuning; {difference(apart, 1, 2)}",
                {found.title: (difference(apart, 1, 2), says(apart, above=0))},
            )
            continue
        forward = [
            width({place: loss for place, loss in arm["losses"].items() if float(place) >= 0})
            for arm in (adapters, full)
        ]
        lowest = [min(arm["losses"].values()) for arm in (adapters, full)]
        share = recorded.constant_accuracies.get(found.settings["tasks"][0])
        constant = None if share is None else -share * math.log(share) - (1 - share) * math.log(1 - share)
        learnt = constant is not None and max(lowest) < constant
        word = shown_by(forward[0] > forward[1], found.settings["seeds"]) if learnt else UNCLEAR
        after = " and ".join(f"{arm['losses']['1.0000']:.2f}" for arm in (adapters, full))
        yield (
            f"{found.words}: the loss is at most twice its least over {adapters['width']:.2f} units of the line with "
            f"adapters, over {full['width']:.2f} with full fine-tuning, of these {forward[0]:.3f} and "
            f"{forward[1]:.3f} from the untrained model on and the rest beyond it; the loss is "
            f"{adapters['losses']['0.0000']:.2f} before training, {after} after it, {lowest[0]:.3f} and "
            f"{lowest[1]:.3f} at the least"
            + ("" if constant is None else f", the constant answer's {constant:.3f}")
            + "; it is the loss of the reported rows, not of those that trained",
            {found.title: (f"{forward[0]:.3f} and {forward[1]:.3f} wide", word)},
        )


@claim("Gradients vanish in full fine-tuning and not with adapters (Han et al., figure 3)")
def gradients(recorded):
    for found in recorded.tasks("gradients", "gradients-sst2"):
        of_arm = {
            arm: {group: norms[-1] / norms[0] for group, norms in found.about[arm]["norms"].items()}
            for arm in ("adapters", "full")
        }
        blocks, verdicts = [group for group in of_arm["full"] if group.startswith("block")], {}
        for title, groups in (("blocks", blocks), ("head", ["head"])):
            less = all(of_arm["full"][group] < 1 <= of_arm["adapters"][group] for group in groups)
            grown = " and ".join(reach([of_arm[arm][group] for group in groups], 2) for arm in ("adapters", "full"))
            verdicts[f"{found.title} {title}"] = f"times {grown}", shown_by(less, found.settings["seeds"])
        shown = "; ".join(
            f"{title} {reach([of_one[group] for group in blocks])} in the blocks, {of_one[blocks[-1]]:.2f} in the last "
            f"one, {of_one['head']:.2f} in the head"
            for title, of_one in zip(("with adapters", "with full fine-tuning"), of_arm.values())
        )
        yield f"{found.words}: norms of the gradients at the end, as multiples of those at the start: {shown}", verdicts


@claim("Pretraining on the task's own texts helps adapters (He et al., table 1; Han et al., table 1)")
def pretraining_helps(recorded):
    for found in recorded.others("pretraining-minilm"):
        apart = found.about["pretrained - alone"]
        alone = score(found.about["alone"])
        line = f"{found.words}, {found.settings['steps']:,} steps of pretraining: adapters {alone}, pretrained"
        yield f"{line} {difference(apart)}", {found.title: _said(apart, above=0)}


@claim("With adapters PWWS attacks succeed less often (Han et al., figure 5)")
def harder_to_fool(recorded):
    for found in recorded.tasks("attack", "attack-recipes"):
        shares = {arm: (row["success"]["mean"], row["interval"]) for arm, row in found.about.items()}
        (step,), verdicts, shown = found.settings["checkpoints"], {}, []
        for after, words in (("", "alone"), (f", {step}", f"after {step:,} steps of pretraining")):
            adapters, full = (shares[f"{arm}{after}"] for arm in ("adapters", "full"))
            apart = of_shares(adapters, full)
            shown.append(
                f"{words} {100 * adapters[0]:.1f} with adapters and {100 * full[0]:.1f} with full fine-tuning, "
                f"{difference(apart)}"
            )
            verdicts[f"{found.title} {words.partition(' of')[0]}"] = _said(apart, below=0)
        changed = of_shares(shares[f"adapters, {step}"], shares["adapters"])
        line = f"{found.words}, attacks on {found.settings['texts']} texts that succeed, in per cent:"
        yield f"{line} {'; '.join(shown)}; pretraining changes it with adapters by {difference(changed)}", verdicts
