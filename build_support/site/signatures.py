"""Signatures with the types as the source spells them."""

from __future__ import annotations

import inspect
from typing import Any


def written_signature(found: Any, *, is_method: bool = False) -> tuple[str, str] | None:
    """Return the parameters and the result as the source spells them, `None` without a source.

    Sphinx would replace an alias, such as `StreamLike`, by all of its types.
    """
    if not callable(found):
        return None
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    if is_method and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    types = [one.annotation for one in parameters if one.annotation is not one.empty]
    result = signature.return_annotation
    if not types or not all(isinstance(one, str) for one in types):
        return None
    words = [
        one if one.annotation is one.empty else one.replace(annotation=_Words(one.annotation))
        for one in parameters
    ]
    shown = str(signature.replace(parameters=words, return_annotation=signature.empty))
    # Sphinx spells every other default, such as a class.
    if "=<" in shown.replace(" ", ""):
        return None
    return shown, result if isinstance(result, str) and not inspect.isclass(found) else ""


class _Words:
    """Words that a signature shows without quotes."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words
