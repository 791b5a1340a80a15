"""What a fuzzer does to files: bytes at random, and changes that know how JSON, safetensors, pickles, archives and
tables are built."""

import copy
import io
import json
import pickletools
import struct
import zipfile

INTERESTING = [
    0,
    1,
    2,
    3,
    7,
    8,
    64,
    65,
    127,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
]
VALUES = [
    None,
    True,
    False,
    *INTERESTING,
    -1,
    -(2**31),
    0.0,
    -0.0,
    0.5,
    1.5,
    1e39,
    -1e39,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "x",
    "..",
    "../trace",
    "/etc/passwd",
    "a/b",
    "a\0b",
    "\ud800",
    "\u202e",
    "." * 5000,
    "a" * 100_000,
    "{}",
    "NaN",
    "1",
    "true",
    [],
    {},
    [[]],
    [None],
    [1],
    ["x"],
    [[1]],
    [1] * 1000,
    {"": 1},
    {"a": []},
    {"__class__": "x"},
    [1e39, -1e39],
    list(range(70)),
    [2**62, 2**62],
    [2**63, 0],
]
KEYS = [
    "",
    "name",
    "method",
    "adapter",
    "config",
    "auto_map",
    "trust_remote_code",
    "_attn_implementation_internal",
    "__class__",
    "to_dict",
    "model_type",
    "peft_type",
    "target_modules",
    "leave_out",
    "dropout",
    "attn_matrices",
    "labels",
    "head",
    "sha256",
    "weight_map",
    "id2label",
    "architecture",
]
PATTERNS = [
    r"(a+)+$",
    r"(\w+\.?)+!",
    "(",
    "(.*.*.*)*x",
    "a{1000}{1000}",
    "(?!x)",
    "[",
    "\\",
    "(?P<a>.)(?P=a)",
    "x" * 5000,
    ".*",
]
# Opcodes with arguments that were made to hurt.
OPCODES = [
    b"b",
    b"}b",
    b"N}b",
    b"0",
    b"1",
    b"2",
    b"(",
    b"t",
    b"u",
    b"s",
    b"a",
    b"e",
    b"R",
    b"Q",
    b".",
    b"\x81",
    b"\x92",
    b"c__builtin__\neval\n",
    b"cos\nsystem\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch\nIntStorage\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ccollections\nOrderedDict\n",
    b"r\0\0\0\x10",
    b"q\0",
    b"h\0",
    b"h\xff",
    b"X\xff\xff\xff\xff",
    b"X\0\0\0\x70",
    b"\x96" + struct.pack("<Q", 2**40),
    b"\x95" + struct.pack("<Q", 2**40),
    b"\x8b\xff\xff\xff\x7f",
    b"\x8a\xff" + b"\xff" * 255,
    b"J\xff\xff\xff\x7f",
    b"J\xff\xff\xff\xff",
    b"K\0",
    b")",
    b"]",
    b"}",
    b"\x85" * 1000,
    b"(" * 1000,
    b"L" + b"9" * 5000 + b"L\n",
    b"I01\n",
    b"Vabc\n",
    b"P1\n",
    b"\x80\xff",
    b"\x80\x05",
    b"i__builtin__\neval\n",
    b"o",
    b"\x93",
    b"\x94",
    b"\x8e" + struct.pack("<Q", 2**62),
    b"B\xff\xff\xff\x7f",
    b"\x82\x01",
    b"F1e400\n",
    b"G" + b"\x7f\xf0" + bytes(6),
]


def change_bytes(random, content, others=()):
    """Some bytes flipped, cut, copied, put in, or taken from another file."""
    content = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        place = random.randrange(len(content) + 1)
        # Headers and ends are where lengths and offsets stand.
        place = random.choice([place, min(place, 64), max(0, len(content) - random.randrange(1, 128))])
        length = random.choice([1, 2, 4, 8, 64, 1024])
        kind = random.randrange(8)
        if kind == 0 and content:
            content[min(place, len(content) - 1)] ^= 1 << random.randrange(8)
        elif kind == 1:
            content[place : place + length] = random.randbytes(length)
        elif kind == 2:
            del content[place:]
        elif kind == 3:
            del content[place : place + length]
        elif kind == 4:
            content[place:place] = content[place : place + length] * random.choice([1, 2, 100])
        elif kind == 5:
            size = random.choice([1, 2, 4, 8])
            content[place : place + size] = (random.choice(INTERESTING) % 2 ** (8 * size)).to_bytes(
                size, random.choice(["little", "big"])
            )
        elif kind == 6 and others:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            content[place : place + length] = other[start : start + random.choice([length, len(other)])]
        else:
            content[place:place] = random.choice(
                [b"\0", b"\xff", b"\xef\xbb\xbf", b"\n", b'"', b"\x80\x02", b"PK\3\4", random.randbytes(length)]
            )
    return bytes(content)


def change_json(random, content):
    """Values, keys and levels of JSON changed; bytes at random if it is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return change_bytes(random, content)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        value = _change_value(random, value)
    text = json.dumps(value)
    if random.randrange(12) == 0:
        levels, (start, end) = random.choice([60, 2000, 100_000]), random.choice([("[", "]"), ('{"a":', "}")])
        text = text.replace(random.choice(["null", "true", "1", '"', "{"]), start * levels + "1" + end * levels, 1)
    return text.encode("utf-8", "surrogatepass")


def _change_value(random, value):
    # A path from the top down, at each level to a random part.
    path, inner = [], value
    while isinstance(inner, (dict, list)) and inner and random.randrange(5):
        key = random.choice(list(inner)) if isinstance(inner, dict) else random.randrange(len(inner))
        path.append((inner, key))
        inner = inner[key]
    if not path and isinstance(value, dict) and value and random.randrange(20):
        path = [(value, random.choice(list(value)))]
        inner = value[path[0][1]]
    if not path:
        return _hostile(random, value)
    holder, key = path[-1]
    kind = random.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[random.choice(KEYS)] = _hostile(random, inner)
    elif kind == 2 and isinstance(holder, dict):
        holder[str(key) + random.choice([".", "x", "\0", "0"])] = holder.pop(key)
    elif kind == 3 and len(path) > 1:
        other, place = random.choice(path)
        holder[key] = json.loads(json.dumps(other[place]))
    else:
        holder[key] = _hostile(random, inner)
    return value


def _hostile(random, value):
    if random.randrange(3) == 0:
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            return random.choice(
                [value + 1, value - 1, -value, str(value), [value], value * 2**31 if abs(value) < 1e300 else 0]
            )
        if isinstance(value, str):
            return random.choice(
                [value + "x", value[:-1], value * 100, [value], random.choice(PATTERNS), value.swapcase()]
            )
        if isinstance(value, list):
            return random.choice([value * 2, value[:-1], value + [value], {"0": value}, value[::-1]])
    # A copy: a later change must not reach the next case.
    return copy.deepcopy(random.choice([*VALUES, *PATTERNS]))


def change_safetensors(random, content):
    """Dtypes, shapes, offsets, names or the header's length changed, or numbers that are none put in."""
    if len(content) < 8:
        return change_bytes(random, content)
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        name = random.choice([key for key in header if key != "__metadata__"])
    except (ValueError, IndexError, TypeError):
        return change_bytes(random, content)
    data, entry, kind = bytearray(content[8 + length :]), header[name], random.randrange(10)
    if kind == 0:
        entry["dtype"] = random.choice(
            [
                "F64",
                "F16",
                "BF16",
                "I64",
                "I8",
                "U8",
                "BOOL",
                "F8_E4M3",
                "F8_E5M2",
                "U64",
                "C64",
                "F4",
                "x",
                "",
                None,
                3,
            ]
        )
    elif kind == 1:
        entry["shape"] = random.choice(
            [
                [],
                [0],
                [1] * 65,
                [2**63],
                [2**32, 2**32],
                [0, 2**62],
                entry["shape"] + [1],
                entry["shape"][::-1],
                [1] * 5000,
            ]
        )
    elif kind == 2:
        entry["shape"] = [random.choice([size, size + 1, 0, *INTERESTING]) for size in entry["shape"]]
    elif kind == 3:
        entry["data_offsets"] = [
            random.choice([*INTERESTING, *entry["data_offsets"]]) for _ in range(random.choice([1, 2, 2, 2, 3]))
        ]
    elif kind == 4:
        header[random.choice([name + "x", "", "__metadata__", "a" * 10_000, "../trace", name.swapcase(), *header])] = (
            header.pop(name)
        )
    elif kind == 5:
        del header[name]
    elif kind == 6 and len(data) >= 4:
        place = 4 * random.randrange(len(data) // 4)
        data[place : place + 4] = random.choice(
            [b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f", b"\1\0\0\0"]
        )
    elif kind == 7:
        text = json.dumps(header).encode()
        return (
            (random.choice([*INTERESTING[:-1], len(text) + 1, len(text) - 1]) % 2**64).to_bytes(8, "little")
            + text
            + bytes(data)
        )
    elif kind == 8:
        text = change_json(random, json.dumps(header).encode())
        return len(text).to_bytes(8, "little") + text + bytes(data)
    else:
        header["__metadata__"] = random.choice([{"format": "x"}, {"a": 1}, [], {"a" * 100_000: "b"}, 3])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def change_pickle(random, content):
    """Opcodes of a pickle put in, left out, repeated or exchanged."""
    try:
        places = [place for _, _, place in pickletools.genops(content)]
    except Exception:
        return change_bytes(random, content)
    parts = [content[start:end] for start, end in zip(places, [*places[1:], len(content)])]
    for _ in range(random.choice([1, 1, 2, 5])):
        place, kind = random.randrange(len(parts)), random.randrange(5)
        if kind < 2:
            parts.insert(place, random.choice(OPCODES))
        elif kind == 2:
            parts[place] = random.choice(OPCODES)
        elif kind == 3 and len(parts) > 1:
            del parts[place]
        else:
            parts[place:place] = parts[place : place + random.choice([1, 5, 50])] * random.choice([1, 2, 100])
    return b"".join(parts)


def change_torch(random, content):
    """A checkpoint of PyTorch's changed: its pickle, its archive, or bytes of it."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        # Pickles one after the other, the state the fourth.
        return change_pickle(random, content) if random.randrange(2) else change_bytes(random, content)
    kind = random.randrange(6)
    if kind == 0:
        return change_bytes(random, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name, compression = random.choice(list(parts)), zipfile.ZIP_STORED
    pickled = next((part for part in parts if part.endswith("data.pkl")), name)
    if kind in (1, 2):
        parts[pickled] = change_pickle(random, parts[pickled])
    elif kind == 3:
        parts[name] = change_bytes(random, parts[name])
    elif kind == 4:
        parts[
            random.choice(["../trace", "/trace", name + "x", "byteorder", pickled.replace("data.pkl", "byteorder")])
        ] = parts.pop(name)
    else:
        parts[name] = random.choice([bytes(2**24), parts[name]])
        compression = random.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for part, value in parts.items():
            archive.writestr(part, value)
    return change_bytes(random, written.getvalue()) if random.randrange(6) == 0 else written.getvalue()


def change_lines(random, content):
    """Lines and cells of a text file changed, or its bytes."""
    if random.randrange(3) == 0:
        return change_bytes(random, content)
    lines = content.split(b"\n")
    for _ in range(random.choice([1, 1, 2, 5])):
        place, kind = random.randrange(len(lines)), random.randrange(7)
        if kind == 0:
            lines.insert(
                place,
                random.choice(
                    [
                        b"",
                        b"\0",
                        b'"',
                        b"\t",
                        b",,,",
                        b"#",
                        b"1\t",
                        b"1-2\ta",
                        b"{}",
                        b"[" * 5000,
                        b"\xff",
                        b"a" * 100_000,
                        b"\r",
                    ]
                ),
            )
        elif kind == 1 and len(lines) > 1:
            del lines[place]
        elif kind == 2:
            lines[place] = lines[place] * random.choice([2, 1000])
        elif kind == 3:
            random.shuffle(lines)
        elif kind == 4:
            lines[place] = change_bytes(random, lines[place])
        elif kind == 5:
            lines[place] = random.choice([b"\t", b",", b" ", b'"', b""]).join(lines[place].split())
        elif lines[place].lstrip().startswith((b"{", b"[")):
            lines[place] = change_json(random, lines[place])
    return b"\n".join(lines)


def _varint(value):
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def change_sentencepiece(random, content):
    """Pieces of a SentencePiece model put in, left out or exchanged, with scores that are no numbers, or a table of
    characters of its own."""
    fields, place = [], 0
    while place < len(content):
        length, size = content[place + 1], 2
        if length > 127:
            length, size = (length & 127) | content[place + 2] << 7, 3
        fields.append(content[place : place + size + length])
        place += size + length
    for _ in range(random.choice([1, 1, 2, 5])):
        place, kind = random.randrange(len(fields)), random.randrange(8)
        if kind < 3:
            text = random.choice(
                [
                    b"",
                    b"a",
                    b"\xe2\x96\x81",
                    b"\xe2\x96\x81" * 3,
                    b"\xff",
                    b"\0",
                    b"x" * 100,
                    b"<unk>",
                    b"<0x41>",
                    "\u00e9".encode(),
                ]
            )
            score = struct.pack(
                "<f", random.choice([0.0, -1.0, 1e30, -3e38, float("nan"), float("inf"), -float("inf")])
            )
            number = random.choice(
                [[], [b"\x18" + _varint(random.choice([0, 1, 2, 3, 4, 5, 6, 7, 127, 2**31, 2**64 - 1]))]]
            )
            piece = b"\x0a" + _varint(len(text)) + text + b"\x15" + score + b"".join(number)
            fields[place : place + random.randrange(2)] = [b"\x0a" + _varint(len(piece)) + piece]
        elif kind == 3 and len(fields) > 1:
            del fields[place]
        elif kind == 4:
            fields[place:place] = [fields[place]] * random.choice([1, 1, 1000])
        elif kind == 5:
            table = random.randbytes(random.choice([0, 1, 4, 64, 1024]))
            table = random.choice([table, struct.pack("<I", random.choice([0, 4, 8, 2**31, 2**32 - 1])) + table])
            spec = b"\x12" + _varint(len(table)) + table + random.choice([b"", b"\x18\x00", b"\x20\x00", b"\x28\x00"])
            fields.append(b"\x1a" + _varint(len(spec)) + spec)
        elif kind == 6:
            spec = random.choice(
                [
                    b"\x18" + _varint(random.choice([0, 1, 2, 3, 4, 9])),
                    b"\xc0\x02" + _varint(random.choice(INTERESTING[:-1])),
                    random.randbytes(4),
                ]
            )
            fields.append(b"\x12" + _varint(len(spec)) + spec)
        else:
            fields.append(
                random.choice([b"\x80" * 100_000 + b"\x01", b"\x22\x00", b"\x2a\x03abc", b"\x0b", b"\xfa\x01\x05hello"])
            )
    return b"".join(fields)


# How a name ends -> how such a file is changed, when its bytes are not.
BY_NAME = {
    ".json": change_json,
    ".jsonl": change_lines,
    ".safetensors": change_safetensors,
    ".bin": change_torch,
    ".csv": change_lines,
    ".tsv": change_lines,
    ".txt": change_lines,
    ".conllu": change_lines,
    ".model": change_sentencepiece,
}


def change_file(random, path, others=()):
    """Change a file in place; `others` are the contents of others, to take from."""
    content = path.read_bytes()
    change = BY_NAME.get(path.suffix)
    if change is not None and random.randrange(4):
        try:
            path.write_bytes(change(random, content))
            return
        except Exception:  # an earlier change left nothing that has a structure
            pass
    path.write_bytes(change_bytes(random, content, others))
