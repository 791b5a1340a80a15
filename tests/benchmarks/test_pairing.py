"""The arithmetic of paired measurements."""

import math

import pytest

from benchmarks import pairing


def test_summary_of_steps_by_hand():
    summary = pairing.summarise_steps([[10.0, 30.0], [40.0, 60.0], [20.0, 20.0]], batch_size=8)
    assert summary == {"step_ms": {"median": 20.0, "min": 20.0, "max": 50.0}, "examples_per_second": 400.0}


def test_ratio_is_taken_within_each_round():
    # The second round was slow for both: the ratio of the two medians, 4/1, would be wrong.
    ratio = pairing.paired_ratio([[2.0, 2.0], [8.0], [4.0]], [[1.0], [4.0], [1.0, 1.0]])
    assert ratio["rounds"] == [2.0, 2.0, 4.0]
    assert (ratio["median"], ratio["min"], ratio["max"], ratio["interval"]) == (2.0, 2.0, 4.0, None)


def test_bootstrap_interval_lies_within_the_rounds_and_is_the_same_twice():
    top, bottom = [[value] for value in (1.0, 1.1, 1.2, 1.3, 1.4)], [[1.0]] * 5
    ratio = pairing.paired_ratio(top, bottom)
    low, high = ratio["interval"]
    assert 1.0 <= low < ratio["median"] == 1.2 < high <= 1.4
    assert pairing.paired_ratio(top, bottom) == ratio
    assert pairing.paired_ratio([[3.0]] * 5, bottom)["interval"] == [3.0, 3.0]


def test_rounds_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="2 and 1 rounds"):
        pairing.paired_ratio([[1.0], [1.0]], [[1.0]])
    with pytest.raises(ValueError, match="2 and 1 values"):
        pairing.paired_difference([1.0, 1.0], [1.0])


def test_only_ratios_whose_arms_ran_are_made():
    turns = {"adapters": [[1.0]], "full": [[2.0]], "forward-plain": [[1.0]]}
    assert list(pairing.paired_ratios(turns)) == ["full / adapters"]
    more = {**turns, "fast": [[1.0]], "full@float32": [[3.0]]}
    assert set(pairing.paired_ratios(more)) == {
        "full / adapters", "full@float32 / adapters", "adapters / fast", "full / fast", "full@float32 / fast",
    }  # fmt: skip
    assert pairing.paired_ratios(turns)["full / adapters"]["median"] == 2.0


def test_paired_difference_by_hand():
    # Differences 1, 2, 3: mean 2, sd 1, s.e.m. 1/sqrt(3); t(0.975, 2) = 4.302653.
    difference = pairing.paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert difference["mean"] == 2.0 and difference["sd"] == 1.0 and difference["n"] == 3
    assert difference["sem"] == pytest.approx(1 / math.sqrt(3))
    assert difference["interval"] == pytest.approx([2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)], abs=1e-5)
    assert pairing.paired_difference([2.0], [1.0])["interval"] is None
