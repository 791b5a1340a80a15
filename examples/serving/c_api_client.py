"""Ask an exported model through TensorFlow's C API alone, as a server in another language would.

    python examples/serving/c_api_client.py serving/film/1 text="a quiet film"
    python examples/serving/c_api_client.py serving/all/1 text="a quiet film" task=film text="win a prize" task=spam

No Python of TensorFlow is imported: the shared libraries of the installed packages are loaded by ctypes, and of the
SavedModel's description only the signature is read. Inputs are those of `--signature`, strings, each given once for
each row.
"""

import argparse
import ctypes
import importlib.util
import json
import pathlib
import struct
import sys

STRING, FLOAT, INT32, INT64 = 7, 1, 3, 9  # TF_DataType
_NUMBERS = {FLOAT: ("f", 4), INT32: ("i", 4), INT64: ("q", 8)}
_STRING_BYTES = 24  # TF_TString


def fields(message):
    """The fields of a protocol buffer: pairs of number and value (int or bytes)."""
    place = 0

    def varint():
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(key & 7)
        length = varint() if length is None else length
        yield key >> 3, message[place : place + length]
        place += length


def read_signatures(meta_graph):
    """Dict from signature to its inputs and outputs, each a dict from name to the name of its tensor."""

    def map_of(message, number):
        return {
            dict(fields(entry))[1].decode(): dict(fields(entry))[2] for key, entry in fields(message) if key == number
        }

    def tensors(message, number):
        infos = {name: dict(fields(info)) for name, info in map_of(message, number).items()}
        return {name: info[1].decode() for name, info in infos.items() if 1 in info}

    return {name: (tensors(message, 1), tensors(message, 2)) for name, message in map_of(meta_graph, 5).items()}


class Output(ctypes.Structure):
    """TF_Output."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p)]


class Client:
    """A SavedModel in a session of the C API."""

    def __init__(self, directory):
        self.library = library = ctypes.CDLL(str(_find("tensorflow", "libtensorflow_cc.so.2")))
        for name in (
            "TF_NewStatus",
            "TF_NewGraph",
            "TF_NewSessionOptions",
            "TF_NewBufferFromString",
            "TF_NewBuffer",
            "TF_LoadLibrary",
            "TF_LoadSessionFromSavedModel",
            "TF_GraphOperationByName",
            "TF_AllocateTensor",
            "TF_TensorData",
            "TF_Message",
            "TF_StringGetDataPointer",
        ):
            getattr(library, name).restype = ctypes.c_void_p
        library.TF_StringGetSize.restype = ctypes.c_size_t
        library.TF_Dim.restype = ctypes.c_int64
        self.status = ctypes.c_void_p(library.TF_NewStatus())
        # The tokenizer's operations; TensorFlow Serving has them built in.
        for name in ("wordpiece", "sentencepiece"):
            operations = _find("tensorflow_text", f"python/ops/_{name}_tokenizer.so")
            self._check(library.TF_LoadLibrary(str(operations).encode(), self.status))
        self.graph = ctypes.c_void_p(library.TF_NewGraph())
        meta = Buffer()
        tags = (ctypes.c_char_p * 1)(b"serve")
        options = ctypes.c_void_p(library.TF_NewSessionOptions())
        session = library.TF_LoadSessionFromSavedModel(
            options, None, str(directory).encode(), tags, 1, self.graph, ctypes.byref(meta), self.status
        )
        self.session = ctypes.c_void_p(self._check(session))
        self.signatures = read_signatures(ctypes.string_at(meta.data, meta.length))

    def ask(self, signature, inputs):
        """Run a signature.

        Args:
            signature: str.
            inputs: dict from name to list of str.

        Returns: dict from output to nested lists.
        """
        wanted, outputs = self.signatures[signature]
        feeds = (Output * len(inputs))(*(self._output(wanted[name]) for name in inputs))
        tensors = (ctypes.c_void_p * len(inputs))(*(self._strings(texts) for texts in inputs.values()))
        fetches = (Output * len(outputs))(*(self._output(tensor) for tensor in outputs.values()))
        found = (ctypes.c_void_p * len(outputs))()
        self.library.TF_SessionRun(
            self.session, None, feeds, tensors, len(inputs), fetches, found, len(outputs), None, 0, None, self.status
        )
        self._check(True)
        answers = {name: self._values(ctypes.c_void_p(tensor)) for name, tensor in zip(outputs, found)}
        for tensor in (*tensors, *found):
            self.library.TF_DeleteTensor(ctypes.c_void_p(tensor))
        return answers

    def _output(self, tensor):
        name, _, index = tensor.partition(":")
        operation = self.library.TF_GraphOperationByName(self.graph, name.encode())
        return Output(operation, int(index))

    def _strings(self, texts):
        size = (ctypes.c_int64 * 1)(len(texts))
        tensor = self.library.TF_AllocateTensor(STRING, size, 1, ctypes.c_size_t(_STRING_BYTES * len(texts)))
        data = self.library.TF_TensorData(ctypes.c_void_p(tensor))
        for row, text in enumerate(texts):
            place, text = ctypes.c_void_p(data + row * _STRING_BYTES), text.encode()
            self.library.TF_StringInit(place)
            self.library.TF_StringCopy(place, text, ctypes.c_size_t(len(text)))
        return tensor

    def _values(self, tensor):
        shape = [self.library.TF_Dim(tensor, axis) for axis in range(self.library.TF_NumDims(tensor))]
        count, kind, data = 1, self.library.TF_TensorType(tensor), self.library.TF_TensorData(tensor)
        for size in shape:
            count *= size
        if kind == STRING:
            places = [ctypes.c_void_p(data + row * _STRING_BYTES) for row in range(count)]
            values = [
                ctypes.string_at(
                    self.library.TF_StringGetDataPointer(place), self.library.TF_StringGetSize(place)
                ).decode()
                for place in places
            ]
        else:
            letter, width = _NUMBERS[kind]
            values = list(struct.unpack(f"{count}{letter}", ctypes.string_at(data, count * width)))
        for size in reversed(shape[1:]):
            values = (
                [values[start : start + size] for start in range(0, len(values), size)] if size else [[]] * shape[0]
            )
        return values

    def _check(self, value):
        if self.library.TF_GetCode(self.status):
            raise RuntimeError(ctypes.string_at(self.library.TF_Message(self.status)).decode())
        return value


def _find(package, file):
    """A file of an installed package, which is not imported."""
    return pathlib.Path(importlib.util.find_spec(package).origin).parent / file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="version directory, as `tf-adapters export` writes it")
    parser.add_argument("inputs", nargs="+", metavar="NAME=STRING", help="an input of a row; rows in their order")
    parser.add_argument("--signature", default="serving_default")
    options = parser.parse_args()
    inputs = {}
    for given in options.inputs:
        name, equals, text = given.partition("=")
        if not equals:
            parser.error(f"{given!r} must be NAME=STRING, such as text=...")
        inputs.setdefault(name, []).append(text)
    if len({len(texts) for texts in inputs.values()}) != 1:
        parser.error(
            f"each input must be given once for each row: { ({name: len(texts) for name, texts in inputs.items()}) }"
        )
    try:
        client = Client(options.directory)
    except RuntimeError as error:
        sys.exit(str(error))
    if options.signature not in client.signatures:
        parser.error(f"--signature {options.signature}: the model has {', '.join(sorted(client.signatures))}")
    unknown = sorted(set(inputs) - set(client.signatures[options.signature][0]))
    if unknown:
        parser.error(
            f"{unknown[0]}: the inputs of {options.signature} are {', '.join(client.signatures[options.signature][0])}"
        )
    try:
        print(json.dumps(client.ask(options.signature, inputs), ensure_ascii=False))
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
