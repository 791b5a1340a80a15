"""What makes the documentation site: links, sections of docstrings, the page of commands. .ci/run builds it."""

import pathlib
import runpy
import types

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"
LACKS = "needs the extra `docs`"


@pytest.fixture
def rewritten():
    exceptions = pytest.importorskip("mkdocs.exceptions", reason=LACKS)
    hook = runpy.run_path(str(DOCS / "links_to_repository.py"))["on_page_markdown"]

    def rewrite(markdown, page="extending/index.md"):
        return hook(markdown, types.SimpleNamespace(file=types.SimpleNamespace(src_uri=page)), None, None)

    rewrite.error = exceptions.PluginError
    return rewrite


def test_links_out_of_the_site_become_paths_and_those_within_stay(rewritten):
    assert rewritten("[the notes](../../benchmarks/README.md), [SECURITY.md](../../SECURITY.md)") == (
        "the notes (`benchmarks/README.md`), `SECURITY.md`"
    )
    kept = "[a method](method.md#a) ![b](../picture.svg) [c](https://example.org)\n\n```python\nf()[0](../no.md)\n```\n"
    assert rewritten(kept) == kept


def test_a_link_to_no_file_stops_the_build(rewritten):
    for target in ("../../NOTHING.md", "../../../outside.md"):
        with pytest.raises(rewritten.error, match="extending/index.md: the link to .* leads to no file"):
            rewritten(f"[gone]({target})")


def test_sections_of_docstrings_are_those_that_griffe_reads():
    griffe = pytest.importorskip("griffe", reason=LACKS)
    extension = runpy.run_path(str(DOCS / "docstring_sections.py"))["Sections"]()
    text = (
        "Adds.\nArgs:\n    a: int.\nCall arguments:\n    b: str.\nReturns: the sum,\n    an int.\n"
        "Raises: InputError, if a\n    is none.\nExample:\n>>> add(1)\n2\n\nReference: Euclid,\n    book 7.\n\nThe end."
    )
    function = griffe.Function("add", docstring=griffe.Docstring(text))
    extension.on_object(obj=function, loader=None)
    sections = function.docstring.parse("google", warnings=False)
    kinds = [section.kind.value for section in sections]
    assert kinds == ["text", "parameters", "other parameters", "text", "raises", "examples", "text"]
    assert sections[3].value == "**Returns:** the sum, an int."
    assert [(str(error.annotation), error.description) for error in sections[4].value] == [
        ("InputError", "if a is none.")
    ]
    assert sections[5].value[0][1] == ">>> add(1)\n2"
    assert sections[6].value.splitlines() == ["**Reference:** Euclid, book 7.", "", "", "The end."]


def test_the_page_of_commands_has_every_command_and_option():
    pytest.importorskip("mkdocs", reason=LACKS)
    import typer.main

    from tests.test_code_blocks import options_of
    from tf_adapters.cli.main import program

    text = runpy.run_path(str(DOCS / "command_line.py"))["page"]()
    commands = typer.main.get_command(program()).commands
    options = {option for command in commands.values() for option in options_of(command) if option.startswith("-")}
    assert len(options) > 50
    shown = [*(f"\n## {name}\n" for name in commands), *(f"`{option}`" for option in options)]
    assert [one for one in shown if one not in text] == []


def test_a_link_to_a_notebook_is_one_to_its_page():
    pytest.importorskip("mkdocs", reason=LACKS)
    pytest.importorskip("nbconvert", reason=LACKS)
    hook = runpy.run_path(str(DOCS / "notebook_pages.py"))["on_page_markdown"]

    def rewritten(markdown, page):
        page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=page))
        return hook(markdown, page, None, None)

    notebook = "examples/notebooks/own_data.ipynb"
    script = "[b](../../examples/notebooks/own_data.py)"
    assert rewritten(f"[a](../../{notebook}), {script}", "notebooks/index.md") == f"[a](own_data.md), {script}"
    assert rewritten(f"[a](../{notebook}#x)", "own-data.md") == "[a](notebooks/own_data.md#x)"
    assert rewritten("[a](several_tasks.ipynb)", "notebooks/own_data.md") == "[a](several_tasks.md)"
