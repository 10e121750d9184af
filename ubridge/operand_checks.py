"""What operations of several tensors refuse: other devices, other dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uhal.errors import ArgumentTypeError, InvalidHandleError

if TYPE_CHECKING:
    from ubridge.tensor import DeviceTensor


def require_one_device(name: str, x: DeviceTensor, *others: DeviceTensor) -> None:
    """Raise `InvalidHandleError` unless all tensors are on the device of the first."""
    for other in others:
        if other._executor is not x._executor:
            raise InvalidHandleError(
                f"{name}: expected operands on one device, got {x.device!r} and {other.device!r}"
            )


def require_one_kind(name: str, x: DeviceTensor, *others: DeviceTensor) -> None:
    """Raise unless all tensors have the dtype and the device of the first.

    `ArgumentTypeError` for another dtype, `InvalidHandleError` for another device.
    """
    for other in others:
        if other.dtype is not x.dtype:
            raise ArgumentTypeError(
                f"{name}: expected operands of one dtype, got {x.dtype} and {other.dtype}"
            )
    require_one_device(name, x, *others)


__all__ = ["require_one_device", "require_one_kind"]
