"""Collects the arguments of the HSA runtime's iterating functions in lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uhal.abi import Library


def handles(
    library: Library, callback_type: str, iterate: Callable[[Any, Any], object]
) -> list[int]:
    """Return the handles that `iterate` passes to its callback, in order."""
    found: list[int] = []

    def visit(handle: Any, _: object) -> int:
        found.append(handle.handle)
        return 0

    iterate(library.header.ctype(callback_type)(visit), None)
    return found
