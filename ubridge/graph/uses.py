"""What a call uses of its memory, and the checks all rules of calls are made of.

Sums and products are Python's integers, which never overflow.
"""

from __future__ import annotations

from math import prod
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import Op
from ubridge.graph.calls import Place, ScalarSlot
from uhal import DeviceBuffer, DType
from uhal.errors import ArgumentValueError

MOST = (1 << 63) - 1
"""Of a number that counts elements or bytes: kernels take them as 64 bits."""


class Use(NamedTuple):
    """How much of its memory a call touches through one of its places."""

    name: str
    place: Place | None
    elements: int
    steers: bool = False
    """Whether the elements say where others are, so that they must not change meanwhile."""


def require_kind(what: str, kind: Any, value: object) -> None:
    """Refuse what is not of the type that a method declares; a `Place` stands for a buffer."""
    if not _is_a(kind, value):
        expected = "a place" if kind is DeviceBuffer else getattr(kind, "__name__", kind)
        raise ArgumentValueError(f"{what}: expected {expected}, got {value!r:.80}")


def _is_a(kind: Any, value: object) -> bool:
    """Whether a value that was read from a file is of a type."""
    if kind is Any:
        return True
    if get_origin(kind) in (Union, UnionType):
        return any(_is_a(one, value) for one in get_args(kind))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if type(value) is not tuple:
            return False
        if parts[-1] is ...:
            return all(_is_a(parts[0], one) for one in value)
        return len(parts) == len(value) and all(map(_is_a, parts, value))
    if kind is DeviceBuffer:
        return isinstance(value, Place)
    if kind is float:
        return type(value) in (int, float) or isinstance(value, ScalarSlot)
    if kind is int:
        return type(value) is int and 0 <= value <= MOST
    if kind in (bool, str, NoneType):
        return type(value) is kind
    return kind in (Layout, Shape, Op, DType) and isinstance(value, kind)


def require_counts(what: str, *numbers: object) -> None:
    """Refuse what are not numbers that kernels can count with."""
    for one in numbers:
        if type(one) is not int or not 0 <= one <= MOST:
            raise ArgumentValueError(f"{what}: expected numbers in 0…2^63-1, got {one!r:.80}")


def require(holds: bool, what: str) -> None:
    """Raise `ArgumentValueError` with these words unless it holds."""
    if not holds:
        raise ArgumentValueError(what)


def some(what: str, *numbers: int) -> int:
    """Return the product of what there must be at least one of: kernels divide by such numbers."""
    require(min(numbers) >= 1, f"{what}: expected nothing empty, got {numbers}")
    require(prod(numbers) <= MOST, f"{what}: {numbers} are more than kernels can count")
    return prod(numbers)


def reach(what: str, layout: Layout) -> int:
    """Return the elements from a layout's first to its last; a place begins with the first."""
    some(what, *layout.shape, 1)
    require_counts(what, *layout.key)
    return layout.extent - layout.start_offset


def require_family(op: Op, *families: str) -> None:
    """Refuse an operation of another family."""
    require(
        op.family.name in families,
        f"{op.name}: expected an operation of the kind {' or '.join(families)}",
    )


def require_one_shape(what: str, *layouts: Layout) -> None:
    """Refuse operands of different shapes."""
    shapes = {layout.shape for layout in layouts}
    require(len(shapes) == 1, f"{what}: expected operands of one shape, got {shapes}")


__all__ = [
    "Use",
    "reach",
    "require",
    "require_counts",
    "require_family",
    "require_kind",
    "require_one_shape",
    "some",
]
