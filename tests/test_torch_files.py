"""Pickles of strangers: nothing runs, and nothing is changed."""

import copyreg
import pathlib
import pickle
import pickletools
import struct
import zipfile

import numpy as np
import pytest

from tests.conftest import is_refused
from tf_adapters.adapterhub import torch_files
from tf_adapters.adapterhub.torch_files import read_torch_file

FILES = pathlib.Path(__file__).parent / "adapterhub"
PROTO = b"\x80\x02"
DICT = b"ccollections\nOrderedDict\n"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"ctorch\nFloatStorage\n"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def storage(kind="FloatStorage", key="0", numbers=4):
    named = text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu")
    return b"(" + named + b"K" + bytes([numbers]) + b"tQ"


def integer(value):
    return b"J" + struct.pack("<i", value)


def tensor(size=(4,), stride=(1,), offset=0, **of_storage):
    numbers = b"".join(b"(" + b"".join(map(integer, values)) + b"t" for values in (size, stride))
    return TENSOR + b"(" + storage(**of_storage) + integer(offset) + numbers + b"\x89}tR"


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
    pickled = dictionary(a=tensor((2, 2), (1, 2)), b=tensor((2,), (1,), offset=2))
    found = read_torch_file(archive(tmp_path / "a.bin", pickled))
    np.testing.assert_array_equal(found["a"], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(found["b"], [2, 3])


RAN = []


def run(*arguments):
    RAN.append(arguments)


def short(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


HERE = f"{__name__}\nrun\n".encode()
NAMED = short(__name__) + short("run")
# A pickle for every opcode that calls or changes something, with what a stranger names and with what is known here.
CALLS = {
    "REDUCE": [b"c" + HERE + b")R", STORAGE + b")R", DICT + b"}\x85R", TENSOR + b")R"],
    "INST": [b"(i" + HERE, b"(itorch\nFloatStorage\n", b"(itorch._utils\n_rebuild_parameter\n"],
    "OBJ": [b"(c" + HERE + b"o", b"(" + STORAGE + b"o", b"(" + text("a") + b"o"],
    "NEWOBJ": [b"c" + HERE + b")\x81", DICT + b")\x81"],
    "NEWOBJ_EX": [b"c" + HERE + b")}\x92", DICT + b")}\x92"],
    "STACK_GLOBAL": [NAMED + b"\x93)R", NAMED + b"\x93"],
    "EXT1": [b"\x82\xf5)R"],
    "EXT2": [b"\x83\xf5\0)R"],
    "EXT4": [b"\x84\xf5\0\0\0)R"],
    "BUILD": [
        *(
            target + state + b"b"
            for target in (DICT, STORAGE, TENSOR, DICT + b")R", tensor(), storage())
            for state in (b"}" + text("kind") + b"Ns", b"N}" + text("module") + b"Ns\x86")
        ),
        b"c" + HERE + b"}b",
    ],
    "PERSID": [b"Pstorage\n"],
    "BINPERSID": [
        text("storage") + b"Q",
        b"(" + text("storage") + text("FloatStorage") + text("0") + text("cpu") + b"K\x04tQ",
        b"(" + text("storage") + DICT + text("0") + text("cpu") + b"K\x04tQ",
        b"(" + text("module") + STORAGE + text("0") + text("cpu") + b"K\x04tQ",
    ],
}


@pytest.fixture
def extension():
    """A function that this process has under a number, and that `pickle` has met."""
    copyreg.add_extension(__name__, "run", 245)
    assert pickle.loads(pickle.dumps(run, 2)) is run
    yield
    copyreg.remove_extension(__name__, "run", 245)


@pytest.mark.parametrize("all_opcodes", [False, True])
def test_an_opcode_that_calls_or_changes_something_leads_to_nothing(all_opcodes, extension, tmp_path, monkeypatch):
    if all_opcodes:
        # What the opcode can reach is safe without the list of opcodes, too; of EXT it alone is.
        added = {code.name for code in pickletools.opcodes if not code.name.startswith("EXT")}
        monkeypatch.setattr(torch_files, "_OPCODES", added)
    source = FILES / "bert" / "norm_before" / "pytorch_adapter.bin"
    before = read_torch_file(source)
    for opcode, contents in CALLS.items():
        for number, content in enumerate(contents):
            path = archive(tmp_path / f"{opcode}-{number}.bin", b"\x80\x04}" + text("a") + content + b"s.")
            legacy = path.with_suffix(".legacy")
            legacy.write_bytes(b"\x80\x04" + content + b".")
            for way in (path, legacy):
                is_refused("no complete checkpoint", read_torch_file, way)
    after = read_torch_file(source)
    assert RAN == [] and before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, strict=True)


class Anything:
    pass


NO_TENSOR = "it makes something that is no tensor"
DAMAGED = "its description is damaged"


def test_what_makes_no_dictionary_of_tensors_is_refused(tmp_path):
    for pickled, says in (
        (PROTO + b"cos\nsystem\n" + text("true") + b"\x85R.", "it asks for os.system, which no tensor needs"),
        (pickle.dumps({"a": Anything()}, 4), "is none that a dictionary of tensors needs"),
        (PROTO + STORAGE + b")R.", NO_TENSOR),
        (PROTO + TENSOR + b"N\x85R.", NO_TENSOR),
        (PROTO + TENSOR + b"(NK\0))\x89}tR.", NO_TENSOR),
        (PROTO + b"}" + text("a") + b"K\x01s.", "no dictionary of tensors"),
        (PROTO + b"}K\x01" + tensor() + b"s.", "no dictionary of tensors by name"),
        (PROTO + b"](" + text("a") + tensor() + b"u.", DAMAGED),
        (dictionary(a=TENSOR + b"(" + storage() + b"N))tR"), "it is damaged"),
        (dictionary(a=tensor((2,), (1,), offset=-1)), "it is damaged"),
        (dictionary(a=tensor((1,) * 65, (1,) * 65)), "it is damaged"),
        (dictionary(a=tensor(kind="IntStorage"), b=tensor()), "both IntStorage and FloatStorage"),
        (dictionary(a=tensor((5,))), "it is truncated"),
        (dictionary(a=tensor((2**31 - 1, 2**31 - 1), (0, 0))), "more numbers than its .* bytes hold"),
        *((content, "no complete checkpoint") for content in (PROTO + b"u.", b".", b"")),
    ):
        is_refused(says, read_torch_file, archive(tmp_path / "a.bin", pickled))


def test_views_of_one_storage_are_read_and_do_not_fill_the_memory(tmp_path):
    few, many = (
        archive(tmp_path / str(size), dictionary(**{f"t{n}": tensor((size,)) for n in range(count)}), bytes(numbers))
        for size, count, numbers in ((4, 500, 16), (250, 1000, 1000))
    )
    assert len(read_torch_file(few)) == 500
    is_refused("more numbers than its .* bytes hold", read_torch_file, many)


def test_archives_that_pytorch_would_not_write_are_refused(tmp_path):
    path, pickled = tmp_path / "a.bin", dictionary(a=tensor())
    assert list(read_torch_file(archive(path, pickled, byteorder="little"))) == ["a"]
    is_refused("not little-endian", read_torch_file, archive(path, pickled, byteorder="big"))
    compressed = archive(path, pickled, bytes(2**20), zipfile.ZIP_DEFLATED)
    is_refused("compressed, which PyTorch never does", read_torch_file, compressed)
    # Parts that claim more than the file has.
    content = bytearray(archive(path, pickled).read_bytes())
    place = content.rindex(b"PK\x01\x02")  # the last part's entry, its two sizes at 20 and 24
    content[place + 20 : place + 28] = struct.pack("<II", 2**31, 2**31)
    path.write_bytes(content)
    is_refused("larger than the file itself|no complete checkpoint", read_torch_file, path)


@pytest.mark.parametrize(
    "pickled",
    [
        PROTO + b"}r" + struct.pack("<I", 2**28) + b".",
        PROTO + b"\x96" + struct.pack("<Q", 2**40) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b".",
        PROTO + b"L" + b"9" * 10_000 + b"L\n.",
        PROTO + b"})" + b"\x85" * 250_000 + b"Ns.",
    ],
    ids=["LONG_BINPUT", "BYTEARRAY8", "FRAME", "digits", "a key of tuples"],
)
def test_lengths_that_a_file_only_announces_and_endless_ones_are_refused(pickled, tmp_path):
    (tmp_path / "legacy.bin").write_bytes(pickled)
    for path in (archive(tmp_path / "a.bin", pickled), tmp_path / "legacy.bin"):
        assert len(is_refused("no complete checkpoint", read_torch_file, path)) < 1000
