"""CSV, TSV, JSON lines and plain text: how they are written, and what is said of a file that is not right."""

import bz2
import codecs
import csv
import gzip
import io
import json
import re
import tracemalloc
import types

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.conftest import is_refused
from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.files import FIELD_LIMIT, BadRows, read_chunks, read_rows
from tf_adapters.tasks.lines import USUAL, Dialect
from tf_adapters.tasks.own_files import READERS, rows_from_file, task_from_files

READ_WORDS, READ_QUESTIONS = READERS["token-classification"], READERS["question-answering"]
ROWS = [("naïve café", "gut"), ("„schön“ – 5 €", "böse"), ("drei", "gut")]


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def read(path, dialect=USUAL, **columns):
    """All rows of a table as (line, text, label); of plain text as (line, text)."""
    if "label_column" not in columns and path != "-" and path.suffix != ".txt":
        columns["label_column"] = "label"
    chunks = list(read_chunks(path, dialect=dialect, **columns))
    return [row for chunk in chunks for row in zip(*filter(None, (chunk.lines, chunk.text, chunk.labels)))]


def refusal(path, dialect=USUAL, **columns):
    with pytest.raises(InputError) as error:
        read(path, dialect, **columns)
    message = error.value.spelled(
        lambda name, value: f"--{name.replace('_', '-')}" + (f" {value}" if isinstance(value, str) else "")
    )
    assert "\n" not in message and message.endswith((".", "?")), message
    return message.replace(str(path), path.name)


# How files are written

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
    "a.json": json.dumps(
        {"data": [{"paragraphs": [{"context": t, "qas": [{"question": lb, "id": t}]} for t, lb in ROWS]}]},
        ensure_ascii=False,
        indent=1,
    ).splitlines(),
}
WRITTEN = {
    "utf-8": None, "utf-8-sig": None, "utf-16": None, "utf-16-be": None, "utf-32": None, "cp1252": "cp1252",
    "utf-16-le": "utf-16-le", "mac-roman": "mac-roman",
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_every_format_is_read_in_every_encoding_with_every_end_of_lines(tmp_path, name):
    variants = [(end, written, WRITTEN[written]) for end in ("\n", "\r\n", "\r") for written in WRITTEN]
    variants += [("\n", "utf-16", "utf-16-le"), ("\n", "utf-8-sig", "utf8"), ("\n", "utf-8-sig", "cp1252")]
    for end, written, given in variants:
        raw = end.join([*LINES[name], ""]).encode(written)
        raw = codecs.BOM_UTF16_BE + raw if written == "utf-16-be" else raw
        for content in (raw, gzip.compress(raw)):
            path, dialect = write(tmp_path, name, content), Dialect(given)
            if name == "a.json":
                (rows,) = READ_QUESTIONS.chunks(path, encoding=given)
                assert list(zip(rows.contexts, rows.questions)) == ROWS
            elif name in ("a.conllu", "a.columns"):
                (chunk,) = READ_WORDS.chunks(path, encoding=given)
                assert (chunk.words, chunk.counts) == (" ".join(text for text, _ in ROWS).split(), [2, 4, 1])
            elif name == "a.txt":
                assert read(path, dialect) == [(n, text) for n, (text, _) in enumerate(ROWS, 1)]
            else:
                assert read(path, dialect) == [(n, *row) for n, row in enumerate(ROWS, 1 + (name != "a.jsonl"))]


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(str.strip)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5),
    delimiter=st.sampled_from(",;\t|^"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]),
    header=st.sampled_from(["first", "none", "said"]),
)
def test_what_a_writer_of_csv_writes_is_read(tmp_path_factory, rows, delimiter, end, encoding, header):
    text = io.StringIO()
    text.write(f"sep={delimiter}{end}" if header == "said" else "")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label")] * (header != "none") + rows)
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.getvalue().encode(encoding))
    guessed = header == "said" or (header == "first" and delimiter != "^")
    dialect = Dialect(
        "gb18030" if encoding == "gb18030" else None,
        "none" if header == "none" else "first",
        None if guessed else delimiter,
    )
    columns = {"text_column": "1", "label_column": 2} if header == "none" else {}
    assert [tuple(row[1:]) for row in read(path, dialect, **columns)] == rows


def test_what_looks_like_an_end_of_a_line_or_a_quote_is_text_where_it_is_none(tmp_path):
    assert read(write(tmp_path, "a.tsv", "text\tlabel\na\rb\u2028c\x0b\tx\r\n")) == [(2, "a\rb\u2028c\x0b", "x")]
    assert read(write(tmp_path, "a.tsv", 'label\ttext\n1\t"He\n0\tso" "it\n')) == [(2, '"He', "1"), (3, 'so" "it', "0")]
    content = b'\xef\xbb\xbftext,label\r\n"one, ""two""\nthree",x\r\nnan,NULL\r\n\r\n'
    assert read(write(tmp_path, "a.csv", content)) == [(2, 'one, "two"\nthree', "x"), (4, "nan", "NULL")]
    assert read(write(tmp_path, "a.csv", "text,a;label,label\na,b,c\n")) == [(2, "a", "c")]
    content = '{"text": "a", "label": 1, "x": {}}\n{"text": "b\\nc", "label": ["p", "q"]}'
    assert read(write(tmp_path, "a.jsonl", content)) == [(1, "a", 1), (2, "b\nc", ["p", "q"])]
    assert read(write(tmp_path, "a.csv", "label,text\n,one\n"), label_column=None) == [(2, "one")]


def test_standard_input_is_read_as_files_are_and_stays_open(monkeypatch):
    for content, format in (
        ("eins\nzwei\n".encode("utf-16"), None), (b"\xef\xbb\xbfeins\rzwei", None), (b"eins\r\nzwei\r\n\r\n", None),
        (gzip.compress(b"eins\nzwei"), None), (b'{"text": "eins"}\n{"text": "zwei"}\n', "jsonl"),
    ):  # fmt: skip
        for stream in (io.BytesIO(content), io.BufferedReader(io.BytesIO(content))):
            monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=stream))
            assert read("-", format=format) == [(1, "eins"), (2, "zwei")]
            assert not stream.closed


def test_a_large_file_is_read_in_bounded_memory_and_chunks_have_the_asked_size(tmp_path):
    content = gzip.compress(("text,label\n" + "naïve sentence of some length,1\n" * 20_000).encode("utf-16"))
    path = write(tmp_path, "a.csv.gz", content)
    tracemalloc.start()
    try:
        assert sum(len(chunk) for chunk in read_chunks(path)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # all rows take some 4 MB
    finally:
        tracemalloc.stop()
    path = write(tmp_path, "a.txt", "x\n" * 10)
    assert [len(chunk) for chunk in read_chunks(path, chunk_rows=4)] == [4, 4, 2]
    (chunk,) = read_chunks(write(tmp_path, "a.csv", "x,text,x,x.1\n1,2,3,4\n"), keep_all_columns=True)
    assert chunk.records == [{"x": "1", "text": "2", "x.2": "3", "x.1": "4"}]
    chunks = read_chunks(write(tmp_path, "a.csv", "text\na\nb\n\nc\n"), chunk_rows=2)
    assert next(chunks).text == ["a", "b"]
    is_refused(r"a.csv, line 4: is empty", next, chunks)


def test_columns_without_a_header_are_numbered_and_one_that_is_left_needs_no_number(tmp_path):
    dialect, expected = Dialect(header="none"), [(1, "one film", "x"), (2, "a film", "y")]
    for name, between in (("a.csv", ","), ("a.tsv", "\t")):
        path = write(tmp_path, name, "".join(between.join((label, text, "1\n")) for _, text, label in expected))
        assert read(path, dialect, text_column=2, label_column="1") == expected
        path = write(tmp_path, name, "".join(between.join((label, text)) + "\n" for _, text, label in expected))
        assert read(path, dialect, label_column="1") == read(path, dialect, text_column="2") == expected


# Files that are not right


def test_a_mistake_in_a_file_is_one_sentence_with_file_and_line(tmp_path):
    for name, content, columns, says in (
        ("a.csv", "", {}, "a.csv is empty: give a file with a header and at least one row"),
        ("a.csv", "text,label\n", {}, "a.csv has a header and no rows"),
        ("a.csv", "text,text\na,b\n", {}, "a.csv has more than one column 'text'"),
        ("a.csv", 'text,label\n"a\nb",c\nd,e,f\n', {}, "a.csv, line 4: has 3 fields where the header has 2"),
        ("a.csv", 'text,label\na,b\n"c,d\ne,f\n', {}, 'a.csv, line 3: a quote (") is opened in this row and never'),
        ("a.csv", 'text,label\n"a" b,c\n', {}, "a.csv, line 2: is not valid CSV"),
        ("a.csv", 'text,label\n" \t\u3000",c\n', {}, "a.csv, line 2: column 'text' is empty"),
        ("a.csv", "text,label\na,b\n\nc,d\n", {}, "a.csv, line 3: is empty; remove it"),
        ("a.csv", "text\na\0b\n", {"label_column": None}, "a.csv, line 2: holds a NUL character"),
        ("a.jsonl", '{"text": "a\\u0000", "label": 1}\n', {}, "line 1: column 'text' holds a NUL character"),
        ("a.jsonl", '{"text": "a\\ud800", "label": 1}\n', {}, "line 1: column 'text' holds half of a surrogate pair"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": \n', {}, "a.jsonl, line 2: is not JSON (Expecting value"),
        ("a.jsonl", '["a"]\n', {}, "a.jsonl, line 1: is '[\"a\"]' and not a JSON object; write one JSON object a line"),
        ("a.jsonl", '{"sentence": "a", "y": 1}\n', {}, "line 1: has no key 'text'; its keys are 'sentence', 'y': name"),
        ("a.jsonl", '{"text": NaN, "label": 1}\n', {}, "a.jsonl, line 1: column 'text' is empty"),
        ("a.jsonl", '{"text": 12, "label": 1}\n', {}, "column 'text' is 12, which is not a string; write it in quotes"),
        ("a.jsonl", '{"text": ["a"], "label": ["B"]}\n', {}, 'is ["a"], a list: join its words into one text'),
        ("a.pkl", b"\x80\x04\x95\0", {}, "a.pkl does not begin with text: write its rows as CSV or JSON lines."),
        ("a.csv.gz", gzip.compress(bytes(range(32, 127)) * 99)[:-12], {}, "a.csv.gz is not a complete gzip file"),
        ("a.txt", "a\n", {"label_column": "label"}, "read as plain text, one text a line, and has no column 'label'"),
        ("a.jsonl", "a\n", {"dialect": Dialect(header="none")}, "--header none is for CSV and TSV, and a.jsonl is"),
        ("a.txt", "a\n", {"dialect": Dialect(delimiter=";")}, "--delimiter semicolon is for CSV, and a.txt is read as"),
        ("a.csv", "a,b,c\n", {"dialect": Dialect(header="none"), "text_column": 2}, "name --label-column by number."),
        ("a.csv", "a,b\n", {"dialect": Dialect(header="none"), "text_column": 1, "label_column": 3}, "columns 1 to 2"),
        ("a.csv", b"label,text\n1,na\xefve\n", {}, "byte 0xef is not UTF-8; with --encoding cp1252 it reads '1,naïve'"),
        ("a.csv", "text,label\nŁódź,1\n", {"dialect": Dialect("cp1252")}, "with --encoding utf-8 it reads 'Łódź,1'"),
    ):
        message = refusal(write(tmp_path, name, content), **columns)
        assert says in message, message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert "no.csv does not exist: check the path." in refusal(tmp_path / "no.csv")
    for name in ("folder.csv", "folder"):
        (tmp_path / name).mkdir()
        assert f"{name} is a directory: give a file." in refusal(tmp_path / name)
    path = write(tmp_path, "a.csv", 'text,label\n"open\n' + ("x" * 1023 + "\n") * (FIELD_LIMIT // 1024 + 1))
    assert f"a.csv, line 2: a field has more than {FIELD_LIMIT} characters; is a quote never closed?" in refusal(path)


def test_bad_rows_are_left_out_and_counted_with_their_lines(tmp_path):
    content = b'text,label\ngood,1\none,two,three\n"never closed,0\nna\xefve,1\n,0\n"two\nlines",0\n\nfine,1\n"open,2\n'
    bad, path = BadRows(), write(tmp_path, "a.csv", content)
    table = read_rows(path, label_column="label", bad_rows=bad)
    assert [text.decode() for text in table.text.numpy()] == ["good", "two\nlines", "fine"]
    assert (table.labels, table.lines, bad.count) == (["1", "0", "1"], [2, 7, 10], 6)
    assert [re.search(r"line (\d+)", example)[1] for example in bad.examples] == ["3", "4", "5", "6", "9"]
    bad = BadRows()
    path = write(tmp_path, "a.jsonl", b'{"text": "a"}\n\n{"text": 3}\n{"txt": "b"}\n{"text"\n[1]\n{"text": "c"}\n')
    assert ([text.decode() for text in read_rows(path, bad_rows=bad).text.numpy()], bad.count) == (["a", "c"], 5)
    for content, encoding in (
        (codecs.BOM_UTF16_LE + "text\na\n".encode("utf-16-le") + b"\x00\xd8" + "b\nc\n".encode("utf-16-le"), None),
        (b"text\na\n\x81\xff\nc\n", "shift_jis"),
        (b"text\na\n\x81\nc\n", "cp1252"),
    ):
        bad, path = BadRows(), write(tmp_path, "a.csv", content)
        table = read_rows(path, bad_rows=bad, dialect=Dialect(encoding))
        assert (table.text.numpy().tolist(), table.lines, bad.count) == ([b"a", b"c"], [2, 4], 1)
        assert "line 3: byte 0x" in bad.examples[0]
    for content in ('"a,b\n"x,hello you\n', b"\xff,a\n"):
        with pytest.raises(InputError, match="no usable row; the first problem: .*line 1: "):
            read_rows(write(tmp_path, "a.csv", content), bad_rows=BadRows(), dialect=Dialect(header="none"))


@pytest.mark.parametrize(
    "kind, cells", [("classification", "a b  c a"), ("regression", "1 2.5 x inf 3"), ("multi-label", "a|b a|| b a|z a")]
)
def test_rows_with_unusable_or_unknown_labels_are_counted(tmp_path, kind, cells):
    lines = "".join(f"row,{cell}\n" for cell in cells.split(" "))
    bad, labels = BadRows(), ("a", "b") if kind != "regression" else ()
    rows = rows_from_file(write(tmp_path, "a.csv", "text,label\n" + lines), kind=kind, labels=labels, bad_rows=bad)
    assert bad.count == 2 and len(rows) == len(rows.labels) == 3


# What is said is done, until the file is read


CSV = "text,label\nso good,1\nso bad,0\n"
NUMBERS, NAMES = {"text_column": "2", "label_column": "3"}, {"text_column": "a", "label_column": "b"}
HINTS = {
    "another encoding": (("a.csv", "text,label\nnaïve,1\nsoso,0\n".encode("cp1252")), {}, 1),
    "no mark": (("a.csv", CSV.encode("utf-16-be")), {}, 1),
    "JSON as CSV": (("a.csv", '{"text": "so good", "label": 1}\n{"text": "so bad", "label": 0}\n'), {}, 1),
    "CSV as JSON": (("a.jsonl", CSV), {"format": "csv"}, 1),
    "CSV as TSV": (("a.tsv", CSV.replace(",", ";")), {}, 1),
    "no header": (("a.csv", "so good a film,1\nso bad a film,0\n"), {"text_column": "1", "label_column": "2"}, 1),
    "no header, semicolons": (("a.csv", "7;so good;1\n8;so bad;0\n"), {"header": "none", **NUMBERS}, 1),
    "other names": (("a.csv", "a;b\nso good;1\nso bad;0\n"), NAMES, 3),
    "other keys": (("a.jsonl", '{"a": "so good", "b": 1}\n{"a": "so bad", "b": 0}\n'), NAMES, 2),
    "several labels": (("a.jsonl", '{"text": "so", "label": ["b"]}\n{"text": "bad", "label": ["a", "b"]}\n'), {}, 1),
    "scores": (("a.csv", "text,label\n" + "".join(f"so,{n}.5\n" for n in range(30))), {}, 1),
    "questions": (("a.json", '{"question": "a", "context": "b", "answers": "b"}'), {"kind": "question-answering"}, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", HINTS)
def test_a_hint_works_when_it_is_followed(tmp_path, case):
    """Arguments with a value are given as they are said, others as the case has them."""
    (name, content), answers, steps = HINTS[case]
    path, followed = write(tmp_path, name, content), 0
    arguments = {name: answers[name] for name in ("kind", "header", "encoding") if name in answers}
    while True:
        try:
            task = task_from_files(train=path, validation=path, **arguments)
            break
        except InputError as error:
            followed += 1
            assert followed <= steps, error
            assert "\n" not in str(error)
            given = {name: answers[name] if value is NAME else value for name, value in error.values.items()}
            assert given != {name: arguments.get(name) for name in given}, error
            arguments |= given
    assert followed == steps and len(task.train) >= (1 if case == "questions" else 2)
    if task.kind == "classification":
        assert task.labels[0] == "0" and task.train.labels.tolist() == [1, 0]
    elif task.kind == "multi-label":
        assert sorted(task.train.labels.tolist()) == [[0, 1], [1, 1]]


def test_files_of_other_programs_are_named_with_what_to_do(tmp_path):
    for content, says in (
        (b"PAR1", "is a Parquet file, which is not read: write it as JSON lines, such as by pandas: `read_parquet("),
        (b"PK\x03\x04", "is a zip archive or an Excel workbook, which is not read: unpack it, or save it as `CSV"),
        (bz2.compress(b"text,label\n"), "is compressed by bzip2, which is not read: unpack it by `bunzip2`."),
        (b"\xef\xbb\xbf__label__1 so good\n", "is a file of fastText, which is not read: write an object with"),
    ):
        for name, packed in (("a.csv", content), ("a.dat", content), ("a.csv.gz", gzip.compress(content))):
            assert says in refusal(write(tmp_path, name, packed))
        assert says in refusal_of_stdin(content)


def test_hints_that_only_the_user_can_follow(tmp_path):
    path = write(tmp_path, "a.csv", "text,toxic,rude\nso good,0,0\nso bad,1,1\n")
    assert "'toxic', 'rude' look like a label each; join the names of those columns that are 1 by |" in refusal(path)
    path = write(tmp_path, "a.csv", "text,label\nso good,\nso bad,toxic|rude\n")
    assert task_from_files(train=path, validation=path, kind="multi-label").train.labels.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(InputError, match="write a word and its label a line, with a tab between them"):
        READ_WORDS.read(write(tmp_path, "a.jsonl", '{"tokens": ["New York", "is"], "ner_tags": [3, 0]}\n'))


def refusal_of_stdin(content):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InputError) as error:
        patch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content))))
        read("-")
    return str(error.value)
