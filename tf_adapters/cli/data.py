"""The rows that `train` and `tune` train on, as their options say."""

import dataclasses
import pathlib
import shlex

from tf_adapters.cli import options
from tf_adapters.errors import InputError
from tf_adapters.tasks.files import check_streams
from tf_adapters.tasks.lines import dialect_of

DEFAULT_TASK = "rotten-tomatoes"
# Kinds of tasks whose files are tables.
LABELLED_TEXTS = ("classification", "regression", "multi-label")
# Parameters whose option has another name.
_OPTION_NAMES = {"train_file": "--train"}


@dataclasses.dataclass
class DataOptions:
    """The options of the panel "Data", by the names of the commands' parameters."""

    task: options.TrainedTask = None
    data_dir: options.DataDir = None
    train_file: options.TrainFile = None
    validation: options.ValidationFile = None
    test: options.TestFile = None
    text_column: options.TextColumn = None
    text_pair_column: options.TextPairColumn = None
    label_column: options.LabelColumn = None
    label_separator: options.LabelSeparator = "|"
    format: options.Format = None
    encoding: options.Encoding = None
    header: options.Header = None
    delimiter: options.Delimiter = None
    kind: options.Kind = None
    metric: options.TrainedMetric = None
    validation_split: options.ValidationSplit = None
    max_train_rows: options.MaxTrainRows = None
    low_resource: options.LowResource = None
    skip_bad_rows: options.SkipBadRows = False

    def check(self):
        """Raise InputError for options that do not fit together; chooses the task where none is named."""
        of_files = {
            "--train": self.train_file,
            "--validation": self.validation,
            "--test": self.test,
            "--format": self.format,
            **{f"--{name}": value for name, value in self._dialect().items()},
            "--kind": self.kind,
        }
        given = {option: value for option, value in of_files.items() if value is not None}
        if "--train" not in given:
            if self.task is None:
                columns = {f"--{name.replace('_', '-')}": value for name, value in self._columns().items()}
                given.update({option: value for option, value in columns.items() if value is not None})
            for option, value in given.items():
                advice = (
                    "add --train FILE, or --task NAME"
                    if self.task is None
                    else f"task {self.task!r} has its own, leave it out"
                )
                raise InputError(f"{option} {value} goes with --train FILE: {advice}.")
            self.task = self.task or DEFAULT_TASK
        elif self.task is not None:
            raise InputError(f"--task {self.task} and --train {given['--train']} exclude each other: give one of them.")
        elif self.data_dir is not None or self.validation_split is not None:
            option, value = (
                ("--data-dir", self.data_dir)
                if self.data_dir is not None
                else ("--validation-split", self.validation_split)
            )
            raise InputError(f"{option} {value} belongs to --task NAME: leave it out with --train FILE.")
        dialect_of(**self._dialect())
        self.validation = _file_or_share("--validation", self.validation)
        self.test = _file_or_share("--test", self.test)
        check_streams({"--train": self.train_file, **self._files()})
        if self.low_resource is not None and self.max_train_rows is not None:
            raise InputError(
                f"--low-resource {self.low_resource} and --max-train-rows {self.max_train_rows} exclude each other: "
                "give one of them."
            )

    def usual_output(self, folder):
        """Where to write without --output, which only the embedded task may lack."""
        if self.task != DEFAULT_TASK:
            raise InputError("--output DIR is needed: where to write the results.")
        return pathlib.Path(folder, DEFAULT_TASK)

    def peek(self):
        """Find a missing package, or a wrong name or column of the user's files, before TensorFlow is loaded."""
        from tf_adapters.tasks.files import peek
        from tf_adapters.tasks.registry import check_task

        if self.task is not None:
            check_task(self.task, data_dir=self.data_dir)
            return
        if self.kind is None and self.train_file.name.removesuffix(".gz").endswith(".conllu"):
            self.kind = "token-classification"
        if self.kind is None or self.kind in LABELLED_TEXTS:
            names = self._columns()
            names = {**names, "text_column": self.text_column or "text", "label_column": self.label_column or "label"}
            for path in (self.train_file, *self._files().values()):
                peek(path, **names, format=self.format, dialect=dialect_of(**self._dialect()))

    def read(self, console):
        """The whole `Task`; says how many rows were left out."""
        from tf_adapters import load_task, task_from_files
        from tf_adapters.cli.report import show_bad_rows
        from tf_adapters.tasks.files import BadRows

        bad_rows = BadRows() if self.skip_bad_rows else None
        with console.status("Reading the data ..."):
            if self.task is None:
                task = task_from_files(
                    train=self.train_file,
                    validation=self.validation,
                    test=self.test,
                    kind=self.kind or "classification",
                    metric=self.metric,
                    label_separator=self.label_separator,
                    format=self.format,
                    bad_rows=bad_rows,
                    **self._dialect(),
                    **self._columns(),
                )
            else:
                task = load_task(
                    self.task,
                    data_dir=self.data_dir,
                    metric=self.metric,
                    validation_split=self.validation_split or "validation",
                    **self._columns(),
                )
        show_bad_rows(console, bad_rows)
        if self.task is None:
            _show_doubts(console, task, self.label_separator)
        return task

    def sampled(self, task, seed):
        """The `Task` with the rows that a seed trains on."""
        from tf_adapters.tasks.rows import sample_rows
        from tf_adapters.tasks.splitting import low_resource

        if self.low_resource is not None:
            return low_resource(task, count=self.low_resource, seed=seed)
        if self.max_train_rows is not None:
            return dataclasses.replace(task, train=sample_rows(task.train, count=self.max_train_rows, seed=seed))
        return task

    def words(self):
        """The options that were given, as words of a command line."""
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            option = _OPTION_NAMES.get(field.name, f"--{field.name.replace('_', '-')}")
            words += [option] if value is True else [option, str(value)]
        return words

    def _files(self):
        """The files of held-out rows by their options."""
        given = {"--validation": self.validation, "--test": self.test}
        return {option: value for option, value in given.items() if isinstance(value, pathlib.Path)}

    def _dialect(self):
        """What was said of how the files are written."""
        return options.dialect_given(encoding=self.encoding, header=self.header, delimiter=self.delimiter)

    def _columns(self):
        return {name: getattr(self, name) for name in ("text_column", "text_pair_column", "label_column")}


def _show_doubts(console, task, separator):
    """Say what the labels look like in place of what they were taken for."""
    from tf_adapters.tasks.labels import doubts

    found = doubts(task.labels, kind=task.kind, separator=separator)
    if found is not None:
        sentence, values = found
        for name, value in values.items():
            sentence = sentence.replace(f"{{{name}}}", f"--{name.replace('_', '-')} {shlex.quote(value)}")
        console.print(sentence, markup=False)


def _file_or_share(option, value):
    """A path, or a number for the share of the training rows; None stays None."""
    if value is None or isinstance(value, (pathlib.Path, float)):
        return value
    try:
        share = None if pathlib.Path(value).exists() else float(value)
    except ValueError:
        share = None
    if share is None:
        return pathlib.Path(value)
    if not 0 < share < 1:
        raise InputError(f"{option} {value} must be a file, or a share of the training rows such as 0.1.")
    return share
