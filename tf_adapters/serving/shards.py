"""The variables of a SavedModel in several files, of which versions share the first."""

import filecmp
import math
import os
import pathlib
import re
import tempfile

import tensorflow as tf

_PREFIX = "variables/variables"
_FILE_BYTES = 2**30


def share_backbone(version, count, versions):
    """Put the first `count` variables of `root.read` into a file of their own, linked to that of an older version.

    Args:
        version: path of a complete SavedModel that nothing reads yet.
        count: int.
        versions: folder of the versions that are there.

    Returns: path of the version whose file is shared, or None.
    """
    version = pathlib.Path(version)
    _split(
        version / _PREFIX, lambda key: (match := re.match(r"read/(\d+)/", key)) is not None and int(match[1]) < count
    )
    first = _first_file(version)
    numbers = sorted(
        (path for path in pathlib.Path(versions).iterdir() if path.name.isdecimal()), key=lambda path: -int(path.name)
    )
    for other in numbers:
        older, link = _first_file(other), first.with_name(first.name + ".link")
        try:
            if (
                older is None
                or older.stat().st_size != first.stat().st_size
                or not filecmp.cmp(older, first, shallow=False)
            ):
                continue
            os.link(older, link)
        except OSError:
            continue  # not there, not to be read, another file system, or one without links
        os.replace(link, first)
        return other
    return None


def _first_file(version):
    return next((version / "variables").glob("variables.data-00000-of-*"), None)


def _split(prefix, belongs_to_first):
    """Write a checkpoint's tensors again, the first ones in a file of their own."""
    reader = tf.train.load_checkpoint(str(prefix))
    dtypes, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    groups, filled = [[key for key in sorted(dtypes) if belongs_to_first(key)]], math.inf
    # A file's tensors are in memory together while they are written again.
    for key in sorted(set(dtypes) - set(groups[0])):
        size = math.prod(shapes[key]) * dtypes[key].size
        if filled + size > _FILE_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(key)
        filled += size
    with tempfile.TemporaryDirectory(dir=prefix.parent) as folder:
        parts = []
        for number, group in enumerate(groups):
            parts.append(os.path.join(folder, f"part-{number}"))
            _copy(prefix, parts[-1], group, [dtypes[key] for key in group])
        merged = os.path.join(folder, prefix.name)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=merged, delete_old_dirs=False)
        for path in prefix.parent.glob(f"{prefix.name}.*"):
            path.unlink()
        for path in pathlib.Path(folder).glob(f"{prefix.name}.*"):
            path.rename(prefix.parent / path.name)


def _copy(prefix, other, keys, dtypes):
    whole = [""] * len(keys)
    tensors = tf.raw_ops.RestoreV2(prefix=str(prefix), tensor_names=keys, shape_and_slices=whole, dtypes=dtypes)
    tf.raw_ops.SaveV2(prefix=other, tensor_names=keys, shape_and_slices=whole, tensors=tensors)
