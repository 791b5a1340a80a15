"""Types in the signatures of the public names, for editors and type checkers."""

import os
from typing import Any, Callable, Dict, TypeVar, Union

#: A Keras model; of which Keras is decided by the door that it came through.
Model = Any
PathLike = Union[str, "os.PathLike[str]"]
#: What an adapter directory's JSON holds.
Settings = Dict[str, Any]
#: A function that a decorator leaves as it is, to those who call it.
Function = TypeVar("Function", bound=Callable[..., Any])
