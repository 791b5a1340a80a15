"""Types in the signatures of the public names, for editors and type checkers."""

import os
from typing import Any, Callable, Dict, TypeVar, Union

PathLike = Union[str, "os.PathLike[str]"]
#: What an adapter directory's JSON holds.
Settings = Dict[str, Any]
#: A function that a decorator leaves as it is, to those who call it.
Function = TypeVar("Function", bound=Callable[..., Any])
