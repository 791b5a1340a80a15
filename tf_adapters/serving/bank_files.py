"""The files of a bank's versions: the encoder in one, tasks in others, of which a new version links what is unchanged.

A version's checkpoint has the encoder in its first file and what depends on the mixture of tasks in its second. What
each task has of its own lies in the files behind. A version takes the tasks that an older one in the same folder has
from there, by links to its files, and writes the others into a new file.
"""

import dataclasses
import filecmp
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile

import numpy as np
import tensorflow as tf

from tf_adapters.json_input import read_json
from tf_adapters.layers.bank import standing_in
from tf_adapters.serving.checkpoint_index import of_rows, read_index, rows_key, write_index

ROWS_FILE = "rows.json"  # in assets.extra
_FORMAT = 1
_PREFIX = "variables/variables"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_OF_ENCODER = ("norms", "poolers")
_FILE_BYTES = 2**28  # of a new file's tensors, which are in memory together
# A loader opens all files, and a process may often have no more than 1,024 open.
_SMALL_FILES = 32


@dataclasses.dataclass
class _Task:
    """What a task has of its own."""

    name: str
    digest: str
    rows: dict  # table name -> places in the bank
    starts: dict  # table name -> first row in the version


@dataclasses.dataclass
class _Older:
    """A version that is there."""

    folder: pathlib.Path
    places: dict  # digest -> table name -> entries, one of each store
    files: dict  # number -> path


class BankLayout:
    """Which row of a version's variables holds what of a bank. The bank must not change meanwhile.

    Args:
        bank: `AdapterBank`.

    Attributes:
        slots: dict from a task's name to its row among the slots.
        variables: dict from a name to the variable that stands for a store of the bank in the version's graphs.
    """

    def __init__(self, bank):
        self._tables = {}
        for name, table in bank.named_tables().items():
            self._tables[re.sub(r"\W", "_", name)] = table
        names = {id(table): name for name, table in self._tables.items()}
        ends, self._tasks = dict.fromkeys(self._tables, 1), []
        for name, task in bank.tasks.items():
            rows = {names[id(table)]: places for table, places in task.rows.items() if id(table) in names}
            starts = {table: ends[table] for table in rows}
            for table, places in rows.items():
                ends[table] += len(places)
            self._tasks.append(_Task(name, self._digest(rows), rows, starts))
        self._ends = ends
        moved = {}
        for task in self._tasks:
            moved[task.name] = {
                (id(self._tables[table]), place): task.starts[table] + number
                for table, places in task.rows.items()
                for number, place in enumerate(places)
            }
        self.slots = {task.name: number for number, task in enumerate(self._tasks, start=1)}
        self.variables, self._stands = {}, {}
        for name, table in self._tables.items():
            for number, store in enumerate(table.stores):
                # Of the rows in the files, the graphs need none.
                self._stand_in(f"{name}_{number}", store, tf.gather(store.variable, [0]))
        for number, (store, rows) in enumerate(bank.slots_as(moved)):
            self._stand_in(f"tasks_{number}", store, rows)

    def _stand_in(self, name, store, rows):
        shape = [None, *store.row_shape]
        variable = tf.Variable(rows, shape=shape, dtype=store.variable.dtype, trainable=False, name=name)
        self.variables[name], self._stands[id(store)] = variable, variable

    def in_graphs(self):
        """A context in which this thread's graphs read the version's variables in place of the bank's."""
        return standing_in(self._stands)

    def _digest(self, rows):
        digest = hashlib.sha256()
        for table, places in sorted(rows.items()):
            digest.update(f"{table} {len(places)}\n".encode())
            for array in self._arrays(table, places):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:24]

    def _arrays(self, table, places):
        return [tf.gather(store.variable, places).numpy() for store in self._tables[table].stores]

    def write(self, version, encoder, versions):
        """Write the tasks of a version, and divide its variables into files.

        Args:
            version: path of a SavedModel that nothing reads yet, whose checkpoint is one file.
            encoder: set of the keys of the encoder's variables in the checkpoint.
            versions: folder of the versions that are there.
        """
        prefix, versions = version / _PREFIX, pathlib.Path(versions)
        older = _older_versions(versions)
        with tempfile.TemporaryDirectory(dir=prefix.parent) as folder:
            files = _Files(pathlib.Path(folder))
            index = read_index(f"{prefix}.index")
            # The first rows of these tables are the encoder's own weights.
            fixed = {self._key(table, n) for table in _OF_ENCODER for n in range(len(self._tables[table].stores))}
            first = {key for key in index if key.decode("latin-1") in encoder | fixed}
            entries = files.copied(prefix, first)
            _link_same(files.paths[0], older)
            entries |= files.copied(prefix, index.keys() - first)
            places = self._reused(older, files)
            missing = {task.digest: task for task in self._tasks if task.digest not in places}
            places |= self._written(files, missing.values())
            entries |= self._rows(entries, places)
            for path in prefix.parent.glob(f"{prefix.name}.*"):
                path.unlink()
            for number, path in enumerate(files.paths):
                path.rename(f"{prefix}.data-{number:05d}-of-{len(files.paths):05d}")
            write_index(f"{prefix}.index", entries, len(files.paths))
        self._say(version)

    def _rows(self, entries, places):
        """The entries of the tables, whose first rows are those of the checkpoint."""
        found = {}
        for table in self._tables:
            for number, store in enumerate(self._tables[table].stores):
                key = self._key(table, number)
                first = entries[key.encode()]
                runs = [places[task.digest][table][number] for task in self._tasks if table in task.rows]
                if runs:
                    shape = [self._ends[table], *store.row_shape]
                    found |= of_rows(key, shape, first.dtype, [first, *runs])
        return found

    @staticmethod
    def _key(table, number):
        return f"rows/{table}_{number}{_VALUE}"

    def _written(self, files, tasks):
        """Write tasks into new files; their entries, as in `_Older.places`."""
        places = {}
        for batch in self._batches(tasks):
            arrays = {
                (task.digest, table, number): array
                for task in batch
                for table, rows in task.rows.items()
                for number, array in enumerate(self._arrays(table, rows))
            }
            for (digest, table, number), entry in files.new(arrays).items():
                places.setdefault(digest, {}).setdefault(table, {})[number] = entry
        return places

    def _batches(self, tasks):
        """Yield lists of tasks whose rows fit into a file."""
        batch, filled = [], 0
        for task in tasks:
            size = sum(self._tables[table].row_nbytes * len(rows) for table, rows in task.rows.items())
            if batch and filled + size > _FILE_BYTES:
                yield batch
                batch, filled = [], 0
            batch.append(task)
            filled += size
        if batch:
            yield batch

    def _reused(self, versions, files):
        """Link the files of the newest version that has some of the tasks; their entries, as in `_Older.places`."""
        wanted = {task.digest: task for task in self._tasks}
        for older in versions:
            found = {digest: parts for digest, parts in older.places.items() if digest in wanted}
            if not found:
                continue
            found = _worth_linking(found, older)
            numbers = {entry.shard_id for parts in found.values() for part in parts.values() for entry in part}
            renamed = {number: files.linked(older.files[number]) for number in sorted(numbers)}
            for parts in found.values():
                for entry in (entry for part in parts.values() for entry in part):
                    entry.shard_id = renamed[entry.shard_id]
            return found
        return {}

    def _say(self, version):
        about = {
            "format": _FORMAT,
            "tables": {name: len(table.stores) for name, table in self._tables.items()},
            "tasks": [
                [task.digest, *(len(task.rows.get(table, ())) for table in self._tables)] for task in self._tasks
            ],
        }
        path = version / "assets.extra" / ROWS_FILE
        path.write_text(json.dumps(about, separators=(",", ":")) + "\n", encoding="utf-8")


class _Files:
    """The data files of a new checkpoint, by their numbers.

    Args:
        folder: path, where they are until they have their names.
    """

    def __init__(self, folder):
        self._folder, self.paths = folder, []

    def copied(self, prefix, keys):
        """Copy tensors of a checkpoint into a file; their entries, a dict."""
        names = [key.decode() for key in sorted(keys)]
        reader = tf.train.load_checkpoint(str(prefix))
        dtypes = [reader.get_variable_to_dtype_map()[name] for name in names]
        tensors = tf.raw_ops.RestoreV2(
            prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), dtypes=dtypes
        )
        return self._save(names, tensors)

    def new(self, arrays):
        """Write arrays into a file; the entry of each, a dict."""
        names = {f"{number:06d}": key for number, key in enumerate(arrays)}
        entries = self._save(list(names), [tf.convert_to_tensor(array) for array in arrays.values()])
        return {names[name.decode()]: entry for name, entry in entries.items()}

    def linked(self, path):
        """Take a file of another version, by a link where the file system has links; its number."""
        target = self._folder / f"file-{len(self.paths)}"
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
        self.paths.append(target)
        return len(self.paths) - 1

    def _save(self, names, tensors):
        prefix = self._folder / f"file-{len(self.paths)}"
        tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors)
        entries = read_index(f"{prefix}.index")
        os.unlink(f"{prefix}.index")
        for entry in entries.values():
            entry.shard_id = len(self.paths)
        self.paths.append(prefix.with_name(f"{prefix.name}.data-00000-of-00001"))
        return entries


def _worth_linking(found, older):
    """Leave out tasks that are better written anew: those of many small files, and of files that are half unused."""
    live = {}
    for digest, parts in found.items():
        for entry in (entry for part in parts.values() for entry in part):
            live[entry.shard_id] = live.get(entry.shard_id, 0) + entry.size
    sizes = {number: older.files[number].stat().st_size for number in live}
    left_out = set()
    small = {number for number in live if live[number] < _FILE_BYTES / 2}
    if len(small) > _SMALL_FILES:
        left_out |= small
    if sum(sizes.values()) > 2 * sum(live.values()):
        left_out |= {number for number in live if sizes[number] > 2 * live[number]}
    if not left_out:
        return found
    return {
        digest: parts
        for digest, parts in found.items()
        if not {entry.shard_id for part in parts.values() for entry in part} & left_out
    }


def _older_versions(folder):
    """The `_Older` of each version that can be read, the newest first."""
    found = []
    numbered = [path for path in folder.iterdir() if path.name.isdecimal() and path.name.isascii()]
    for version in sorted(numbered, key=lambda path: -int(path.name)):
        try:
            found.append(_read_older(version))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # written by another version of this package, or by none of ours: it has nothing to share
    return found


def _read_older(version):
    index = read_index(version / f"{_PREFIX}.index")
    paths = sorted((version / "variables").glob("variables.data-*"))
    files, places = dict(enumerate(paths)), {}
    sizes = {number: path.stat().st_size for number, path in files.items()}
    rows = version / "assets.extra" / ROWS_FILE
    if rows.exists():
        about = read_json(rows)
        if about["format"] != _FORMAT:
            raise ValueError("another format")
        starts = dict.fromkeys(about["tables"], 1)
        for digest, *counts in about["tasks"]:
            parts = places.setdefault(digest, {})
            for table, count in zip(about["tables"], counts):
                if count == 0:
                    continue
                parts[table] = []
                for number in range(about["tables"][table]):
                    key = BankLayout._key(table, number)
                    rank = len(index[key.encode()].shape.dim)
                    entry = index[rows_key(key, starts[table], count, rank)]
                    if entry.offset + entry.size > sizes[entry.shard_id]:
                        raise ValueError("a file is too short")
                    parts[table].append(entry)
                starts[table] += count
    return _Older(version, places, files)


def _link_same(path, versions):
    """Put a link to the first file of an older version in a file's place, if the two are the same."""
    for older in versions:
        other, link = older.files.get(0), path.with_name(path.name + ".link")
        try:
            if other.stat().st_size != path.stat().st_size or not filecmp.cmp(other, path, shallow=False):
                continue
            os.link(other, link)
        except (OSError, AttributeError):
            continue  # not there, not to be read, another file system, or one without links
        os.replace(link, path)
        return
