"""What a type checker knows of the package: the names in `__init__.pyi` and their signatures."""

import importlib
import inspect
import pathlib
import re

import pytest

import tf_adapters

FOLDER = pathlib.Path(tf_adapters.__file__).parent


def test_the_stub_has_every_public_name_from_where_it_is():
    lines = re.findall(r"^from (\S+) import (\w+) as (\w+)$", (FOLDER / "__init__.pyi").read_text(), re.MULTILINE)
    assert sorted(name for _, name, _ in lines) == sorted(tf_adapters.__all__)
    for module, name, known_as in lines:
        assert name == known_as and getattr(importlib.import_module(module), name) is getattr(tf_adapters, name)


METHODS = {
    tf_adapters.AdapterBank: ("__init__", "add", "answer", "digest", "nbytes", "remove", "replace", "tasks"),
    tf_adapters.Experiment: ("build", "run_seeds", "score", "task_of", "train"),
}
FUNCTIONS = [getattr(tf_adapters, name) for name in tf_adapters.__all__]
FUNCTIONS = [value for value in FUNCTIONS if inspect.isfunction(value)]
FUNCTIONS += [getattr(vars(owner)[name], "fget", vars(owner)[name]) for owner in METHODS for name in METHODS[owner]]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_every_argument_and_answer_of_a_public_function_has_a_type(function):
    signature = inspect.signature(inspect.unwrap(function))
    untyped = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.annotation is parameter.empty and name != "self"
    ]
    assert not untyped and signature.return_annotation is not signature.empty
