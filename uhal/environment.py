"""Environment variables of uhal, and the reader that checks their values."""

from __future__ import annotations

import os

from uhal._variables import PLAIN, Variable
from uhal.errors import ArgumentValueError

VARIABLES = {variable.name: variable for variable in PLAIN}
"""Variables of the package, its build and its tests, by name."""


def with_simulated() -> dict[str, Variable]:
    """Return all variables by name, including variables of the simulated drivers.

    The page of variables is generated from this dictionary.
    """
    from uhal._simulator_variables import SIMULATED

    return VARIABLES | {variable.name: variable for variable in SIMULATED}


def read(name: str) -> str:
    """Return a variable's value without white space around it, or its default.

    Raises `ArgumentValueError` for a value outside its choices or its range.
    """
    variable = VARIABLES.get(name) or with_simulated()[name]
    text = os.environ.get(name, "").strip()
    if not text:
        return variable.default
    refusal = variable.refusal(text)
    if refusal:
        raise ArgumentValueError(refusal)
    return text


def check(prefix: str) -> None:
    """Check every variable with this prefix, for libraries that read them in C."""
    for name in VARIABLES:
        if name.startswith(prefix):
            read(name)


__all__ = ["VARIABLES", "Variable", "check", "read", "with_simulated"]
