"""Times that were measured in turns: their summaries, and ratios within a round."""

import math
import random
import statistics

#: Starts the name of an arm that another checkout's code computes, as it was before a change.
BEFORE = "before:"
#: What is compared, as (numerator, denominator) of step times. Above 1, the denominator is faster.
RATIOS = (
    ("full", "adapters"), ("forward-adapters", "forward-plain"), ("torch-adapters", "adapters"),
    ("torch-full", "full"), ("torch-lora", "adapters"), ("torch-lora", "lora"), ("torch-lora", "fast-lora"),
    ("lora", "fast-lora"), ("torch-forward-adapters", "forward-adapters"), ("adapters", "fast"), ("full", "fast"),
    ("torch-adapters", "fast"), ("forward-adapters", "forward-fast"), ("forward-plain", "forward-fast"),
    ("torch-forward-adapters", "forward-fast"), ("checkpointed-adapters", "adapters"), ("checkpointed-full", "full"),
    ("checkpointed-fast", "fast"), ("torch-compiled-adapters", "fast"), ("torch-bfloat16-adapters", "fast"),
    ("torch-compiled-full", "full"), ("products", "fast"), ("texts", "fast"),
    *(
        (f"{backend}-hub-{what}", other.format(backend))
        for backend in ("tensorflow", "tensorflow-jit", "jax", "torch")
        for what, other in (
            ("adapters", "adapters"), ("adapters", "fast"), ("adapters", "torch-adapters"), ("full", "full"),
            ("full", "{}-hub-adapters"), ("lora", "{}-hub-adapters"),
        )
    ),
    ("tensorflow-hub-fast", "fast"), ("torch-adapters", "tensorflow-hub-fast"), ("routed", "forward-adapters"),
    ("routed-lora", "forward-plain"), ("torch-routed-lora", "routed-lora"),
)  # fmt: skip


def summarise_steps(turns, batch_size):
    """Summary of one arm, of a list over the rounds of lists of step times in ms: `step_ms`, of the mean steps of the
    rounds, and `examples_per_second`, of their median."""
    times = extremes([statistics.fmean(turn) for turn in turns])
    return {"step_ms": times, "examples_per_second": batch_size * 1e3 / times["median"]}


def extremes(values):
    """Dict of `median`, `min` and `max`."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def in_turn(arms, number):
    """The arms of a round: every second one goes backwards, so that a slow drift of the machine favours none."""
    return list(arms)[:: -1 if number % 2 else 1]


def tracing_seconds(row, batches):
    """What an arm's first pass over so many batches took beyond as many usual steps: tracing and compiling."""
    return max(0.0, row["warm_up_s"] - batches * row["step_ms"]["median"] / 1e3)


def paired_ratio(numerator, denominator, *, samples=2000, seed=0):
    """Ratio of two arms' step times, lists over rounds of lists, taken within each round, since a machine drifts.

    Returns: dict: `rounds` (the ratios), `median`, `min`, `max`, and `interval`, the 95 % percentile bootstrap
        interval of the median over rounds, None for fewer than 5.
    """
    if len(numerator) != len(denominator):
        raise ValueError(f"{len(numerator)} and {len(denominator)} rounds cannot be paired.")
    rounds = [statistics.fmean(a) / statistics.fmean(b) for a, b in zip(numerator, denominator)]
    interval = None
    if len(rounds) >= 5:
        draw = random.Random(seed)
        medians = sorted(statistics.median(draw.choices(rounds, k=len(rounds))) for _ in range(samples))
        interval = [medians[int(0.025 * samples)], medians[math.ceil(0.975 * samples) - 1]]
    return {"rounds": rounds, **extremes(rounds), "interval": interval}


def paired_ratios(turns):
    """Every ratio of `RATIOS` whose two arms ran, at any precision, and of each arm before a change to the arm now."""
    kinds = {arm: arm.partition("@")[0] for arm in turns}
    pairs = [
        (top, bottom) for pair in RATIOS for top in turns for bottom in turns if (kinds[top], kinds[bottom]) == pair
    ]
    pairs += [(BEFORE + arm, arm) for arm in turns if BEFORE + arm in turns]
    return {f"{top} / {bottom}": paired_ratio(turns[top], turns[bottom]) for top, bottom in pairs}
