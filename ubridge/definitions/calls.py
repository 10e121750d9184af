"""Errors name the function that the user called, not a step within it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ubridge.definitions.table import OPS

Function = TypeVar("Function", bound=Callable[..., Any])
_SPEAKER = re.compile(r"(\w+)(?=(?:, [^:]{1,60})?: )")
"""The operation at the beginning of a message: `operation: ...` or `operation, parameter: ...`."""
_STEPS = set(OPS)
"""Known names at the beginning of a message: every operation, and every decorated function."""


def named(function: Function, name: str | None = None) -> Function:
    """Decorate a public function: errors of its steps begin with the function's name."""
    called = name or function.__name__
    _STEPS.add(called)

    @wraps(function)
    def naming(*given: Any, **settings: Any) -> Any:
        try:
            return function(*given, **settings)
        except Exception as error:
            _rename(error, called)
            raise

    return cast(Function, naming)


def _rename(error: Exception, called: str) -> None:
    """Replace the step's name in the message by the function's name."""
    said = error.args[0] if error.args else None
    if isinstance(said, str):
        found = _SPEAKER.match(said)
        if found is not None and found[1] in _STEPS and found[1] != called:
            error.args = (called + said[found.end(1) :], *error.args[1:])
