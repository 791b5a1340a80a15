"""The variables of a SavedModel in two files, of which versions share the first."""

import filecmp
import os
import pathlib
import re
import tempfile

import tensorflow as tf

_PREFIX = "variables/variables"


def share_backbone(version, count, versions):
    """Put the first `count` variables of `root.read` into a file of their own, linked to that of an older version.

    Args:
        version: path of a complete SavedModel that nothing reads yet.
        count: int.
        versions: folder of the versions that are there.

    Returns: path of the version whose file is shared, or None.
    """
    version = pathlib.Path(version)
    _split(version / _PREFIX, lambda key: (match := re.match(r"read/(\d+)/", key)) is not None and int(match[1]) < count)
    first = version / f"{_PREFIX}.data-00000-of-00002"
    numbers = sorted((path for path in pathlib.Path(versions).iterdir() if path.name.isdecimal()), key=lambda path: -int(path.name))
    for other in numbers:
        older, link = other / f"{_PREFIX}.data-00000-of-00002", first.with_name(first.name + ".link")
        try:
            if older.stat().st_size != first.stat().st_size or not filecmp.cmp(older, first, shallow=False):
                continue
            os.link(older, link)
        except OSError:
            continue  # not there, not to be read, another file system, or one without links
        os.replace(link, first)
        return other
    return None


def _split(prefix, belongs_to_first):
    """Write a checkpoint's tensors again, in two files instead of one."""
    reader = tf.train.load_checkpoint(str(prefix))
    keys = sorted(reader.get_variable_to_dtype_map())
    groups = [[key for key in keys if belongs_to_first(key)], [key for key in keys if not belongs_to_first(key)]]
    dtypes = reader.get_variable_to_dtype_map()
    with tempfile.TemporaryDirectory(dir=prefix.parent) as folder:
        parts = []
        for number, group in enumerate(groups):
            parts.append(os.path.join(folder, f"part-{number}"))
            tensors = tf.raw_ops.RestoreV2(
                prefix=str(prefix), tensor_names=group, shape_and_slices=[""] * len(group), dtypes=[dtypes[key] for key in group]
            )
            tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=group, shape_and_slices=[""] * len(group), tensors=tensors)
        merged = os.path.join(folder, prefix.name)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=merged, delete_old_dirs=False)
        for path in prefix.parent.glob(f"{prefix.name}.*"):
            path.unlink()
        for path in pathlib.Path(folder).glob(f"{prefix.name}.*"):
            path.rename(prefix.parent / path.name)
