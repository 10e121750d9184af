"""numpy operations that tensors lack: refused with a message that names the alternative."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np

from ubridge.definitions.elementwise import (
    ABS,
    ACOS,
    ACOSH,
    ASIN,
    ASINH,
    ATAN,
    ATAN2,
    ATANH,
    BITWISE_LEFT_SHIFT,
    BITWISE_RIGHT_SHIFT,
    MOD,
    POW,
)
from ubridge.definitions.table import OPS
from ubridge.ops.strided import StridedTensor
from uhal.device import Device, as_device
from uhal.errors import ArgumentTypeError, NoDeviceError

_Made = TypeVar("_Made", bound=StridedTensor)
OURS = {
    "absolute": ABS.name,
    "arccos": ACOS.name,
    "arccosh": ACOSH.name,
    "arcsin": ASIN.name,
    "arcsinh": ASINH.name,
    "arctan": ATAN.name,
    "arctan2": ATAN2.name,
    "arctanh": ATANH.name,
    "fmod": MOD.name,
    "left_shift": BITWISE_LEFT_SHIFT.name,
    "power": POW.name,
    "right_shift": BITWISE_RIGHT_SHIFT.name,
}
"""Names of operations for ufuncs of numpy that have other names."""


def refuse_ufunc(ufunc: Any, method: str, inputs: Sequence[Any]) -> NoReturn:
    """Raise for `np.sin(tensor)` and for operators with an array on one side."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    ours = OURS.get(ufunc.__name__, ufunc.__name__)
    if any(isinstance(one, np.ndarray) for one in inputs):
        raise ArgumentTypeError(
            f"{ours}: expected two DeviceTensors, got a numpy array and a DeviceTensor; "
            "ubridge.asarray(array) copies the array to the device, tensor.to_numpy() the tensor "
            "to the host"
        )
    advice = f"np.{name}(x.to_numpy()) computes on the host"
    if ours in {*OPS, *_package().__all__} and method == "__call__":
        advice = f"ubridge.{ours}(x) computes on the device, {advice}"
    raise ArgumentTypeError(f"np.{name}: expected numpy arrays, got a DeviceTensor; {advice}")


def _package() -> ModuleType:
    return sys.modules[__name__.partition(".")[0]]


_ASKING = (np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj)
"""Functions of numpy that read no elements."""


def of_numpy(kind: type, function: Any, given: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """Return numpy's answer about a tensor's axes; raise for functions that compute.

    numpy would copy the tensors to the host and return an array.
    """
    if function in _ASKING:
        return function.__wrapped__(*given, **settings)
    path = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
    name, ours = function.__name__, _package()
    advice = f"{path}(x.to_numpy()) computes on the host"
    if name == "save":
        advice = "np.save(path, x.to_numpy()) and ubridge.save(path, {name: x}) write files"
    elif name in ours.__all__:
        advice = f"ubridge.{name}(x) computes on the device, {advice}"
    elif hasattr(kind, name):
        advice = f"x.{name} is of the device, {advice}"
    raise ArgumentTypeError(f"{path}: expected numpy arrays, got a DeviceTensor; {advice}")


def formatted(tensor: StridedTensor, specification: str) -> str:
    """Return the only element as `format` prints it; waits for it. `TypeError` for several."""
    if not specification:
        return str(tensor)
    if tensor.size != 1:
        raise ArgumentTypeError(
            f"format: expected a DeviceTensor of one element for {specification!r}, got shape "
            f"{tensor.shape}; format an element, as x[0], or print(x)"
        )
    return format(tensor.item(), specification)


def pickled(tensor: StridedTensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the pickled state: the elements on the host, and the device's name."""
    return _unpickled, (type(tensor), tensor.to_numpy(), name_of(tensor.device))


def _unpickled(kind: type[_Made], array: Any, device: str) -> _Made:
    return kind.from_numpy(array, device=device_named(device, "DeviceTensor"))


def name_of(device: Device) -> str:
    """Return the device's name in pickles."""
    return f"{device.backend}:{device.ordinal}"


def device_named(device: str, what: str) -> Device:
    """Return the device of a pickled object. Raises `NoDeviceError` if it does not exist here."""
    try:
        return as_device(device)
    except NoDeviceError as error:
        raise NoDeviceError(
            f"unpickling a {what}: it was on {device}, which is not here; before pickling take "
            f"its to_numpy(), or a copy on the host backend: {error}"
        ) from None
