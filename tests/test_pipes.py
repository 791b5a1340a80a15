"""Rows that come through a pipe, which can be read once."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from tf_adapters.cli.data import DataOptions, TextOptions
from tf_adapters.errors import InputError

ROWS = 6_000  # more than a pipe holds at a time
CONTENT = "text,label\n" + "".join(f"a film {number},{'ab'[number % 2]}\n" for number in range(ROWS))


@pytest.fixture
def pipe(tmp_path):
    """A FIFO to which a thread writes rows; where its reader goes away, only one more row comes."""
    path = tmp_path / "rows.csv"
    os.mkfifo(path)

    def write():
        with contextlib.suppress(BrokenPipeError), open(path, "w") as file:
            file.write(CONTENT)
            return
        with contextlib.suppress(OSError), open(path, "w") as file:
            file.write("text,label\nthe last,a\n")

    threading.Thread(target=write, daemon=True).start()
    return path


@pytest.mark.parametrize("options, stream", [(DataOptions, "pipe"), (TextOptions, "pipe"), (DataOptions, "stdin")])
def test_all_rows_of_a_stream_are_trained_on(request, monkeypatch, tmp_path, options, stream):
    (tmp_path / "dev.csv").write_text("text,label\ngood,a\nbad,b\n")
    if stream == "pipe":
        data = options(train_file=request.getfixturevalue("pipe"), validation=tmp_path / "dev.csv")
    else:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CONTENT.encode())))
        data = options(train_file=pathlib.Path("-"), validation=tmp_path / "dev.csv", format="csv")
    data.check()
    data.peek()
    quiet = Console(file=io.StringIO())
    assert len((data.read(quiet, 0) if options is TextOptions else data.read(quiet)).train) == ROWS


@pytest.mark.parametrize("options", [DataOptions, TextOptions])
def test_one_stream_is_not_two_files(tmp_path, options):
    os.mkfifo(tmp_path / "rows.csv")
    for path in (tmp_path / "rows.csv", pathlib.Path("-")):
        with pytest.raises(
            InputError, match="--validation .* is the stream that --train reads, which can be read once: give a file"
        ):
            options(train_file=path, validation=path).check()


# Prints a word, and ends with the number of the file that it opens then.
PROGRAM = """
import sys
from tf_adapters.cli import main
main.main = lambda: print("chosen \u597d") or sys.stderr.flush() or open(sys.argv[1], "w").fileno()
main.entry_point()
"""


@pytest.mark.parametrize("closed, said", [("", b"chosen \\u597d\n"), ("<&- >&- 2>&-", b"")])
def test_standard_streams_may_be_closed_and_may_know_few_characters(tmp_path, closed, said):
    words = ["sh", "-c", f'"$0" "$@" {closed}', sys.executable, "-c", PROGRAM, tmp_path / "out"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert (done.stdout, done.returncode) == (said, 3), done.stderr


def test_a_part_of_a_pipe_is_refused(refused, adapter_directory, tmp_path):
    os.mkfifo(tmp_path / "rows.csv")
    refused("predict", adapter_directory, f"--input={tmp_path / 'rows.csv'}", "--shard=1/2", says="its input twice")
