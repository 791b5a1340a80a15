"""Makes the notebooks of examples/notebooks: each is its script, in jupytext's percent format, with what it prints.

    pip install '.[test,docs]'
    python docs/make_notebooks.py                  # those whose code was edited; each takes some minutes
    python docs/make_notebooks.py --again first_adapter

The scripts are what people edit. A notebook whose script was edited has to be made again; a test says so.
"""

import argparse
import os
import pathlib
import re
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "notebooks"
SECONDS = 900  # for a cell
# What TensorFlow's C++ parts log when they are loaded, with the process and the time; no setting silences it.
NATIVE = re.compile(r"^(?:WARNING: All log messages before absl::InitializeLog|[IW]\d{4} ).*\n?", re.MULTILINE)


def scripts():
    """Paths of the scripts, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.py"))}


def notebook_of(script):
    """The notebook of a script before it runs, an nbformat node whose bytes depend on the script alone."""
    import jupytext

    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def execute(notebook, folder):
    """Run a notebook's cells in a folder, and put into it what they print and draw.

    Raises: nbclient.exceptions.CellExecutionError, if a cell raises.
    """
    import nbclient

    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # tqdm says it where ipywidgets is not installed.
    client.execute(env={**os.environ, "PYTHONWARNINGS": "ignore:IProgress not found"})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_native(output)]
    # Of this environment's interpreter.
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def _is_native(output):
    return output.get("name") == "stderr" and not NATIVE.sub("", output.text).strip()


def printed(notebook):
    """All that a notebook's cells printed, as one text."""
    return "".join(
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream"
    )


def outputs_kept(notebook, earlier):
    """Whether an earlier notebook has the same code; its outputs are then put into this one."""
    code, before = ([cell for cell in each.cells if cell.cell_type == "code"] for each in (notebook, earlier))
    if [cell.source for cell in code] != [cell.source for cell in before]:
        return False
    for cell, other in zip(code, before):
        cell.outputs, cell.execution_count = other.outputs, other.execution_count
    return True


def main():
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts without .py; all of them if none is named")
    parser.add_argument("--again", action="store_true", help="run those too of which the text alone was edited")
    options = parser.parse_args()
    for name in options.names or scripts():
        notebook, path = notebook_of(scripts()[name]), FOLDER / f"{name}.ipynb"
        if options.again or not path.exists() or not outputs_kept(notebook, nbformat.read(path, as_version=4)):
            with tempfile.TemporaryDirectory() as folder:
                execute(notebook, folder)
        nbformat.write(notebook, path)
        print(f"{name}:\n{printed(notebook)}")


if __name__ == "__main__":
    main()
