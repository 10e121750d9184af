"""Names and types of the parameters of Ubridge's kernels, which their images leave unnamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from uhal.errors import ArgumentValueError
from uhal.images.topsfb import parse_type
from uhal.signature import POINTER_BYTES, Parameter, Signature, merge, with_natural_offsets

_FILE = Path(__file__).resolve().parent / "ubridge_entries.json"
_SOURCE = "ubridge"


@cache
def families() -> Mapping[str, tuple[str, ...]]:
    """Return the entries of every module of Ubridge, in its order."""
    return {
        family: tuple(entry["name"] for entry in described["entries"])
        for family, described in _table().items()
    }


@cache
def signatures() -> Mapping[str, Signature]:
    """Return the signature of every entry of Ubridge, by the entry's name."""
    return {
        entry["name"]: _signature(entry["name"], entry["params"])
        for described in _table().values()
        for entry in described["entries"]
    }


def named(image: Mapping[str, Signature]) -> dict[str, Signature]:
    """Add Ubridge's names to an image's signatures of its kernels.

    A kernel of the same name with other parameters keeps the image's signature.
    """
    found = dict(image)
    for name, reported in image.items():
        declared = signatures().get(name)
        if declared is None:
            continue
        try:
            both = merge(reported, declared)
        except ArgumentValueError:
            continue
        if both is not None:
            found[name] = both
    return found


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def _signature(entry: str, parameters: list[dict[str, str]]) -> Signature:
    placed = with_natural_offsets(
        [_parameter(index, one["name"], one["type"]) for index, one in enumerate(parameters)]
    )
    return Signature(placed, entry)


def _parameter(index: int, name: str, spelling: str) -> Parameter:
    spelled = parse_type(spelling)
    if spelled.is_pointer:
        return Parameter(
            *(index, name, "pointer", POINTER_BYTES),
            dtype=spelled.dtype,
            is_const=spelled.is_const or None,
            source=_SOURCE,
        )
    assert spelled.dtype is not None, f"{spelling} is no type of a parameter"
    return Parameter(
        *(index, name, "scalar", spelled.dtype.itemsize), dtype=spelled.dtype, source=_SOURCE
    )
