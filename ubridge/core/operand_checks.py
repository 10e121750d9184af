"""Checks of operands: devices, dtypes, shapes, axes. Messages are in numpy's words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ubridge.core.layout import Layout, Shape, checked_int
from uhal import Device, DType, as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError


class Operand(Protocol):
    """Checked facts of a tensor: its dtype and its device."""

    @property
    def dtype(self) -> DType:
        """The element type."""

    @property
    def device(self) -> Device:
        """The device the memory is on."""

    @property
    def _executor(self) -> object:
        """Launcher for the device: one object per device."""


def require_one_device(name: str, x: Operand, *others: Operand) -> None:
    """Raise `InvalidHandleError` unless all tensors are on the device of the first."""
    for other in others:
        if other._executor is not x._executor:
            raise InvalidHandleError(
                f"{name}: expected operands on one device, got {x.device!r} and {other.device!r}"
            )


def require_one_kind(name: str, x: Operand, *others: Operand) -> None:
    """Raise unless all tensors have the dtype and the device of the first.

    `ArgumentTypeError` for another dtype, `InvalidHandleError` for another device.
    """
    for other in others:
        if other.dtype is not x.dtype:
            raise ArgumentTypeError(
                f"{name}: expected operands of one dtype, got {x.dtype} and {other.dtype}"
            )
    require_one_device(name, x, *others)


def axis_of(name: str, layout: Layout, axis: int) -> int:
    """Return an axis counted from the front; `ArgumentValueError` when there is none."""
    try:
        return layout.axis(axis)
    except (ArgumentTypeError, ArgumentValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def axes_of(name: str, layout: Layout, axis: int | Iterable[int] | None) -> tuple[int, ...]:
    """Return one axis or several, counted from the front; for None all of them.

    Raises `ArgumentTypeError` for values other than ints, and `ArgumentValueError` for a missing or
    repeated axis.
    """
    if axis is None:
        return tuple(range(layout.rank))
    given: Any = axis
    if hasattr(given, "__index__") or not isinstance(given, Iterable):
        return (axis_of(name, layout, given),)
    axes = tuple([axis_of(name, layout, one) for one in given])
    if len(set(axes)) != len(axes):
        raise ArgumentValueError(f"{name}: duplicate value in 'axis'")
    return axes


def whole_number(name: str, given: Any, least: int = 0) -> int:
    """Return an int, or anything with `__index__`, as an int; refuse bool and less than `least`.

    Raises `ArgumentTypeError` and `ArgumentValueError`.
    """
    if isinstance(given, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name}: expected an int, got {type(given).__name__}")
    number = checked_int(name, given)
    if not least <= number < 1 << 63:
        raise ArgumentValueError(f"{name}: expected {least} to 2**63 - 1, got {number}")
    return number


def require_number(name: str, given: Any) -> None:
    """Raise `ArgumentTypeError` for values other than Python's and numpy's numbers."""
    if not isinstance(given, (int, float, np.integer, np.floating, np.bool_)):
        raise ArgumentTypeError(f"{name}: expected a number, got {type(given).__name__}")


def element_of(name: str, dtype: Any) -> DType:
    """Return the element type that a dtype names; raises `ArgumentTypeError`."""
    try:
        return as_dtype(dtype)
    except TypeError as error:
        is_length = isinstance(dtype, int) and not isinstance(dtype, bool)
        advice = ". Write the lengths of a shape as one tuple, such as (2, 3)" if is_length else ""
        raise ArgumentTypeError(f"{name}: {error}{advice}") from None


def require_indices_of_u32(name: str, length: int) -> None:
    """Raise `ArgumentValueError` for an axis whose indices do not fit u32."""
    if length > 1 << 32:
        raise ArgumentValueError(
            f"{name}: expected at most 2**32 elements along the axis, whose indices are u32, got "
            f"{length}. Split the axis."
        )


def one_shape(name: str, first: Shape, *others: Shape) -> Shape:
    """Return the shape all broadcast to; `ArgumentValueError` when there is none."""
    try:
        return first.broadcast_with(*others)
    except ArgumentValueError as error:
        raise ArgumentValueError(f"{name}: {error}") from None
