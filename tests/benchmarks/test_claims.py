"""claims.py: the verdicts on the papers' claims follow from the recorded values."""

import json

import pytest

from benchmarks.studies import claims


def arm(title, values, minus_full=None, at_edge=False):
    mean = sum(values) / len(values)
    return {
        "title": title, "values": values, "mean": mean, "sd": 0.01, "at_edge": at_edge, "trained_parameters": 1000,
        "minus_full": minus_full and {"mean": sum(minus_full) / 2, "interval": list(minus_full)},
    }  # fmt: skip


def record(folder, name, tasks, **settings):
    (folder / name).mkdir(parents=True)
    document = {"summary": {"tasks": tasks}, "settings": {"rows": 1000, "epochs": 3, "seeds": 3, **settings}}
    (folder / name / "summary.json").write_text(json.dumps(document))


def sharing(houlsby):
    arms = {
        "full": arm("full fine-tuning", [0.6, 0.62, 0.64]), "houlsby": arm("Houlsby", [0.6, 0.61, 0.65], houlsby, True),
        "unshared": arm("unshared", [0.6, 0.61, 0.65], (-0.1, 0.1)),
        "per-layer": arm("one per layer", [0.601, 0.612, 0.651], (-0.1, 0.1)),
        "3-shared": arm("3-shared", [0.602, 0.612, 0.652], (-0.1, 0.1)),
    }  # fmt: skip
    return {"metric": "accuracy", "arms": arms}


def rows_of(folder):
    lines = claims.make(folder).splitlines()
    assert lines[0] == "| claim | found here | verdict |" and lines[1] == "| --- | --- | --- |"
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_nothing_is_said_of_what_is_not_recorded(tmp_path):
    assert rows_of(tmp_path) == []


def test_each_task_has_its_line_and_its_verdict(tmp_path):
    record(tmp_path, "sharing-cola", {"glue/cola": sharing((-0.003, 0.002))})
    record(tmp_path, "sharing-mrpc", {"glue/mrpc": sharing((-0.06, -0.01))})
    record(tmp_path, "sharing-rte", {"glue/rte": sharing((-0.06, 0.01))})
    first, second = rows_of(tmp_path)
    assert first[0].startswith("Adapters score within 0.4 points")
    assert first[2] == "holds: CoLA; does not hold: MRPC; cannot tell: RTE"
    lines = first[1].split("<br>")
    assert lines[0].startswith(
        "CoLA (accuracy; 1,000 rows, 3 epochs, 3 seeds): full fine-tuning 62.0 ± 1.0; less that: "
    )
    assert "Houlsby -0.1 (-0.3 to +0.2)" in lines[0] and "edge of the grid: 1 of 5 arms" in lines[0]
    assert lines[3] == f"Houlsby less full fine-tuning, mean of 3 tasks: {100 * (-0.0005 - 0.035 - 0.025) / 3:+.1f}"
    # +0.13 (-0.01 to +0.28) and +0.20 (+0.20 to +0.20): paired by seed, though each spreads by several points.
    assert second[2] == "holds" and "one per layer +0.1 (-0.0 to +0.3), 3-shared +0.2 (+0.2 to +0.2)" in second[1]


def test_few_rows_hold_only_where_the_whole_interval_is_above_zero(tmp_path):
    def task(interval):
        arms = {"adapters, 1000": arm("adapters", [0.7, 0.8], interval), "full, 1000": arm("full", [0.6, 0.7])}
        return {"metric": "accuracy", "arms": arms}

    tasks = {"glue/cola": task((0.001, 0.2)), "glue/sst2": task((-0.001, 0.2)), "glue/rte": task((-0.2, -0.1))}
    record(tmp_path, "low-resource-cola-sst2", tasks, counts=[1000], rows=None)
    ((_, found, verdict),) = rows_of(tmp_path)
    assert verdict == "holds: CoLA; cannot tell: SST-2; does not hold: RTE"
    assert found.startswith("CoLA (accuracy; 3 epochs, 3 seeds): full fine-tuning 65.0 ± 1.0; adapters less that: +10.")


@pytest.mark.parametrize(
    "first, second, expected",
    [(1.0, 3.0, "holds"), (3.0, 1.0, "does not hold"), (1.0, 1.5, "cannot tell"), (0.0, 1.0, "cannot tell")],
)
def test_spread_is_compared_by_variances(first, second, expected):
    # Of 20 and 20 seeds the F test at 5 % asks for a ratio of variances of 2.53.
    assert claims.varies_less({"sd": first, "n": 20}, {"sd": second, "n": 20}) == expected
    if expected == "holds":
        assert claims.varies_less({"sd": 1.0, "n": 20}, {"sd": 2.53**0.5 + 0.01, "n": 20}) == "holds"
        assert claims.varies_less({"sd": 1.0, "n": 20}, {"sd": 2.53**0.5 - 0.01, "n": 20}) == "cannot tell"


def test_the_recorded_studies_give_the_table_their_lines():
    found = rows_of(claims.KEPT)
    assert len(found) >= 12 and all(len(cells) == 3 and all(cells) for cells in found)
