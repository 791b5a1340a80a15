"""What the recorded studies say of the papers' claims: the rows of the table in docs/studies.md.

A claim is a function over the recorded studies. It yields a line and a verdict for each task, so that a further task of
a study that is here needs no new sentence.
"""

import csv
import json

from benchmarks.studies.recorded import KEPT
from tf_adapters.studies.comparison import paired

PAGE = "docs/studies.md"
HOLDS, HOLDS_NOT, UNCLEAR = "holds", "does not hold", "cannot tell"
CLAIMS = []  # (claim, function), in the order of the table
_TITLES = {
    "glue/cola": "CoLA", "glue/sst2": "SST-2", "glue/mrpc": "MRPC", "glue/rte": "RTE", "glue/stsb": "STS-B",
    "tae/acl-arc": "ACL-ARC", "tae/scierc": "SciERC", "tae/chemprot": "ChemProt", "tae/imdb": "IMDB",
    "crowdflower/airline": "airline", "crowdflower/corporate-messaging": "corporate messaging",
    "crowdflower/emotion": "emotion", "crowdflower/global-warming": "global warming", "sms-spam": "SMS spam",
    "ud/en_ewt": "UD English", "xquad/en": "XQuAD",
}  # fmt: skip
_BEHIND = 0.004  # that adapters may be: Houlsby et al., section 3.2
_APART = 0.005  # that variants may be: the report, section 5


def make(folder=KEPT):
    """Markdown of the claims of which something is recorded."""
    rows, recorded = [("claim", "found here", "verdict"), ("---",) * 3], Recorded(folder)
    for claim, look in CLAIMS:
        found = list(look(recorded))
        if found:
            verdicts = {task: word for task, _, word in found if word is not None}
            rows.append((claim, "<br>".join(line for _, line, _ in found), verdict(verdicts)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def claim(words):
    """Register a generator of `(task, line, verdict)`, where the verdict is None of a line that only adds."""

    def register(look):
        CLAIMS.append((words, look))
        return look

    return register


class Recorded:
    """The recorded studies.

    Args:
        folder: path that has their folders.
    """

    def __init__(self, folder):
        self.folder = folder

    def tasks(self, *names):
        """Yield `(a task's title, its summary, the settings)` of the studies that are recorded."""
        for name in names:
            document = self.summary(name)
            for task, about in (document["summary"]["tasks"] if document else {}).items():
                yield title_of(task), about, document["settings"]

    def summary(self, name):
        """A study's whole summary, a dict, or None."""
        path = self.folder / name / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def maps(self):
        """Dict from a task's title to the ablation maps of its variants, a list."""
        found, document = {}, self.summary("ablation")
        for title, one in (document["summary"]["maps"] if document else {}).items():
            found.setdefault(title_of(title.partition(",")[0]), []).append(one)
        return found

    def values(self, name):
        """A study's values, a list of dicts of words."""
        with open(self.folder / name / "values.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def title_of(task):
    """A task's name as readers know it."""
    return _TITLES.get(task, task)


def score(numbers):
    """Mean ± standard deviation, in per cent."""
    return f"{100 * numbers['mean']:.1f} ± {100 * numbers['sd']:.1f}"


def difference(numbers):
    """A paired difference in points, with its 95 % interval."""
    low, high = (100 * bound for bound in numbers["interval"])
    return f"{100 * numbers['mean']:+.1f} ({low:+.1f} to {high:+.1f})"


def reach(numbers, digits=1):
    """The least and the greatest of numbers."""
    return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}"


def budget(settings):
    """What a task was trained with, in words."""
    rows, seeds = settings.get("rows"), settings["seeds"]
    words = [f"{rows:,} rows"] if rows else []
    return ", ".join([*words, f"{settings['epochs']} epochs", f"{seeds} seed{'s' if seeds > 1 else ''}"])


def edges(arms):
    """What is to be said of best rates at the edge of those that were tried."""
    count = sum(arm["at_edge"] for arm in arms.values())
    return f"; best rate at the edge of the grid: {count} of {len(arms)} arms" if count else ""


def verdict(of_each):
    """One verdict of those of several tasks, a dict from title to verdict."""
    kinds = {}
    for title, word in of_each.items():
        kinds.setdefault(word, []).append(title)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{word}: {', '.join(titles)}" for word, titles in kinds.items())


def within(interval, low, high):
    """Whether a difference lies between two bounds, by its interval."""
    if low <= interval[0] and interval[1] <= high:
        return HOLDS
    return HOLDS_NOT if interval[1] < low or interval[0] > high else UNCLEAR


def above_zero(interval):
    """Whether a difference is positive, by its interval."""
    return HOLDS if interval[0] > 0 else HOLDS_NOT if interval[1] < 0 else UNCLEAR


def varies_less(first, second):
    """Whether the variance of the first is smaller, by a two-sided F test at 5 %."""
    from scipy.stats import f

    if not first["sd"] or not second["sd"]:
        return UNCLEAR
    below = float(f.cdf((first["sd"] / second["sd"]) ** 2, first["n"] - 1, second["n"] - 1))
    return HOLDS if below < 0.025 else HOLDS_NOT if below > 0.975 else UNCLEAR


_GLUE = ("sharing-cola", "sharing-mrpc", "sharing-rte", "sharing-sst2", "sharing-stsb")


@claim("Adapters score within 0.4 points of full fine-tuning on GLUE (Houlsby et al., table 1)")
def as_good(recorded):
    yield from _less_full(recorded, *_GLUE)


@claim("And on further classification tasks (Houlsby et al., table 2; report, table 3)")
def as_good_elsewhere(recorded):
    yield from _less_full(recorded, "sharing-additional")


def _less_full(recorded, *names):
    means = []
    for task, about, settings in recorded.tasks(*names):
        arms = about["arms"]
        shown = ", ".join(
            f"{arm['title']} {difference(arm['minus_full'])}" for arm in arms.values() if arm["minus_full"]
        )
        yield (
            task,
            f"{task} ({about['metric']}; {budget(settings)}): full fine-tuning {score(arms['full'])}; less that: "
            f"{shown}{edges(arms)}",
            within(arms["houlsby"]["minus_full"]["interval"], -_BEHIND, 1.0),
        )
        means.append(arms["houlsby"]["minus_full"]["mean"])
    if len(means) > 1:
        yield (
            None,
            f"Houlsby less full fine-tuning, mean of {len(means)} tasks: {100 * sum(means) / len(means):+.1f}",
            None,
        )


@claim("Variants that share adapters are within 0.5 points of those that do not (report, table 2)")
def sharing_costs_little(recorded):
    counts = None
    for task, about, _ in recorded.tasks(*_GLUE, "sharing-additional"):
        arms, verdicts, shown = about["arms"], set(), []
        for name in ("per-layer", "3-shared"):
            apart = paired(arms[name]["values"], arms["unshared"]["values"])
            verdicts.add(within(apart["interval"], -_APART, _APART))
            shown.append(f"{arms[name]['title']} {difference(apart)}")
        yield (
            task,
            f"{task}: unshared {score(arms['unshared'])}; less that: {', '.join(shown)}",
            next(word for word in (HOLDS_NOT, UNCLEAR, HOLDS) if word in verdicts),
        )
        counts = [f"{arms[name]['trained_parameters']:,}" for name in ("unshared", "per-layer", "3-shared")]
    if counts:
        yield None, f"Trained parameters: {', '.join(counts)}", None


@claim("Adapters score higher than full fine-tuning on 1,000 rows (He et al., table 2)")
def few_rows(recorded):
    yield from _few(recorded, "low-resource-cola-sst2", "low-resource-mrpc-stsb-rte")


@claim("And on 5,000 rows (He et al., table 2)")
def more_rows(recorded):
    yield from _few(recorded, "low-resource-5000")


def _few(recorded, *names):
    for task, about, settings in recorded.tasks(*names):
        (count,), arms = settings["counts"], about["arms"]
        few, full = (arms[f"{arm}, {count:g}"] for arm in ("adapters", "full"))
        yield (
            task,
            f"{task} ({about['metric']}; {budget(settings)}): full fine-tuning {score(full)}; adapters less that: "
            f"{difference(few['minus_full'])}{edges(arms)}",
            above_zero(few["minus_full"]["interval"]),
        )


@claim("The fewer rows, the more adapters gain (He et al., figure 3)")
def training_size(recorded):
    for task, about, settings in recorded.tasks("training-size-sst2", "training-size-imdb"):
        few = {count: about["arms"][f"adapters, {count:g}"] for count in sorted(settings["counts"])}
        shown = (f"{int(n):,} rows: {score(arm)}, {difference(arm['minus_full'])}" for n, arm in few.items())
        first, *_, last = (arm["minus_full"]["interval"] for arm in few.values())
        yield (
            task,
            f"{task} ({about['metric']}; {budget(settings)}), adapters, and what they have more than full fine-tuning: "
            f"{'; '.join(shown)}",
            HOLDS if first[0] > last[1] else HOLDS_NOT if first[1] < last[0] else UNCLEAR,
        )


@claim("Adapters vary less over seeds (He et al., figure 4; Han et al., figure 2)")
def less_spread(recorded):
    for task, about, settings in recorded.tasks("stability-cola", "stability-rte"):
        arms = {name: max(arm["rates"].values(), key=lambda row: row["mean"]) for name, arm in about["arms"].items()}
        shown = (f"{score(row)}, {100 * row['collapsed']:.0f} % collapsed" for row in arms.values())
        yield (
            task,
            f"{task}, {budget(settings)}, each at its best rate: {' with adapters; '.join(shown)} "
            "with full fine-tuning",
            varies_less(arms["adapters"], arms["full"]),
        )


@claim("Adapters depend less on the learning rate (He et al., figure 4)")
def any_rate(recorded):
    for task, about, settings in recorded.tasks("stability-cola"):
        apart, shown = {}, []
        for name, arm in about["arms"].items():
            rates = {rate: row["mean"] for rate, row in arm["rates"].items() if row["mean"] is not None}
            apart[name] = max(rates.values()) - min(rates.values())
            collapsed = ", ".join(f"{100 * row['collapsed']:.0f}" for row in arm["rates"].values())
            scores = ", ".join(f"{100 * mean:.1f} at {rate}" for rate, mean in rates.items())
            shown.append(f"{arm['title']} {scores}, of which {collapsed} % collapsed")
        yield (
            task,
            f"{task}, {budget(settings)}, means: {'; '.join(shown)}",
            HOLDS if apart["adapters"] < apart["full"] else HOLDS_NOT,
        )


@claim("For as many trained parameters adapters score higher than the uppermost blocks (Houlsby et al., figure 4)")
def cheaper(recorded):
    for task, about, settings in recorded.tasks("size", "size-mrpc"):
        arms = about["arms"]
        shown = (
            f"{arms[name]['title']} {score(arms[name])} with {arms[name]['trained_parameters'] / 1e6:.1f} million"
            for name in ("adapters-64", "adapters-512", "top-1", "top-2", "top-4", "full")
        )
        better = arms["adapters-64"]["mean"] > arms["top-1"]["mean"]
        yield task, f"{task}, {budget(settings)}: {', '.join(shown)}", HOLDS if better else HOLDS_NOT


@claim("From 8 to 512 units the size matters little (Houlsby et al., section 3.6)")
def size_matters_little(recorded):
    for task, about, _ in recorded.tasks("size", "size-mrpc"):
        arms = about["arms"]
        several = {size: arms[f"adapters-{size}"] for size in (8, 64, 512)}
        shown = ", ".join(f"{score(arm)} with {size}" for size, arm in several.items())
        means = [arm["mean"] for arm in several.values()]
        little = max(means) - min(means) < max(arm["sd"] for arm in several.values())
        yield (
            task,
            f"{task}: {shown}; with one {score(arms['adapters-1'])}, the LayerNorms alone {score(arms['layer-norm'])}",
            "holds within the spread over seeds" if little else HOLDS_NOT,
        )


@claim("Initial weights up to a standard deviation of 0.01 are as good, larger ones worse (Houlsby et al., figure 6)")
def initialisation(recorded):
    for task, about, settings in recorded.tasks("init", "init-mrpc"):
        small = [arm for sigma, arm in about["arms"].items() if float(sigma) <= 1e-2]
        large = {float(sigma): arm for sigma, arm in about["arms"].items() if float(sigma) > 1e-2}
        means = [100 * arm["mean"] for arm in small]
        shown = ", ".join(f"{score(arm)} at {sigma:g}" for sigma, arm in large.items())
        steady = max(means) - min(means) < 100 * 2 * max(arm["sd"] for arm in small)
        worse = all(100 * arm["mean"] < min(means) for arm in large.values())
        yield (
            task,
            f"{task}, {budget(settings)}: {reach(means)} from 1e-7 to 0.01, {shown}; the constant answer has "
            f"{100 * about['constant']:.1f}",
            HOLDS if steady and worse else HOLDS_NOT,
        )


@claim("Without the adapters of one block the score falls by 2 % at most (Houlsby et al., section 3.6)")
def single_block(recorded):
    for task, maps in recorded.maps().items():
        drops = [drop for one in maps for span, drop in one["drops"].items() if len(set(span.split("-"))) == 1]
        worst = 100 * max(drops)
        yield (
            task,
            f"{task}, accuracy, {len(maps)} variants, 8,000 rows, 3 epochs, 1 seed: by at most {worst:.1f} %",
            HOLDS if worst <= 2 else "nearly" if worst < 3 else HOLDS_NOT,
        )


@claim("With all adapters taken out, about the constant answer is left (Houlsby et al., section 3.6)")
def no_adapters(recorded):
    for task, maps in recorded.maps().items():
        drops = [100 * one["drops"]["0-5"] for one in maps]
        left = [100 * one["whole"]["mean"] * (1 - one["drops"]["0-5"]) for one in maps]
        constant = 100 * maps[0]["constant"]
        yield (
            task,
            f"{task}: {reach(drops)} % are lost, {reach(left)} are left; the constant answer has {constant:.1f}",
            HOLDS if all(abs(one - constant) < 0.5 for one in left) else HOLDS_NOT,
        )
    if recorded.maps():
        yield None, "The head and the trained LayerNorms carry the rest", None


@claim("The adapters of lower blocks matter less (Houlsby et al., section 3.6)")
def lower_blocks(recorded):
    for task, maps in recorded.maps().items():
        lower, upper = ([100 * one["drops"][span] for one in maps] for span in ("0-2", "3-5"))
        less = [low < high for low, high in zip(lower, upper)]
        yield (
            task,
            f"{task}: {reach(lower)} % are lost without those of the lower three blocks of 6, {reach(upper)} % without "
            "those of the upper three",
            HOLDS if all(less) else UNCLEAR if any(less) else HOLDS_NOT,
        )


@claim("Adapters drift less from the pretrained encoder, most of all in the upper blocks (He et al., figure 2)")
def drift(recorded):
    for task, arms, settings in recorded.tasks("similarity", "similarity-mrpc"):
        adapters, full = arms["adapters"]["blocks"], arms["full"]["blocks"]
        last, before = (f"{score(adapters[block])} and {score(full[block])}" for block in (6, 5))
        lower = max(abs(adapters[block]["mean"] - full[block]["mean"]) for block in (1, 2, 3))
        yield (
            task,
            f"{task}, {budget(settings)}, similarity to the pretrained encoder in per cent with adapters and with full "
            f"fine-tuning: last block {last}, the one before it {before}; the lower three are {100 * lower:.1f} "
            "apart or less",
            HOLDS if min(adapters[6]["values"]) > max(full[6]["values"]) else UNCLEAR,
        )


@claim("Adapters overfit less, and depend less on when training stops (He et al., figure 5, table 6)")
def overfitting(recorded):
    for name in ("curves", "curves-mrpc"):
        for task, arms, settings in recorded.tasks(name):
            ends, least = _losses(recorded.values(name))
            means = [f"{100 * arms[arm]['mean']:.1f} ({100 * arms[arm]['best']:.1f})" for arm in ("adapters", "full")]
            less = max(ends["adapters"]) < min(ends["full"])
            steadier = arms["adapters"]["mean"] >= arms["full"]["mean"]
            yield (
                task,
                f"{task}, {budget(settings)}: the validation loss ends at {reach(ends['adapters'], 2)} with adapters, "
                f"at {reach(ends['full'], 2)} with full fine-tuning, and was at {reach(least, 2)}; "
                f"{arms['adapters']['metric']} every 20 steps, the mean (best): {means[0]} and {means[1]}",
                HOLDS if less and steadier else HOLDS_NOT if not (less or steadier) else "in part",
            )


def _losses(values):
    """The last validation losses by arm, and the least of every run."""
    ends, least = {"adapters": [], "full": []}, []
    for row in values:
        places = sorted(int(key.split(".")[1]) for key in row if key.endswith(".loss") and row[key])
        losses = [float(row[f"validation.{place}.loss"]) for place in places]
        ends[row["arm"]].append(losses[-1])
        least.append(min(losses))
    return ends, least


@claim("Adapters end in flatter minima than full fine-tuning (He et al., figure 6)")
def flatter(recorded):
    for task, arms, settings in recorded.tasks("landscape", "landscape-mrpc"):
        adapters, full = arms["adapters"], arms["full"]
        after = " and ".join(f"{arm['losses']['1.0000']:.2f}" for arm in (adapters, full))
        yield (
            task,
            f"{task}, {budget(settings)}: the loss is at most twice its least over {adapters['width']:.2f} units of "
            f"the line with adapters, over {full['width']:.2f} with full fine-tuning; it is "
            f"{adapters['losses']['0.0000']:.2f} before training, {after} after it",
            f"{HOLDS if adapters['width'] > full['width'] else HOLDS_NOT}, of one seed",
        )


@claim("Pretraining on the task's own texts helps adapters (He et al., table 1; Han et al., table 1)")
def pretraining_helps(recorded):
    for task, about, settings in recorded.tasks("pretraining-tae"):
        (step,), arms, shown = settings["checkpoints"], about["arms"], []
        for name in ("adapters", "full"):
            alone, after = arms[name], arms[f"{name}, {step}"]
            shown.append(f"{alone['title']} {score(alone)}, pretrained {difference(after['minus_alone'])}")
        yield (
            task,
            f"{task} ({about['metric']}; {budget(settings)}; {step:,} steps of pretraining): {'; '.join(shown)}",
            above_zero(arms[f"adapters, {step}"]["minus_alone"]["interval"]),
        )


@claim("Pretraining on the task's own texts makes PWWS attacks harder (Han et al., figure 5)")
def harder_to_fool(recorded):
    for task, arms, settings in recorded.tasks("attack"):
        (step,), shown = settings["checkpoints"], []
        for name in ("adapters", "full"):
            for arm in (arms[name], arms[f"{name}, {step}"]):
                low, high = (100 * bound for bound in arm["interval"])
                shown.append(f"{arm['title']} {100 * arm['success']['mean']:.1f} ({low:.1f} to {high:.1f})")
        alone, after = (arms[name]["interval"] for name in ("adapters", f"adapters, {step}"))
        yield (
            task,
            f"{task}, {budget(settings)}, attacks on {settings['texts']} texts that succeed, in per cent: "
            f"{'; '.join(shown)}",
            HOLDS if after[1] < alone[0] else HOLDS_NOT if after[0] > alone[1] else UNCLEAR,
        )


@claim("Adapters score higher than full fine-tuning with Mixout (He et al., table 7)")
def better_than_mixout(recorded):
    for task, about, settings in recorded.tasks("mixout"):
        arms = about["arms"]
        apart = paired(arms["adapters"]["values"], arms["full-mixout"]["values"])
        shown = ", ".join(f"{arm['title']} {score(arm)}" for arm in arms.values())
        yield (
            task,
            f"{task}, {budget(settings)}: {shown}; adapters less full fine-tuning with Mixout {difference(apart)}",
            above_zero(apart["interval"]),
        )


@claim("Trained on one language, adapters score higher on others (He et al., table 3)")
def other_languages(recorded):
    names = ("cross-lingual", "cross-lingual-xquad")
    for task, about, settings in recorded.tasks(*names):
        adapters, full = (about["arms"][name] for name in ("adapters", "full"))
        shown = ", ".join(
            f"{name} {score(found)} and {score(full['languages'][name])}"
            for name, found in adapters["languages"].items()
        )
        apart = paired(*(arm["groups"]["target"]["values"] for arm in (adapters, full)))
        yield (
            task,
            f"{task} ({about['metric']}; {budget(settings)}), adapters and full fine-tuning: {shown}; others, "
            f"difference {difference(apart)}",
            above_zero(apart["interval"]),
        )
    if any(map(recorded.summary, names)):
        yield None, "The encoder is English: it has seen the other languages by chance alone", None
