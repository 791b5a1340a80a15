"""Pickles of strangers: nothing runs, nothing is changed, and no file takes more memory or time than its size
allows."""

import io
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.errors import InputError

FILES = pathlib.Path(__file__).parent / "adapterhub"
PROTO = b"\x80\x02"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def storage(kind="FloatStorage", key="0", numbers=4):
    return (
        b"("
        + text("storage")
        + f"ctorch\n{kind}\n".encode()
        + text(key)
        + text("cpu")
        + b"K"
        + bytes([numbers])
        + b"tQ"
    )


def integer(value):
    return b"J" + struct.pack("<i", value)


def tensor(size=(4,), stride=(1,), offset=0, **of_storage):
    numbers = [b"(" + b"".join(map(integer, values)) + b"t" for values in (size, stride)]
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage(**of_storage)
        + integer(offset)
        + b"".join(numbers)
        + b"\x89}tR"
    )


def dictionary(**values):
    return PROTO + b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u."


def archive(path, pickled, numbers=np.arange(4, dtype="<f4").tobytes(), compression=zipfile.ZIP_STORED, **more):
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/data/0", numbers)
        for name, content in more.items():
            file.writestr(f"archive/{name}", content)
    return path


def test_the_pickles_of_these_tests_are_what_pytorch_writes(tmp_path):
    found = read_torch_file(
        archive(tmp_path / "a.bin", dictionary(a=tensor((2, 2), (1, 2)), b=tensor((2,), (1,), offset=2)))
    )
    np.testing.assert_array_equal(found["a"], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(found["b"], [2, 3])


def test_a_file_that_changes_what_names_stand_for_changes_nothing(tmp_path):
    source = FILES / "bert" / "norm_before" / "pytorch_adapter.bin"
    before = read_torch_file(source)
    poison = b"\x80\x02}ctorch\nFloatStorage\n}X\x04\0\0\0kindX\x0a\0\0\0IntStoragesb0."
    with pytest.raises(InputError, match="BUILD is none that a dictionary of tensors needs; nothing of it was run"):
        read_torch_file(archive(tmp_path / "poison.bin", poison))
    after = read_torch_file(source)
    assert all(
        np.array_equal(after[name], value) and after[name].dtype == value.dtype for name, value in before.items()
    )


class Anything:
    pass


@pytest.mark.parametrize(
    ("pickled", "says"),
    [
        (PROTO + b"cos\nsystem\n" + text("true") + b"\x85R.", "it asks for os.system, which no tensor needs"),
        (pickle.dumps({"a": Anything()}, 2), "which no tensor needs|no tensor|is none that"),
        (pickle.dumps({"a": Anything()}, 4), "is none that a dictionary of tensors needs"),
        (PROTO + b"ctorch\nFloatStorage\n)R.", "it makes something that is no tensor"),
        (PROTO + b"ccollections\nOrderedDict\n}\x85R.", "it makes something that is no tensor"),
        (PROTO + b"}" + text("a") + b"K\x01s.", "no dictionary of tensors"),
        (PROTO + b"}K\x01" + tensor() + b"s.", "no dictionary of tensors by name"),
        (PROTO + b"](" + text("a") + tensor() + b"u.", "no dictionary of tensors by name"),
        (PROTO + b"}" + text("a") + b"a.", "appends to what is no list"),
        (dictionary(a=tensor(kind="IntStorage"), b=tensor()), "both IntStorage and FloatStorage"),
        (dictionary(a=tensor((5,))), "it is truncated"),
        (dictionary(a=tensor((2,), (1,), offset=-1)), "it is damaged"),
        (dictionary(a=tensor((1,) * 65, (1,) * 65)), "it is damaged"),
        (dictionary(a=tensor((2**31 - 1, 2**31 - 1), (0, 0))), "more numbers than its .* bytes hold"),
        (dictionary(**{f"t{number}": tensor() for number in range(500)}).replace(b"K\x04", b"K\x05"), None),
        *(
            (content, "no complete checkpoint")
            for content in (PROTO + b"0.", PROTO + b"q\0.", PROTO + b"u.", PROTO + b"t.", b".", b"")
        ),
    ],
)
def test_what_makes_no_dictionary_of_tensors_is_refused(pickled, says, tmp_path):
    path = archive(tmp_path / "a.bin", pickled)
    if says is None:
        assert len(read_torch_file(path)) == 500
        return
    with pytest.raises(InputError, match=says):
        read_torch_file(path)


def test_views_of_one_storage_do_not_fill_the_memory(tmp_path):
    shared = dictionary(**{f"t{number}": tensor((250,)) for number in range(4000)})
    path = archive(tmp_path / "a.bin", shared, bytes(1000))
    with pytest.raises(InputError, match="more numbers than its .* bytes hold"):
        read_torch_file(path)


def test_numbers_of_another_byte_order_are_refused(tmp_path):
    with pytest.raises(InputError, match="not little-endian"):
        read_torch_file(archive(tmp_path / "a.bin", dictionary(a=tensor()), byteorder="big"))
    assert list(read_torch_file(archive(tmp_path / "a.bin", dictionary(a=tensor()), byteorder="little"))) == ["a"]


def test_a_compressed_archive_is_refused(tmp_path):
    with pytest.raises(InputError, match="compressed, which PyTorch never does"):
        read_torch_file(archive(tmp_path / "a.bin", dictionary(a=tensor()), bytes(2**20), zipfile.ZIP_DEFLATED))


def test_parts_that_claim_more_than_the_file_has_are_refused(tmp_path):
    content = bytearray(archive(tmp_path / "a.bin", dictionary(a=tensor())).read_bytes())
    place = content.rindex(b"PK\x01\x02")  # the last part's entry, its two sizes at 20 and 24
    content[place + 20 : place + 28] = struct.pack("<II", 2**31, 2**31)
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InputError, match="larger than the file itself|no complete checkpoint"):
        read_torch_file(tmp_path / "a.bin")


def zipped(content):
    file = io.BytesIO()
    archive(file, content)
    return file.getvalue()


HUNGRY = {
    "LONG_BINPUT": PROTO + b"}r" + struct.pack("<I", 2**28) + b".",
    "BYTEARRAY8": PROTO + b"\x96" + struct.pack("<Q", 2**40) + b".",
    "FRAME": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b".",
    "BINUNICODE": PROTO + b"X" + struct.pack("<I", 2**32 - 1) + b".",
    "LONG4": PROTO + b"\x8b" + struct.pack("<i", 2**31 - 1) + b".",
    "digits": PROTO + b"L" + b"9" * 10_000 + b"L\n.",
    "tuples": PROTO + b")" + b"\x85" * 250_000 + b".",
    "marks": PROTO + b"(" * 140_000 + b"t" * 140_000 + b".",
    "too many steps": PROTO + b"}" * 1_000_000 + b".",
    "key of tuples": PROTO + b"})" + b"\x85" * 250_000 + b"Ns.",
    "names of tuples": PROTO
    + b"("
    + text("storage")
    + b"ctorch\nFloatStorage\n)"
    + b"\x85" * 250_000
    + text("cpu")
    + b"K\x04tQ.",
}


@pytest.mark.parametrize("legacy", [False, True])
def test_hungry_pickles_are_refused_within_the_memory_of_a_small_process(legacy, tmp_path):
    paths = []
    for name, content in HUNGRY.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content if legacy else zipped(content))
    program = (
        "import resource, sys\n"
        "from tf_adapters.errors import InputError\n"
        "from tf_adapters.adapterhub.torch_files import read_torch_file\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        assert not read_torch_file(path)\n"
        "    except InputError as error:\n"
        "        assert len(str(error)) < 1000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "True\n", done.stdout + done.stderr
