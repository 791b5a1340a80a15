"""Splits of a TensorFlow Datasets builder, read as whole tensors."""

import dataclasses
import os

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.tasks.own_files import metric_of
from tf_adapters.tasks.rows import Rows, Splits

VALIDATION_NAMES = ("validation", "dev", "valid", "val")
# A data set on disk does not keep the order of its columns, so that a pair that is found needs one:
# these first, and then by the alphabet.
FIRST_TEXTS = ("premise", "question")
# Without a validation split, a row of train is held out if its texts fall into the first of ten buckets.
_SEED = "tf_adapters validation 1\n"


def import_tfds():
    """The module tensorflow_datasets, which costs seconds to import.

    Raises: InputError, with what to install, if it is missing or does not work.
    """
    try:
        import tensorflow_datasets as tfds

        tfds.builder  # noqa: B018 (the import is lazy in parts)
    except ImportError as error:
        raise InputError(
            f"Tasks of TensorFlow Datasets need {error.name or 'tensorflow_datasets'}: run `pip install "
            "tensorflow-datasets importlib_resources`."
        ) from error
    except Exception as error:  # tensorflow-metadata built for another protobuf: VersionError, AttributeError
        raise InputError(
            f"tensorflow_datasets is installed and cannot be imported ({_first_line(error)}): run `pip install "
            "'tensorflow-metadata<1.18'` if it is about protobuf or `builder`."
        ) from error
    return tfds


def find_builder(name, *, data_dir=None):
    """The builder of a TensorFlow Datasets name, or None if there is no such name.

    Raises: InputError, if tensorflow_datasets or the builder cannot be imported,
        or data_dir is a file.
    """
    tfds = import_tfds()
    if data_dir is not None and os.path.isfile(data_dir):
        raise InputError(f"data_dir is {os.fspath(data_dir)!r}, which is a file: give the folder that holds {name}.")
    try:
        return tfds.builder(name, data_dir=None if data_dir is None else os.fspath(data_dir))
    except ImportError as error:
        raise InputError(
            f"Task {name!r} needs {error.name or error}: run `pip install {error.name or 'it'}`."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
        return None


def read_splits(
    builder, splits, *, name, text_column=None, text_pair_column=None, label_column=None, renamed=None, unlabelled=()
):
    """Read splits of a builder, downloading and preparing it if it is not there.

    Columns that are not given are found: those of `supervised_keys`, or else the
    only text or the only two texts (premise and question first, then by the
    alphabet), and the only ClassLabel. Where there is no
    validation split, about a tenth of train is held out, the same for ever: rows
    whose texts fall into one of ten buckets of a fixed hash, so that equal rows
    stay together. Rows whose class is -1 are dropped; a split in which all are
    is unlabelled.

    Args:
        builder: `tfds.core.DatasetBuilder`.
        splits: names of splits; one that does not exist is left out.
        name: the task's name, for messages.
        text_column, text_pair_column, label_column: str, features to use instead of those found.
        renamed: dict from a split's name here to its name there (MNLI).
        unlabelled: splits whose labels are placeholders (GLUE's test).

    Returns: `Splits`.

    Raises: InputError, if a column does not serve, or the data cannot be had.
    """
    prepare(builder, name)
    features = builder.info.features
    text_column, text_pair_column = _text_columns(features, builder, text_column, text_pair_column, name)
    label_column = _label_column(features, builder, label_column, name)
    kind, labels = _kind_and_labels(features[label_column], label_column, name)
    columns = [column for column in (text_column, text_pair_column, label_column) if column]
    available, renamed = list(builder.info.splits), renamed or {}
    has_validation = not {*VALIDATION_NAMES, renamed.get("validation")}.isdisjoint(available)
    parted = () if has_validation else {"train", "validation"} & set(splits)
    rows = {}
    for split in splits:
        actual = "train" if split in parted else renamed.get(split, split)
        if split == "validation" and actual not in available:
            actual = next((other for other in VALIDATION_NAMES if other in available), None)
        if actual not in available:
            continue
        table = _read(builder, actual, columns, name)
        read = Rows(
            text=table[text_column],
            text_pair=table[text_pair_column] if text_pair_column else None,
            labels=None if split in unlabelled else table[label_column].numpy(),
        )
        del table
        if split in parted:
            read = _part(read, held_out=split == "validation")
        rows[split] = _known_only(read, kind)
    read = ", ".join(repr(column) for column in columns)
    return Splits(
        kind=kind,
        labels=labels,
        metric=metric_of(kind),
        rows=rows,
        source=f"{builder.info.full_name} of TensorFlow Datasets, columns {read}."
        + (" About a tenth of train is held out as validation by a fixed hash." if parted else ""),
    )


def _first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def prepare(builder, name):
    """Download and prepare a builder that is not; raises InputError if that fails."""
    if builder.is_prepared():
        return
    try:
        builder.download_and_prepare()
    except Exception as error:  # network, checksum, disk, a manual download: none is a defect of this package
        raise InputError(
            f"Task {name!r} is not prepared in {str(builder.data_dir)!r} and could not be downloaded "
            f"({_first_line(error)}): connect to the network, or give the data_dir that holds it."
        ) from error


def _checked(column, features, argument, name):
    if column not in features:
        raise InputError(
            f"{argument} is {column!r}, and the columns of {name} are "
            f"{', '.join(repr(other) for other in sorted(features))}."
        )
    return column


def _text_columns(features, builder, text_column, text_pair_column, name):
    texts = [
        column
        for column, feature in features.items()
        if feature.shape == () and feature.np_dtype in (object, str, np.str_, np.bytes_)
    ]
    texts.sort(key=lambda column: (column not in FIRST_TEXTS, column))
    for argument, column in (("text_column", text_column), ("text_pair_column", text_pair_column)):
        if column is not None and _checked(column, features, argument, name) not in texts:
            raise InputError(f"{argument} is {column!r}, which is not text: the text columns of {name} are {texts}.")
    if text_column is not None:
        if text_column == text_pair_column:
            raise InputError(f"text_column and text_pair_column are both {text_column!r}: leave one out.")
        return text_column, text_pair_column
    keys = builder.info.supervised_keys or ()
    if keys and keys[0] in texts and keys[0] != text_pair_column:
        return keys[0], text_pair_column
    others = [column for column in texts if column != text_pair_column]
    if len(others) == 1:
        return others[0], text_pair_column
    if len(others) == 2 and text_pair_column is None:
        return others[0], others[1]
    raise InputError(
        f"{name} has the text columns {texts}: say text_column, and text_pair_column if there are two texts."
    )


def _label_column(features, builder, label_column, name):
    import tensorflow_datasets as tfds

    if label_column is not None:
        return _checked(label_column, features, "label_column", name)
    classes = sorted(column for column, feature in features.items() if isinstance(feature, tfds.features.ClassLabel))
    keys = builder.info.supervised_keys or ()
    if len(keys) > 1 and keys[1] in classes:
        return keys[1]
    if len(classes) == 1:
        return classes[0]
    raise InputError(
        f"{name} has {len(classes)} class label columns {classes}: say label_column (its columns are "
        f"{sorted(features)})."
    )


def _kind_and_labels(feature, column, name):
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.ClassLabel):
        return "classification", tuple(feature.names)
    if feature.shape == () and feature.np_dtype in (np.float32, np.float64):
        return "regression", ()
    raise InputError(
        f"label_column {column!r} of {name} is {feature!r}: only a class label or one floating-point number "
        "serves; write the rows to a file and use task_from_files."
    )


def _read(builder, split, columns, name):
    import tensorflow_datasets as tfds

    try:
        return builder.as_dataset(
            split=split,
            batch_size=-1,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding({column: True for column in columns}),
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"Split {split!r} of {name} in {str(builder.data_dir)!r} cannot be read ({_first_line(error)}): "
            "prepare it again."
        ) from error


def _known_only(rows, kind):
    if rows.labels is None:
        return rows
    if kind == "regression":
        return dataclasses.replace(rows, labels=rows.labels.astype(np.float32))
    known = rows.labels >= 0
    if not known.any():
        return rows.plain()
    rows = dataclasses.replace(rows, labels=rows.labels.astype(np.int32))
    return rows if known.all() else rows.take(np.flatnonzero(known))


def _part(rows, *, held_out):
    import tensorflow as tf

    texts = [rows.text] if rows.text_pair is None else [rows.text, rows.text_pair]
    bucket = tf.strings.to_hash_bucket_fast(tf.strings.join([_SEED, *texts], separator="\n"), 10).numpy()
    return rows.take(np.flatnonzero((bucket == 0) == held_out))
