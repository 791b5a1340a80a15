"""One encoder and the adapters of several directories, of any kinds. Loads no TensorFlow before the encoder."""

import dataclasses
import threading

from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.models.door import quiet_about_poolers
from tf_adapters.saving.settings import read_settings, task_of
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.tasks.rows import with_value_range

# Heads that stand on the pooler, which an encoder that is loaded under another lacks.
_ON_POOLER = ("classification", "multiple-choice")


@dataclasses.dataclass(frozen=True)
class SharedTask:
    """What is known of a directory before its encoder is loaded, as `read_settings` and `task_of` return it."""

    directory: str
    settings: dict
    kind: str
    labels: tuple

    @property
    def about(self):
        """What the directory says of its task, a dict."""
        return self.settings["task"] or {}


def read_tasks(named, heads_alone=False):
    """The `SharedTask` of each directory of `named`, a dict of their paths, by name, if one encoder can serve all; in a
    bank `heads_alone` can be tasks too.

    Raises:
        InputError: no adapter in a directory, or none that can share its encoder; an encoder of another shape.
    """
    tasks = {}
    for name, path in named.items():
        settings = read_settings(path)
        tasks[name] = SharedTask(path, settings, *task_of(settings))
    if len(tasks) < 2:
        return tasks
    first = next(iter(tasks.values()))
    for task in tasks.values():
        settings, one, other = task.settings, task.settings["backbone"], first.settings["backbone"]
        if any(one[key] != other[key] for key in ("model_type", "hidden_size", "num_hidden_layers")):
            raise InputError(
                f"{task.directory} was trained on another encoder ({one['source']}) than {first.directory}: give "
                "those of one encoder."
            )
        if one["weights_saved"] or (settings["adapter"] is None and not heads_alone):
            raise InputError(
                f"{task.directory} holds weights of the encoder, or a head without an adapter "
                f"({settings['trainable']}), and shares its encoder with nobody: give it alone."
            )
    return tasks


class SharedEncoder:
    """An encoder with adapters, of which the one that is asked acts. Calls may come from several threads.

    Args:
        tasks: dict from name to `SharedTask`, as `read_tasks` returns it.
        backbone: source of the encoder, or None for the one that the first directory names.
        progress: function called with 1 after each directory, or None.

    Attributes:
        tasks: as given.

    Raises:
        InputError: the encoder is not to be found, or not the one that a directory was trained on.
    """

    def __init__(self, tasks, *, backbone=None, progress=None):
        from tf_adapters.saving.directory import load_adapter, load_trained
        from tf_adapters.text.tokenizer import trained_tokenizer

        self.tasks = dict(tasks)
        self._lock = threading.Lock()
        self._scorers, self._adapters, model = {}, {}, None
        # The encoder is loaded under the head that needs most of it.
        for name in sorted(tasks, key=lambda name: tasks[name].settings["head"]["type"] not in _ON_POOLER):
            task = tasks[name]
            with quiet_about_poolers():
                if model is None:
                    model, _ = load_trained(task.directory, backbone=backbone)
                    self._adapters[name] = "default" if task.settings["adapter"] is not None else None
                else:
                    # A name of a directory may be none that a model's variables can have.
                    self._adapters[name] = f"shared_{len(self._adapters)}"
                    load_adapter(model, task.directory, name=self._adapters[name])
            tokenizer = trained_tokenizer(model, task.settings["text"], task.directory)
            self._scorers[name] = get_kind(task.kind).scorer(model, tokenizer, batch_size=8)
            if progress is not None:
                progress(1)
        self.model = model

    def answer(self, name, texts, text_pairs=None):
        """What one of `tasks` answers to texts, a list of records; all of them as of `pipeline.predict`.

        Raises:
            InputError: no such task; texts that are none of its kind.
        """
        from tf_adapters.models.injection import set_active

        if name not in self.tasks:
            raise InputError(f"There is no adapter {name!r}: ask one of {', '.join(map(repr, self.tasks))}.")
        task = self.tasks[name]
        rows = with_value_range(get_reader(task.kind).of_texts(texts, text_pairs), task.about)
        kind = get_kind(task.kind)
        with self._lock:
            if self._adapters[name] is not None:
                set_active(self.model, self._adapters[name])
            return kind.records(rows, kind.predict(self._scorers[name], rows), task.labels)
