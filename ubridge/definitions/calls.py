"""Errors name the function that the user called, not a step within it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from ubridge.definitions.table import OPS
from uhal.errors import ArgumentTypeError

Function = TypeVar("Function", bound=Callable[..., Any])
_SPEAKER = re.compile(r"(\w+)(?=(?:, [^:]{1,60})?: )")
"""The operation at the beginning of a message: `operation: ...` or `operation, parameter: ...`."""
_STEPS = set(OPS)
"""Known names at the beginning of a message: every operation, and every decorated function."""
_KEYWORD = re.compile(r"([\w.<>]+)\(\) got an unexpected keyword argument '(\w+)'")
_SPELLED = {
    **{"dim": "axis", "dims": "axes", "keepdim": "keepdims", "unbiased": "correction"},
    **{"input": "x", "a": "x", "other": "y"},
}
"""Names of parameters in PyTorch and numpy, and ours."""


def named(function: Function, name: str | None = None) -> Function:
    """Decorate a public function: errors of its steps begin with the function's name."""
    called = name or function.__name__
    _STEPS.add(called)

    @wraps(function)
    def naming(*given: Any, **settings: Any) -> Any:
        try:
            return function(*given, **settings)
        except Exception as error:
            if type(error) is TypeError:
                refused = _refusal_of_keyword(error, function, called)
                if refused is not None:
                    raise refused from None
            renamed(error, called)
            raise

    return cast(Function, naming)


def renamed(error: Exception, called: str) -> None:
    """Replace the step's name in the message by the function's name."""
    said = error.args[0] if error.args else None
    if isinstance(said, str):
        found = _SPEAKER.match(said)
        if found is not None and found[1] in _STEPS and found[1] != called:
            error.args = (called + said[found.end(1) :], *error.args[1:])


def _refusal_of_keyword(
    error: TypeError, function: Callable[..., Any], called: str
) -> ArgumentTypeError | None:
    """The error for a parameter that the function lacks; it names the parameters."""
    found = _KEYWORD.match(str(error))
    if found is None or found[1] != function.__qualname__:
        return None
    known = [one for one in inspect.signature(function).parameters if one != "self"]
    near = [_SPELLED.get(found[2], ""), *get_close_matches(found[2], known, 1)]
    meant = [one for one in near if one in known]
    advice = f"Write {meant[0]}=." if meant else "Use these names."
    return ArgumentTypeError(f"{called}: expected {', '.join(known)}, got {found[2]}=. {advice}")
