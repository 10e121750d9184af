"""Checks of operands: devices, dtypes, shapes, axes. Messages are in numpy's words."""

from __future__ import annotations

from typing import Protocol

from ubridge.core.layout import Layout, Shape
from uhal import Device, DType
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError


class Operand(Protocol):
    """What is checked of a tensor: its dtype and where it is."""

    @property
    def dtype(self) -> DType:
        """The element type."""

    @property
    def device(self) -> Device:
        """The device the memory is on."""

    @property
    def _executor(self) -> object:
        """What launches there: one object a device."""


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
    except ArgumentValueError as error:
        raise ArgumentValueError(f"{name}: {error}") from None


def one_shape(name: str, first: Shape, *others: Shape) -> Shape:
    """Return the shape all broadcast to; `ArgumentValueError` when there is none."""
    try:
        return first.broadcast_with(*others)
    except ArgumentValueError as error:
        raise ArgumentValueError(f"{name}: {error}") from None


__all__ = ["axis_of", "one_shape", "require_one_device", "require_one_kind"]
