"""Encodings, ends of lines, headers and delimiters of the user's own files, and what a wrong guess is told."""

import codecs
import csv
import gzip
import io
import json
import tracemalloc
import types

import hypothesis
import pytest
from hypothesis import strategies as st

from tf_adapters.errors import InputError
from tf_adapters.tasks.dialect import USUAL, Dialect, dialect_of
from tf_adapters.tasks.files import BadRows, read_chunks, read_rows
from tf_adapters.tasks.labels import doubts
from tf_adapters.tasks.lines import LOOKED_AT, read_lines
from tf_adapters.tasks.own_files import kept_reading, rows_from_file, task_from_files, unlabelled_chunks
from tf_adapters.tasks.squad import read_question_chunks
from tf_adapters.tasks.words import read_word_chunks, read_words

ROWS = [("naïve café", "gut"), ("„schön“ – 5 €", "böse"), ("drei", "gut")]


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def read(path, dialect=USUAL, **columns):
    """All rows of a table as (line, text, label)."""
    columns = {"label_column": "label", **columns}
    chunks = list(read_chunks(path, dialect=dialect, **columns))
    return [row for chunk in chunks for row in zip(chunk.lines, chunk.text, chunk.labels or chunk.text)]


def refusal(path, dialect=USUAL, **columns):
    with pytest.raises(InputError) as error:
        read(path, dialect, **columns)
    message = error.value.spelled(
        lambda name, value: f"--{name.replace('_', '-')}" + (f" {value}" if isinstance(value, str) else "")
    )
    assert "\n" not in message and message.endswith("."), message
    return message.replace(str(path), path.name)


LINES = {
    "a.csv": ["text,label", *(f'"{text}",{label}' for text, label in ROWS)],
    "a.tsv": ["text\tlabel", *("\t".join(row) for row in ROWS)],
    "a.jsonl": [json.dumps(dict(zip(("text", "label"), row)), ensure_ascii=False) for row in ROWS],
    "a.txt": [text for text, _ in ROWS],
    "a.conllu": [
        line
        for text, label in ROWS
        for line in (*(f"{n}\t{word}\t_\t{label}" + "\t_" * 6 for n, word in enumerate(text.split(), 1)), "")
    ],
    "a.columns": [line for text, label in ROWS for line in (*(f"{word}\t{label}" for word in text.split()), "")],
    "a.json": [
        "{",
        *json.dumps(
            {"data": [{"paragraphs": [{"context": t, "qas": [{"question": lb, "id": t}]} for t, lb in ROWS]}]},
            ensure_ascii=False,
            indent=1,
        ).splitlines()[1:],
    ],
}
ENDS = {"unix": "\n", "windows": "\r\n", "mac": "\r"}
WRITTEN = {
    "utf-8": ("utf-8", None),
    "utf-8 with mark": ("utf-8-sig", None),
    "utf-16 with mark": ("utf-16", None),
    "utf-16-be with mark": (None, None),
    "utf-32 with mark": ("utf-32", None),
    "cp1252": ("cp1252", "cp1252"),
    "utf-16-le": ("utf-16-le", "utf-16-le"),
    "utf-16-le with mark, named": ("utf-16", "utf-16-le"),
    "utf-8 with mark, named": ("utf-8-sig", "utf8"),
    "mac-roman": ("mac-roman", "mac-roman"),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("written", WRITTEN)
def test_every_format_is_read_in_every_encoding_with_every_end_of_lines(tmp_path, name, end, written):
    content = ENDS[end].join([*LINES[name], ""])
    encoding, given = WRITTEN[written]
    raw = codecs.BOM_UTF16_BE + content.encode("utf-16-be") if encoding is None else content.encode(encoding)
    path, dialect = write(tmp_path, name, raw), dialect_of(given)
    if name == "a.json":
        (rows,) = read_question_chunks(path, dialect=dialect)
        assert list(zip(rows.contexts, rows.questions)) == ROWS
    elif name in ("a.conllu", "a.columns"):
        (chunk,) = read_word_chunks(path, dialect=dialect)
        assert (chunk.words, chunk.counts) == (" ".join(text for text, _ in ROWS).split(), [2, 4, 1])
    elif name == "a.txt":
        assert read(path, dialect, label_column=None) == [(n, text, text) for n, (text, _) in enumerate(ROWS, 1)]
    else:
        first = 1 if name == "a.jsonl" else 2
        assert read(path, dialect) == [(n, *row) for n, row in enumerate(ROWS, first)]


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(str.strip)


@hypothesis.settings(max_examples=120, deadline=None)
@hypothesis.given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]),
    header=st.booleans(),
)
def test_what_a_writer_of_csv_writes_is_read(tmp_path_factory, rows, delimiter, end, encoding, header):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label")] * header + rows)
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.getvalue().encode(encoding))
    dialect = Dialect(
        "gb18030" if encoding == "gb18030" else None,
        "first" if header else "none",
        None if delimiter in ",;" and header else delimiter,
    )
    columns = {} if header else {"text_column": "1", "label_column": "2"}
    assert [tuple(row[1:]) for row in read(path, dialect, **columns)] == rows


def test_a_carriage_return_is_text_where_lines_end_otherwise(tmp_path):
    assert read(write(tmp_path, "a.tsv", "text\tlabel\na\rb\tx\r\n")) == [(2, "a\rb", "x")]
    assert read(write(tmp_path, "a.txt", "a\rb\nc\n"), label_column=None)[0] == (1, "a\rb", "a\rb")
    # The first part of the file decides, however it is cut.
    long = "x" * (LOOKED_AT - 1)
    assert [text for _, text, _ in read_lines(write(tmp_path, "b.txt", f"{long}\r\na\rb\n"))] == [
        f"{long}\r\n",
        "a\rb\n",
    ]


def test_standard_input_has_marks_and_ends_of_lines_too_and_stays_open(monkeypatch):
    class Slow(io.RawIOBase):
        """Gives a byte at a time, as a slow pipe."""

        def __init__(self, content):
            self.content = io.BytesIO(content)

        def readable(self):
            return True

        def readinto(self, buffer):
            block = self.content.read(1)
            buffer[: len(block)] = block
            return len(block)

    for content in ("eins\nzwei\n".encode("utf-16"), b"\xef\xbb\xbfeins\rzwei", b"eins\r\nzwei\r\n"):
        stream = io.BufferedReader(Slow(content))
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=stream))
        assert [text for _, text, _ in read("-", label_column=None)] == ["eins", "zwei"]
        assert not stream.closed


def test_a_compressed_file_in_another_encoding_is_read_in_bounded_memory(tmp_path):
    content = gzip.compress(("text,label\n" + "naïve sentence of some length,1\n" * 50_000).encode("utf-16"))
    path = write(tmp_path, "a.csv.gz", content)
    tracemalloc.start()
    try:
        assert sum(len(chunk) for chunk in read_chunks(path)) == 50_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_bytes_that_are_no_text_are_a_bad_row_with_its_line_in_every_encoding(tmp_path):
    utf16 = "text\na\n".encode("utf-16-le") + b"\x00\xd8" + "b\nc\n".encode("utf-16-le")
    for content, encoding in (
        (b"text\na\nb\xff\nc\n", None),
        (codecs.BOM_UTF16_LE + utf16, None),
        (b"text\na\n\x81\xff\nc\n", "shift_jis"),
        (b"text\na\n\x81\nc\n", "cp1252"),
    ):
        bad, path = BadRows(), write(tmp_path, "a.csv", content)
        table = read_rows(path, bad_rows=bad, dialect=dialect_of(encoding))
        assert (table.text.numpy().tolist(), list(table.lines), bad.count) == ([b"a", b"c"], [2, 4], 1)
        assert "line 3: byte 0x" in bad.examples[0]
    assert "line 2: byte 0x61 is not UTF-16" in refusal(
        write(tmp_path, "b.txt", "a\n".encode("utf-16") + b"a"), label_column=None
    )


@pytest.mark.parametrize(
    "content, encoding, says",
    [
        ("text\n".encode("utf-16-be"), "utf16", "has no byte order mark of UTF-16, which says the order of its bytes;"),
        ("text\n".encode("utf-16-be"), "utf16", "; give --encoding utf-16-le, or utf-16-be."),
        (b"", "utf16", "a.csv is empty"),
        (
            b"text\nna\xefve\n",
            None,
            "byte 0xef is not UTF-8; with --encoding cp1252 it reads 'naïve': give that if it is right, otherwise",
        ),
        ("text\nПривет\n".encode("cp1251"), None, "with --encoding cp1252 it reads 'Ïðèâåò'"),
        (b"text\n" + b"x " * 500 + b"\x93quoted\x94", None, "reads 'x x x x x x x x x x “quoted”'"),
        (b"text\n" + "＝".encode("shift_jis"), None, "give the --encoding that the file was saved in"),
        ("text\nŁódź\n".encode(), "cp1252", "with --encoding utf-8 it reads 'Łódź'"),
        ("text\nab\n".encode("utf-16-be"), None, "as UTF-16 has; give --encoding utf-16-be"),
    ],
)
def test_a_file_in_another_encoding_is_told_which_may_be_its_own(tmp_path, content, encoding, says):
    assert says in refusal(write(tmp_path, "a.csv", content), dialect_of(encoding), label_column=None)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"encoding": "utf-88"}, "encoding='utf-88' is no encoding that Python knows: use one such as utf-8, utf-16"),
        ({"encoding": "base64"}, "is no encoding that Python knows"),
        ({"encoding": "idna"}, "is no encoding that Python knows"),
        ({"encoding": "unicode_escape"}, "is no encoding that Python knows"),
        ({"encoding": "a\0"}, "is no encoding that Python knows"),
        ({"encoding": "a" * 300}, "is no encoding that Python knows"),
        ({"encoding": 8}, "is no encoding that Python knows"),
        ({"header": None}, "header=None is unknown: use one of first, none."),
        ({"header": "0"}, "header='0' is unknown"),
        ({"delimiter": "::"}, "delimiter='::' must be one character between columns, or one of comma, semicolon, tab"),
        ({"delimiter": '"'}, "must be one character"),
        ({"delimiter": "\n"}, "must be one character"),
        ({"delimiter": ""}, "must be one character"),
    ],
)
def test_what_no_file_can_have_is_refused(tmp_path, arguments, says):
    with pytest.raises(InputError) as error:
        task_from_files(train=tmp_path / "no.csv", **arguments)
    assert says in str(error.value)


def test_delimiters_have_names_that_a_shell_leaves_alone(tmp_path):
    for given, delimiter in (("tab", "\t"), ("\\t", "\t"), ("pipe", "|"), ("semicolon", ";"), ("^", "^")):
        path = write(tmp_path, "a.csv", f"text{delimiter}label\n\"a, 'b'\"{delimiter}x\n")
        assert read(path, dialect_of(delimiter=given)) == [(2, "a, 'b'", "x")]


def test_semicolons_are_recognised_where_the_header_has_the_columns_only_so(tmp_path):
    path = write(tmp_path, "a.csv", b'\xef\xbb\xbfid;text;label\r\n1;"a, b; ""c""";x\r\n2;1,5;y\r\n')
    assert read(path) == [(2, 'a, b; "c"', "x"), (3, "1,5", "y")]
    assert read(write(tmp_path, "b.csv", "text,label;x\na,b\n"), label_column="label;x") == [(2, "a", "b")]
    assert read(write(tmp_path, "c.csv", "text,a;label,label\na,b,c\n")) == [(2, "a", "c")]


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(
    content=st.one_of(
        st.binary(max_size=80),
        st.text('text,label;\t\r\n"{}:1é\0', max_size=60).map(str.encode),
        st.text('text,label;\t\r\n"é', max_size=40).map(lambda text: text.encode("utf-16")),
    ),
    name=st.sampled_from(["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.conllu", "a.columns"]),
    encoding=st.sampled_from(
        [None, "utf-16", "utf-16-be", "utf-32", "shift_jis", "gb18030", "utf-7", "iso2022_jp", "hz", "cp037"]
    ),
    header=st.sampled_from(["first", "none"]),
    delimiter=st.sampled_from([None, "tab"]),
)
def test_no_bytes_do_anything_but_be_read_or_refused(tmp_path_factory, content, name, encoding, header, delimiter):
    path, bad = tmp_path_factory.getbasetemp() / name, BadRows()
    path.write_bytes(content)
    dialect = dialect_of(encoding, header, delimiter)
    try:
        if name in ("a.conllu", "a.columns"):
            texts = [word for chunk in read_word_chunks(path, dialect=dialect) for word in chunk.words]
        else:
            label = None if name == "a.txt" else "label"
            chunks = read_chunks(path, label_column=label, dialect=dialect, bad_rows=bad, keep_all_columns=True)
            texts = [text for chunk in chunks for text in chunk.text]
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert texts and all(text.strip() and "\0" not in text and text.encode() for text in texts)


# Without a header


@pytest.mark.parametrize("name, between", [("a.csv", ","), ("a.tsv", "\t")])
def test_columns_without_a_header_are_numbered_from_1(tmp_path, name, between):
    path = write(tmp_path, name, "".join(f"{n}{between}{text}{between}{label}\n" for n, text, label in ("1ax", "2by")))
    dialect = Dialect(header="none")
    assert read(path, dialect, text_column="2", label_column="3") == [(1, "a", "x"), (2, "b", "y")]
    assert read(path, dialect, text_column=2, label_column=3) == [(1, "a", "x"), (2, "b", "y")]
    (chunk,) = read_chunks(path, text_column="2", dialect=dialect, keep_all_columns=True)
    assert chunk.records[1] == {"1": "2", "2": "b", "3": "y"}


def test_a_column_that_can_be_one_alone_needs_no_number(tmp_path):
    dialect, path = Dialect(header="none"), write(tmp_path, "a.csv", "x,one film\ny,a film\n")
    assert read(path, dialect, label_column="1") == [(1, "one film", "x"), (2, "a film", "y")]
    assert read(path, dialect, text_column="2") == [(1, "one film", "x"), (2, "a film", "y")]
    path = write(tmp_path, "b.csv", "one film\na film\n")
    assert [row[1] for row in read(path, dialect, label_column=None)] == ["one film", "a film"]
    # All of the line, or a part of it: only the user knows.
    path = write(tmp_path, "c.csv", "one film; ok\na film\n")
    assert refusal(path, dialect, label_column=None).endswith("give --delimiter semicolon, or --text-column 1.")
    assert read(path, dialect, text_column="1", label_column=None)[0][1] == "one film; ok"


@pytest.mark.parametrize(
    "content, columns, says",
    [
        (
            "ham,come here now\n",
            {},
            "a.csv is read without a header and has the columns 1 to 2, in its first row 'ham', 'come here now': name "
            "--text-column and --label-column by number.",
        ),
        ("a,b,c\n", {"text_column": "2"}, "name --label-column by number."),
        ("a,b\n", {"text_column": "review"}, "name --text-column and --label-column by number."),
        ("a,b\n", {"text_column": "1", "label_column": "3"}, "has the columns 1 to 2 and none '3', in its first row"),
        ("a;b\n", {"text_column": "1", "label_column": "2"}, "has the columns 1 to 1 and none '2'"),
        ("a;b\n", {"text_column": "1", "label_column": "2"}, "give --delimiter semicolon."),
        ("a,b\nc\n", {"text_column": "1"}, "line 2: has 1 fields where the first row has 2"),
        ("", {}, "a.csv is empty: give a file with at least one row."),
    ],
)
def test_a_file_without_a_header_that_does_not_fit_is_told_so(tmp_path, content, columns, says):
    assert says in refusal(write(tmp_path, "a.csv", content), Dialect(header="none"), **columns)


def test_a_bad_first_row_of_a_file_without_a_header_is_left_out(tmp_path):
    bad = BadRows()
    path = write(tmp_path, "a.csv", b"na\xefve,x\na,x\nb,y\n")
    table = read_rows(path, text_column="1", label_column="2", bad_rows=bad, dialect=Dialect(header="none"))
    assert (table.text.numpy().tolist(), list(table.lines), bad.count) == ([b"a", b"b"], [2, 3], 1)


@pytest.mark.parametrize(
    "name, dialect, says",
    [
        ("a.jsonl", Dialect(header="none"), "--header none is for CSV and TSV, and a.jsonl is read as JSON lines"),
        ("a.txt", Dialect(delimiter=";"), "--delimiter semicolon is for CSV, and a.txt is read as plain text"),
        ("a.tsv", Dialect(delimiter=","), "--delimiter comma is for CSV, and of TSV it is the tab: leave it out."),
    ],
)
def test_what_a_format_has_not_is_refused(tmp_path, name, dialect, says):
    assert says in refusal(write(tmp_path, name, "a\n"), dialect, label_column=None)
    for path, reader in (("a.conllu", read_words), ("a.json", read_question_chunks)):
        with pytest.raises(InputError, match="is for CSV"):
            list(reader(write(tmp_path, path, "a\n"), dialect=dialect))


# A wrong guess


@pytest.mark.parametrize(
    "name, content, columns, says",
    [
        ("a.csv", "Text,label\na,b\n", {}, "no column 'text': the columns of its first line are 'Text', 'label'; give"),
        ("a.csv", "Text,label\na,b\n", {}, "; give --text-column Text."),
        ("a.csv", '"TEXT\n ",label\na,b\n', {}, "; name 'TEXT\\n ' by --text-column."),
        ("a.csv", "id,Movie review,label\n1,so very good,x\n", {}, "; name 'Movie review' by --text-column."),
        ("a.csv", "id,review,stars\n1,so good,5\n", {}, "; give --text-column review."),
        ("a.csv", "text,stars\na,b\n", {}, "; give --label-column stars."),
        ("a.csv", "id,what,n\n1,a film that moves,5\n", {}, "; give --text-column what."),
        ("a.csv", "id,what\n1,so\n", {}, "; name it by --text-column."),
        ("a.csv", "text,k\na,b\n", {}, "; name it by --label-column."),
        ("a.csv", "a good film,1\na bad film,0\n", {}, "is a row, give --header none and number the columns from 1."),
        ("a.tsv", "0\tfine\n1\tbad\n", {}, "give --header none and number the columns from 1."),
        ("a.csv", "text\tlabel\na\tb\n", {}, "; give --delimiter tab."),
        ("a.csv", "text|label\na|b\n", {}, "; give --delimiter pipe."),
        ("a.csv", "Text;label\na;b\n", {}, "; give --delimiter semicolon."),
        ("a.tsv", "text,label\na,b\n", {}, "; give --format csv."),
        ("a.tsv", "text;label\na;b\n", {}, "; give --format csv."),
        ("a.csv", '{"text": "a", "label": 1}\n', {}, "; give --format jsonl."),
        ("a.jsonl", "text,label\na,b\n", {}, "write one JSON object a line, or give --format csv."),
        ("a.jsonl", "text\tlabel\na\tb\n", {}, "write one JSON object a line, or give --format tsv."),
        ("a.jsonl", '{"review": "a", "label": 1}\n', {}, "its keys are 'review', 'label': give --text-column review."),
        ("a.txt", "text,label\na,b\n", {}, "has no column 'label': if it is a table, give --format csv."),
        ("a.txt", "text\tlabel\na\tb\n", {}, "if it is a table, give --format tsv."),
        ("a.txt", '{"text": "a"}\n', {}, "if it is a table, give --format jsonl."),
        ("a.dat", "a\n", {}, "or name it by --format (csv, jsonl, tsv, txt)."),
    ],
)
def test_a_wrong_guess_is_told_the_option_that_corrects_it(tmp_path, name, content, columns, says):
    message = refusal(write(tmp_path, name, content), **columns)
    assert says in message, message


@pytest.mark.parametrize(
    "names, kind, separator, says",
    [
        (["a", "b", "a|b", "b|a"], "classification", "|", ("a|b", {"kind": "multi-label"})),
        (["a;b", "b;c", "c;a"], "classification", "|", ("a;b", {"kind": "multi-label", "label_separator": ";"})),
        (["a,b", "b,c", "c,a"], "multi-label", "|", ("a,b", {"label_separator": ","})),
        ([str(n) for n in range(21)], "classification", "|", ("21 labels", {"kind": "regression"})),
        ([str(n) for n in range(20)], "classification", "|", None),
        (["New York, NY", "Albany, NY", "Boston, MA"], "classification", "|", None),
        (["sports|football", "sports|tennis", "news"], "classification", "|", None),
        (["a", "b", "a|b"], "multi-label", "|", None),
        ((), "regression", "|", None),
    ],
)
def test_labels_that_look_like_something_else_are_doubted(names, kind, separator, says):
    found = doubts(tuple(names), kind=kind, separator=separator)
    if says is None:
        assert found is None
    else:
        sentence, values = found
        assert says[0] in sentence and values == says[1] and all(f"{{{name}}}" in sentence for name in values)


def test_a_number_with_a_comma_is_told_so(tmp_path):
    path = write(tmp_path, "a.csv", "text;label\na;1,5\nb;2\n")
    with pytest.raises(InputError, match="line 2: the label '1,5' is not a number, .* write a point for the comma"):
        task_from_files(train=path, validation=path, kind="regression")


# What a directory keeps


def test_a_task_keeps_how_its_files_were_read_and_nothing_that_is_usual(tmp_path):
    path = write(tmp_path, "a.csv", "x|so good\ny|so bad\n")
    task = task_from_files(train=path, validation=path, header="none", delimiter="pipe", label_column=1)
    kept = {"files": "table", "label_column": "1", "header": "none", "delimiter": "pipe"}
    assert task.reading == kept and task.train.text.numpy().tolist() == [b"so good", b"so bad"]
    named = write(tmp_path, "b.csv", "text,label\nso good,x\nso bad,y\n".encode("utf-16"))
    assert task_from_files(train=named, validation=named, encoding="utf-16").reading is None

    expected = {name: value for name, value in kept.items() if name != "files"}
    assert kept_reading(kept, "other.csv.gz") == expected
    # A delimiter is of CSV alone. JSON lines have names where columns were numbers, and other files no such columns.
    assert kept_reading(kept, "other.dat", format="tsv") == {"label_column": "1", "header": "none"}
    assert kept_reading(kept, "other.jsonl") == {}
    for other in ("-", "other.txt", "other.conllu", "other.json"):
        assert kept_reading(kept, other) == {}
    assert kept_reading(None, "other.csv") == {}


def test_chunks_to_predict_carry_all_columns(tmp_path):
    table = write(tmp_path, "a.csv", "id,question,context,id\n7,wer,wir,8\n")
    (chunk,) = unlabelled_chunks(table, kind="question-answering", keep_all_columns=True)
    assert chunk.records == [{"id": "7", "question": "wer", "context": "wir", "id.1": "8"}] and len(chunk.rows()) == 1
    choices = write(tmp_path, "a.jsonl", '{"n": 1, "text": "a", "choices": ["b", "c"]}\n')
    (chunk,) = unlabelled_chunks(choices, kind="multiple-choice", keep_all_columns=True)
    assert chunk.records[0]["n"] == 1 and len(chunk) == len(chunk.rows()) == 1


# The command line


@pytest.fixture
def headless(tmp_path):
    """A file as Excel writes it in Germany, without a header: a number, a label and a text, `rows.csv`."""
    words = {"good": "great fun naïve", "bad": "dull awful plot"}
    rows = [f"{n};{label};{words[label]} {n % 5}" for n in range(20) for label in words]
    (tmp_path / "rows.csv").write_bytes("\r\n".join(rows).encode("cp1252"))
    return tmp_path / "rows.csv"


@pytest.mark.nightly
def test_a_directory_reads_files_like_its_training_file_without_being_told(cli, checkpoint, headless, tmp_path):
    words = ["--encoding=cp1252", "--header=none", "--delimiter=semicolon", "--text-column=3", "--label-column=2"]
    run = [f"--model={checkpoint}", f"--train={headless}", "--max-length=16", "--epochs=1"]
    outcome = cli("train", *run, *words, f"--output={tmp_path / 'a'}")
    assert outcome.status == 0, outcome.err
    assert "32 training, 4 validation, 4 test rows, labels bad, good" in outcome.out
    settings = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    assert settings["task"]["reading"] == {
        "files": "table", "text_column": "3", "label_column": "2", "header": "none", "delimiter": "semicolon",
    }  # fmt: skip

    note = f"{headless} is read as the training file: --text-column 3 --label-column 2 --header none --delimiter"
    # The encoding is asked for: another file's may be another, and some fit all bytes.
    refused = cli("evaluate", tmp_path / "a", f"--input={headless}")
    assert refused.status == 2 and "is not UTF-8; with --encoding cp1252 it reads '" in refused.err
    assert "Traceback" not in refused.err and refused.err.count("error: ") == 1
    scored = cli("evaluate", tmp_path / "a", f"--input={headless}", "--encoding=cp1252")
    assert scored.status == 0 and note in " ".join(scored.out.split()), scored.out
    assert f"{tmp_path / 'a'} on rows.csv" in scored.out
    predicted = cli("predict", tmp_path / "a", f"--input={headless}", "--encoding=cp1252")
    assert predicted.status == 0 and len(predicted.rows()) == 40
    assert predicted.err == f"{headless} is read as the training file: --text-column 3 --header none --delimiter " + (
        "semicolon\n"
    )
    # What is said counts more.
    (tmp_path / "named.csv").write_text("text\na great film\n")
    words = ("--header=first", "--text-column=text", "--delimiter=comma")
    assert len(cli("predict", tmp_path / "a", f"--input={tmp_path / 'named.csv'}", *words).rows()) == 1


@pytest.mark.parametrize(
    "command, options, says",
    [
        ("train", ["--encoding=none"], "--encoding none is no encoding that Python knows: use one such as utf-8"),
        ("tune", ["--header=no"], "--header no is unknown: use one of first, none."),
        ("pretrain", ["--delimiter=::"], "--delimiter :: must be one character between columns, or one of comma"),
        ("train", [], "line 1: byte 0xef is not UTF-8; with --encoding cp1252 it reads '0;good;great fun naïve 0'"),
        (
            "pretrain",
            ["--encoding=cp1252", "--header=none"],
            "'0;good;great fun naïve 0': give --delimiter semicolon, or",
        ),
        ("train", ["--encoding=cp1252", "--delimiter=;"], "give --header none and number the columns from 1."),
        (
            "train",
            ["--encoding=cp1252", "--delimiter=;", "--header=none"],
            "has the columns 1 to 3, in its first row '0', 'good', 'great fun naïve 0': name --text-column and "
            "--label-column by number.",
        ),
    ],
)
def test_each_mistake_names_the_next_option(cli, headless, tmp_path, command, options, says):
    outcome = cli(command, "--model=none", f"--train={headless}", f"--output={tmp_path / 'o'}", *options)
    assert outcome.status == 2 and outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    assert says in outcome.err


def test_options_of_files_are_refused_where_there_are_none(cli, adapter_directory, tmp_path):
    for words, says in (
        (["train", "--header=none"], "--header none goes with --train FILE"),
        (["pretrain", "--encoding=cp1252"], "--encoding cp1252 goes with --train FILE"),
        (["evaluate", adapter_directory, "--header=none"], "--header none goes with --input FILE"),
        (["predict", adapter_directory, "--input=no.csv", "--header=0"], "--header 0 is unknown"),
    ):
        outcome = cli(*words, f"--output={tmp_path / 'o.csv'}")
        assert outcome.status == 2 and says in outcome.err, outcome.err


def test_a_search_repeats_how_files_are_read(tmp_path):
    from tf_adapters.cli.data import DataOptions

    data = DataOptions(
        train_file=tmp_path / "a.csv", encoding="cp1252", header="none", delimiter="tab", text_column="1"
    )
    assert data.words()[2:] == [
        "--text-column", "1", "--encoding", "cp1252", "--header", "none", "--delimiter", "tab",
    ]  # fmt: skip


def test_train_says_what_labels_look_like(tmp_path):
    import rich.console

    from tf_adapters.cli.data import DataOptions

    path = write(tmp_path, "a.csv", "text,label\na,x\nb,y\nc,x|y\nd,y|x\ne,x\nf,y\n")
    console = rich.console.Console(file=io.StringIO(), width=500)
    DataOptions(train_file=path, validation=path).read(console)
    shown = "Labels such as 'x|y' look like several. If they are, give --kind multi-label."
    assert shown in console.file.getvalue()


@pytest.mark.parametrize(
    ("reading", "path", "about", "expected"),
    [
        ({"delimiter": "pipe", "text_column": "body"}, "a.csv", {}, {"delimiter": "pipe", "text_column": "body"}),
        ({"delimiter": "pipe", "text_column": "body"}, "a.tsv", {}, {"text_column": "body"}),
        ({"delimiter": "pipe"}, "a.tsv", {"format": "csv"}, {"delimiter": "pipe"}),
        ({"header": "none", "text_column": "2"}, "a.tsv", {}, {"header": "none", "text_column": "2"}),
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "none"}, {"text_column": "2"}),
        # Numbers are no names, and names no numbers.
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "first"}, {}),
        ({"header": "none", "text_column": "2"}, "a.jsonl", {}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "none"}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "first"}, {"text_column": "body"}),
        ({"text_column": "body"}, "a.conllu", {}, {}),
        (None, "a.csv", {}, {}),
    ],
)  # fmt: skip
def test_what_of_a_training_files_reading_is_for_another_file(reading, path, about, expected):
    assert kept_reading(reading and {"files": "table", **reading}, path, **about) == expected


def test_directories_of_one_file_with_other_labels_keep_what_they_share():
    from tf_adapters.cli.trained import reading_of

    settings = [
        {"task": {"reading": {"files": "table", "text_column": "body", "label_column": label}}} for label in ("a", "b")
    ]
    given = {"text_column": None, "format": None, "header": None}
    assert reading_of(settings, "new.csv", given)[0] == {"text_column": "body"}
    assert reading_of(settings, "new.csv", {**given, "label_column": None})[0] == {}


def test_a_name_that_comes_twice_does_not_take_another_columns_place(tmp_path):
    (tmp_path / "a.csv").write_text("x,x,x.1,label\nfirst,second,third,a\nfirst,second,third,b\n")
    rows = rows_from_file(tmp_path / "a.csv", kind="classification", labels=("a", "b"), text_column="x.1")
    assert [text.decode() for text in rows.text.numpy()] == ["third", "third"]


def test_a_headless_file_without_a_readable_row_has_no_usable_row(tmp_path):
    (tmp_path / "a.csv").write_text('"a,b\n"x,hello you\n')
    bad_rows = BadRows()
    with pytest.raises(InputError, match="no usable row"):
        rows_from_file(
            tmp_path / "a.csv", kind="classification", labels=("a", "b"), header="none", text_column="1",
            label_column="2", bad_rows=bad_rows,
        )  # fmt: skip
    with pytest.raises(InputError, match="delimiter"):
        rows_from_file(tmp_path / "a.csv", kind="classification", labels=("a", "b"), delimiter=[","])
