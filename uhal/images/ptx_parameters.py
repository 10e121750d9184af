"""Parameters of a kernel in PTX: their offsets, and facts from their types and uses."""

from __future__ import annotations

import re
from dataclasses import replace

from uhal.dtypes import as_dtype
from uhal.images.ptx_addresses import AddressUse
from uhal.images.ptx_text import fail
from uhal.signature import POINTER_BYTES, Parameter, ParameterKind

MAX_PARAMETERS = 4096
MAX_PARAMETER_BYTES = 32764
"""Bytes of a kernel's parameters: the most any PTX version allows."""
MAX_DECLARATION = 4096
"""Characters of one declared variable; names take most of them."""

_PARAMETER = re.compile(
    r"\s*\.param\s+(?:\.align\s+(\d{1,3})\s+)?\.(\w+)\s+"
    r"(\.ptr\s*(?:\.(\w+)\s*)?(?:\.align\s+\d{1,4}\s*)?)?"
    r"([\w$%]+)(?:\s*\[\s*(\d{1,6})\s*\])?$"
)
_WIDTH = re.compile(r"[a-z]+(8|16|32|64|128)$")

_FLOATS = {"f16": "f16", "f32": "f32", "f64": "f64"}
_UNTYPED = ("b16", "b32", "b64")
_BY_ITS_USE = "PTX by its use"
_OPAQUE = ("texref", "samplerref", "surfref")


def read_parameters(
    entry: str, text: str
) -> tuple[list[Parameter], dict[str, int], dict[str, int]]:
    """Parse the text between the parentheses after an entry's name.

    Returns all parameters, and by name the possible pointers and the untyped parameters.
    """
    parts = text.split(",") if text.strip() else []
    if len(parts) > MAX_PARAMETERS:
        fail(f"{entry!r} has {len(parts)} parameters")
    parameters: list[Parameter] = []
    names: dict[str, int] = {}
    untyped: dict[str, int] = {}
    end = 0
    for index, part in enumerate(map(str.strip, parts)):
        found = _PARAMETER.match(part) if len(part) <= MAX_DECLARATION else None
        if found is None:
            fail(f"parameter {index} of {entry!r} cannot be read: {part[:80]!r}")
        width = width_of(found[2])
        size = width * int(found[6]) if found[6] is not None else width
        alignment = int(found[1] or width)
        if not size or not is_power_of_two(alignment):
            fail(f"parameter {index} of {entry!r} cannot be: {part[:80]!r}")
        offset = aligned(end, alignment)
        end = offset + size
        if end > MAX_PARAMETER_BYTES:
            fail(f"the parameters of {entry!r} take more than {MAX_PARAMETER_BYTES} bytes")
        kind, dtype = _kind(found[2], size, is_array=found[6] is not None)
        if found[3] and size == 8 and found[4] not in ("shared", "local"):
            kind = "pointer"
        elif kind == "unknown" and size == 8 and found[6] is None:
            names[found[5]] = index
        if kind == "unknown" and found[2] in _UNTYPED and found[6] is None:
            untyped[found[5]] = index
        parameters.append(
            Parameter(
                index,
                kind=kind,
                size=size,
                offset=offset,
                dtype=None if dtype is None else as_dtype(dtype),
                is_integer=True if kind == "scalar" and dtype is None else None,
                source="PTX",
            )
        )
    return parameters, names, untyped


def _kind(type_name: str, size: int, *, is_array: bool) -> tuple[ParameterKind, str | None]:
    """Facts from a PTX type. The sign of an integer is unknown: compilers write `.u32`."""
    if is_array:
        # f16, bf16, f8 and a structure of one pointer are byte arrays too.
        return ("unknown" if size in (1, 2, 8) else "aggregate"), None
    if type_name in _FLOATS:
        return "scalar", _FLOATS[type_name]
    if type_name[0] in "us" and size < 8:
        return "scalar", None
    return "unknown", None


def with_use(parameter: Parameter, use: AddressUse | None, number: str) -> Parameter:
    """Return a parameter with the facts of its use as an address or a number.

    Arithmetic on 64-bit integers alone decides nothing, because code also computes addresses so.
    """
    if use == "pointer":
        return replace(parameter, kind="pointer", is_pointer=None, source=_BY_ITS_USE)
    dtype = as_dtype(number) if number not in ("", "integer") else None
    if dtype is not None and dtype.itemsize == parameter.size:
        return replace(parameter, kind="scalar", is_pointer=None, dtype=dtype, source=_BY_ITS_USE)
    if use == "integer" or (number == "integer" and parameter.size != POINTER_BYTES):
        return replace(
            parameter, kind="scalar", is_pointer=None, is_integer=True, source=_BY_ITS_USE
        )
    return parameter


def width_of(type_name: str) -> int:
    """Bytes of a PTX type."""
    if type_name in _OPAQUE:
        return 8
    found = _WIDTH.match(type_name)
    if found is None:
        fail(f"it uses the type .{type_name[:20]}, which is unknown")
    return int(found[1]) // 8


def is_power_of_two(number: int) -> bool:
    """Say whether a number of bytes is a valid alignment."""
    return number > 0 and not number & (number - 1)


def aligned(offset: int, alignment: int) -> int:
    """Return the next offset that is a multiple of `alignment`."""
    return -(-offset // alignment) * alignment
