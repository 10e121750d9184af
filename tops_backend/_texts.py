"""TopsRuntime's codes in words: its own texts mostly repeat the names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from tops_backend._library import header

_PREFIX = "topsError"


def name_of(code: int) -> str:
    """Return the name of a code in abi.h; the first name if the code has two."""
    return _names().get(code, "unknown")


def words_of(name: str) -> str:
    """Return `invalid device pointer` for `topsErrorInvalidDevicePointer`."""
    if not name.startswith(_PREFIX):
        return "a code this runtime does not define"
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name.removeprefix(_PREFIX))
    return " ".join(word if word.isupper() else word.lower() for word in words)


@cache
def _names() -> Mapping[int, str]:
    found: dict[int, str] = {}
    for name, code in header().constants.items():
        if name.startswith(_PREFIX):
            found.setdefault(code, name)
    return found
