"""Reading CSV, TSV, JSON lines and plain text: every mistake has its sentence."""

import gzip
import io
import re
import tracemalloc
import types

import pytest

from tf_adapters.errors import InputError
from tf_adapters.tasks.files import BadRows, read_chunks, read_rows
from tf_adapters.tasks.own_files import rows_from_file
from tf_adapters.tasks.tables import FIELD_LIMIT


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def rows(path, **arguments):
    """All rows as (line, text[, pair][, label]) tuples."""
    found = []
    for chunk in read_chunks(path, **arguments):
        columns = [chunk.lines, chunk.text, chunk.text_pair, chunk.labels]
        found.extend(zip(*(column for column in columns if column is not None)))
    return found


def refusal(path, **arguments):
    """The message with which reading refuses the file."""
    with pytest.raises(InputError) as error:
        rows(path, **arguments)
    message = str(error.value)
    assert "\n" not in message and message.endswith((".", "?", ")"))
    return message


def test_csv_fields_may_hold_commas_quotes_and_newlines(tmp_path):
    path = write(tmp_path, "a.csv", 'text,label\n"one, ""two""\nthree",x\nfour,y\n')
    assert rows(path, label_column="label") == [(2, 'one, "two"\nthree', "x"), (4, "four", "y")]


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_the_data(tmp_path):
    for name, separator in (("a.csv", b","), ("a.tsv", b"\t")):
        path = write(tmp_path, name, b"\xef\xbb\xbftext" + separator + b"label\r\none" + separator + b"x\r\n")
        assert rows(path, label_column="label") == [(2, "one", "x")]
    path = write(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"text": "one"}\r\n')
    assert rows(path) == [(1, "one")]


def test_tsv_quotes_are_characters_of_the_text(tmp_path):
    path = write(tmp_path, "a.tsv", 'label\ttext\n1\t"He said\n0\tso" it "ends\n')
    assert rows(path, label_column="label") == [(2, '"He said', "1"), (3, 'so" it "ends', "0")]


def test_json_lines_keep_the_type_of_labels_and_ignore_other_keys(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"text": "a", "label": 1, "x": {}}\n{"text": "b\\nc", "label": ["p", "q"]}')
    assert rows(path, label_column="label") == [(1, "a", 1), (2, "b\nc", ["p", "q"])]


def test_text_separators_of_unicode_do_not_end_a_line(tmp_path):
    path = write(tmp_path, "a.tsv", "text\none\u2028two\x85three\x0bfour\n")
    assert rows(path) == [(2, "one\u2028two\x85three\x0bfour")]


def test_a_label_column_is_ignored_unless_asked_for(tmp_path):
    path = write(tmp_path, "a.csv", "label,text\n,one\n")
    assert rows(path) == [(2, "one")]


def test_the_word_nan_is_a_legal_text(tmp_path):
    path = write(tmp_path, "a.csv", "text,text2\nnan,NULL\nNaN,None\n")
    assert rows(path, text_pair_column="text2") == [(2, "nan", "NULL"), (3, "NaN", "None")]


def test_gzip_files_are_read_by_their_inner_extension(tmp_path):
    path = write(tmp_path, "a.jsonl.gz", gzip.compress(b'{"text": "one"}\n'))
    assert rows(path) == [(1, "one")]
    cut = write(tmp_path, "b.csv.gz", gzip.compress(b"text\n" + bytes(range(32, 127)) * 99)[:-12])
    assert "b.csv.gz is not a complete gzip file" in refusal(cut)
    assert "b2.csv.gz is not a complete gzip file" in refusal(write(tmp_path, "b2.csv.gz", b"text\none\n"))


def test_a_line_that_inflates_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tf_adapters.tasks.lines.LONGEST_LINE", 1 << 20)
    path = write(tmp_path, "a.txt.gz", gzip.compress(b"one\n" + b"x" * (1 << 20)))
    assert rows(path)[1][0] == 2
    assert "a.txt.gz, line 2 is longer than 1 MiB" in refusal(
        write(tmp_path, "a.txt.gz", gzip.compress(b"one\n" + b"x" * (10 << 20)))
    )


def test_plain_text_and_standard_input_hold_one_text_a_line(tmp_path, monkeypatch):
    assert rows(write(tmp_path, "a.txt", "one\n two, 2\n\n")) == [(1, "one"), (2, " two, 2")]
    for given, format in ((b"one\ntwo\n", None), (b'{"text": "one"}\n{"text": "two"}\n', "jsonl")):
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(given)))
        assert rows("-", format=format) == [(1, "one"), (2, "two")]
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(b"")))
    assert refusal("-") == "standard input is empty: give a file with at least one row."


def test_all_columns_can_be_kept(tmp_path):
    path = write(tmp_path, "a.csv", "id,text\n7,one\n8,two\n")
    (chunk,) = read_chunks(path, keep_all_columns=True)
    assert chunk.records == [{"id": "7", "text": "one"}, {"id": "8", "text": "two"}]


def test_chunks_have_the_asked_size_and_the_rest(tmp_path):
    path = write(tmp_path, "a.txt", "x\n" * 10)
    assert [len(chunk) for chunk in read_chunks(path, chunk_rows=4)] == [4, 4, 2]
    assert [len(chunk) for chunk in read_chunks(path, chunk_rows=5)] == [5, 5]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_texts_longer_than_the_csv_modules_limit_are_read(tmp_path, name):
    text = "long " * 60_000
    content = f'{{"text": "{text}"}}\n' if name == "a.jsonl" else f"text\n{text}\n"
    assert rows(write(tmp_path, name, content))[0][1] == text


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", "", "a.csv is empty: give a file with a header and at least one row"),
        ("a.tsv", "\n\n", "a.tsv is empty"),
        ("a.jsonl", "", "a.jsonl is empty"),
        ("a.csv", "text,label\n", "a.csv has a header and no rows"),
        ("a.csv", "Text;label\na;b\n", "a.csv has no column 'text': the columns of its first line are 'Text;label'"),
        ("a.tsv", "a\tb\n1\t2\n", "a.tsv has no column 'text': the columns of its first line are 'a', 'b'"),
        ("a.csv", "text,text\na,b\n", "a.csv has more than one column 'text'"),
        ("a.csv", "text,label\na,b\nc\n", "a.csv, line 3: has 1 fields where the header has 2"),
        ("a.csv", 'text,label\n"a\nb",c\nd,e,f\n', "a.csv, line 4: has 3 fields where the header has 2"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", "a.tsv, line 2: has 3 fields where the header has 2"),
        ("a.csv", 'text,label\na,b\n"c,d\ne,f\n', 'a.csv, line 3: a quote (") is opened in this row and never closed'),
        ("a.csv", 'text,label\n"a" b,c\n', "a.csv, line 2: is not valid CSV"),
        ("a.csv", "text,label\na,b\n,c\n", "a.csv, line 3: column 'text' is empty"),
        ("a.csv", 'text,label\n" \t\u3000",c\n', "a.csv, line 2: column 'text' is empty"),
        ("a.tsv", "text\tlabel\n\tc\n", "a.tsv, line 2: column 'text' is empty"),
        ("a.csv", "text,label\na,b\n\nc,d\n", "a.csv, line 3: is empty; remove it"),
        ("a.txt", "a\n\nb\n", "a.txt, line 2: is empty; remove it"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b"}\n', "a.jsonl, line 2: is empty; remove it"),
        (
            "a.csv",
            b"text\na\ncaf\xe9\n",
            "a.csv, line 3: byte 0xe9 is not UTF-8; with encoding='cp1252' it reads 'café': give that",
        ),
        (
            "a.csv",
            "text\nab\n".encode("utf-16-le"),
            "a.csv, line 1: holds NUL characters, as UTF-16 has; give encoding=",
        ),
        ("a.jsonl", b'{"text": "\xff"}', "a.jsonl, line 1: byte 0xff is not UTF-8"),
        ("a.csv", "text\na\0b\n", "a.csv, line 2: holds a NUL character"),
        ("a.jsonl", '{"text": "a\\u0000"}\n', "a.jsonl, line 1: column 'text' holds a NUL character"),
        ("a.jsonl", '{"text": "a\\ud800"}\n', "a.jsonl, line 1: column 'text' holds half of a surrogate pair"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl, line 2: is not JSON (Expecting value at column"),
        ("a.jsonl", "[" * 100_000, "a.jsonl, line 1: is not"),
        ("a.json", '[\n{"text": "a"}\n]\n', "a.json, line 1: is not JSON"),
        ("a.jsonl", '["a"]\n', "a.jsonl, line 1: is '[\"a\"]' and not a JSON object; write one JSON object a line"),
        ("a.jsonl", '{"sentence": "a", "y": 1}\n', "a.jsonl, line 1: has no key 'text'; its keys are 'sentence', 'y'"),
        ("a.jsonl", '{"text": null}\n', "a.jsonl, line 1: column 'text' is empty"),
        ("a.jsonl", '{"text": NaN}\n', "a.jsonl, line 1: column 'text' is empty"),
        ("a.jsonl", '{"text": "  "}\n', "a.jsonl, line 1: column 'text' is empty"),
        (
            "a.jsonl",
            '{"text": 12}\n',
            "a.jsonl, line 1: column 'text' is 12, which is not a string; write it in quotes",
        ),
        ("a.jsonl", '{"text": ["a"]}\n', "a.jsonl, line 1: column 'text' is [\"a\"], which is not a string"),
        ("a.xlsx", "x", "a.xlsx has the extension '.xlsx', which names no known format: use .csv"),
        ("a", "x", "a has the extension '', which names no known format"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_file_and_line(tmp_path, name, content, message):
    assert message in refusal(write(tmp_path, name, content))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert "no.csv does not exist: check the path." in refusal(tmp_path / "no.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "folder.csv is a directory: give a file." in refusal(tmp_path / "folder.csv")


def test_a_quote_that_is_never_closed_does_not_swallow_a_large_file(tmp_path):
    path = write(tmp_path, "a.csv", 'text\n"open\n' + ("x" * 1023 + "\n") * (FIELD_LIMIT // 1024 + 1))
    assert f"a.csv, line 2: a field has more than {FIELD_LIMIT} characters; is a quote never closed?" in refusal(path)


def test_arguments_that_do_not_fit_are_named(tmp_path):
    path = write(tmp_path, "a.txt", "a\n")
    assert "is read as plain text, one text a line, and has no column 'label'" in refusal(path, label_column="label")
    assert "column 'text' is asked for twice" in refusal(path, label_column="text")
    assert "chunk_rows must be at least 1, and it is 0." == refusal(path, chunk_rows=0)
    assert "format is 'xml' and must be one of csv, jsonl, tsv, txt." == refusal(path, format="xml")


def test_a_mistake_in_the_second_chunk_comes_after_the_first_chunk(tmp_path):
    chunks = read_chunks(write(tmp_path, "a.csv", "text\na\nb\n\nc\n"), chunk_rows=2)
    assert next(chunks).text == ["a", "b"]
    with pytest.raises(InputError, match=re.escape("a.csv, line 4: is empty")):
        next(chunks)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_large_file_is_read_in_bounded_memory(tmp_path, name):
    count = 200_000 if name == "a.csv" else 50_000
    line = {"a.jsonl": '{"text": "a sentence of some length", "label": "1"}\n', "a.txt": "a sentence\n"}.get(
        name, "a sentence of some length,1\n".replace(",", "\t" if name == "a.tsv" else ",")
    )
    header = {"a.csv": "text,label\n", "a.tsv": "text\tlabel\n"}.get(name, "")
    path = write(tmp_path, name, header + line * count)
    label_column = None if name == "a.txt" else "label"
    tracemalloc.start()
    try:
        seen = sum(len(chunk) for chunk in read_chunks(path, label_column=label_column))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == count
    # A chunk of 1024 rows takes about 0.3 MB; the 200,000 rows as Python strings would take 30 MB.
    assert peak < 2_000_000


def test_whole_files_become_string_tensors_with_labels_and_lines(tmp_path):
    path = write(tmp_path, "a.csv", 'text,second,label\n"a\nb",é,x\nc,d,y\n')
    table = read_rows(path, text_pair_column="second", label_column="label")
    assert table.text.numpy().tolist() == [b"a\nb", b"c"]
    assert table.text_pair.numpy().tolist() == ["é".encode(), b"d"]
    assert table.labels == ["x", "y"] and list(table.lines) == [2, 4]


def test_whole_files_of_several_chunks_keep_their_order(tmp_path):
    texts = [f"text {i}" for i in range(40_000)]
    table = read_rows(write(tmp_path, "a.txt", "\n".join(texts)))
    assert [text.decode() for text in table.text.numpy()] == texts
    assert table.labels is None and table.text_pair is None and table.lines[-1] == 40_000


# Rows that cannot be used


BAD_CSV = (
    b"text,label\n"
    b"good,1\n"
    b"one,two,three\n"  # 3: fields
    b'"never closed,0\n'  # 4: quote
    b"na\xefve,1\n"  # 5: encoding
    b",0\n"  # 6: empty text
    b'"two\nlines",0\n'
    b"fine,1\n"
)


def test_bad_rows_are_left_out_and_counted_with_their_lines(tmp_path):
    path = write(tmp_path, "a.csv", BAD_CSV)
    bad = BadRows()
    table = read_rows(path, label_column="label", bad_rows=bad)
    assert [text.decode() for text in table.text.numpy()] == ["good", "two\nlines", "fine"]
    assert table.labels == ["1", "0", "1"] and list(table.lines) == [2, 7, 9]
    assert bad.count == 4
    assert [re.search(r"line (\d+)", example)[1] for example in bad.examples] == ["3", "4", "5", "6"]


def test_bad_rows_are_the_first_error_without_a_counter(tmp_path):
    with pytest.raises(InputError, match="line 3: has 3 fields where the header has 2"):
        read_rows(write(tmp_path, "a.csv", BAD_CSV), label_column="label")


def test_json_lines_and_blank_lines_are_counted_too(tmp_path):
    path = write(tmp_path, "a.jsonl", b'{"text": "a"}\n\n{"text": 3}\n{"txt": "b"}\n{"text"\n[1]\n{"text": "c"}\n')
    bad = BadRows()
    assert [text.decode() for text in read_rows(path, bad_rows=bad).text.numpy()] == ["a", "c"]
    assert bad.count == 5


def test_a_file_of_bad_rows_alone_is_an_error_that_shows_the_first(tmp_path):
    with pytest.raises(InputError, match="no usable row; the first problem: .*line 1: is not JSON"):
        read_rows(write(tmp_path, "a.jsonl", b"{\n{\n"), bad_rows=BadRows())


@pytest.mark.parametrize(
    "kind, cells, count",
    [("classification", "a b  c a", 2), ("regression", "1 2.5 x inf 3", 2), ("multi-label", "a|b a|| b a|z", 2)],
)
def test_rows_with_unusable_or_unknown_labels_are_counted(tmp_path, kind, cells, count):
    lines = "".join(f"row,{cell}\n" for cell in cells.split(" "))
    bad, labels = BadRows(), ("a", "b") if kind != "regression" else ()
    rows = rows_from_file(write(tmp_path, "a.csv", "text,label\n" + lines), kind=kind, labels=labels, bad_rows=bad)
    assert bad.count == count and len(rows) == len(rows.labels) == len(cells.split(" ")) - count
