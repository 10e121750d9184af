"""Creations of tensors, which `uhal._lane` repeats without Python.

A creation function names one of these functions, with its own parameters except `device` and
`stream`. `None` stands for tensors that only the function itself makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ubridge.core.layout import Layout
from ubridge.core.promotion import checked_number, storage_of
from ubridge.device.executor import DeviceExecutor
from ubridge.device.tensor_data import make
from ubridge.ops.engine import MOVED_AS, Plan, filled, plan_copy
from ubridge.ops.remembering import remembered_creation
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer, DType, LaunchSequence, as_dtype
from uhal.dtypes import DTypeLike, f32
from uhal.frameworks import Creation

KEPT_BYTES = 8192
"""Size of the largest arrays of the host that a device keeps for repeated calls."""

Function = TypeVar("Function", bound=Callable[..., Any])


def repeated(
    asks: Callable[..., Creation | None], *, of_arrays: bool = False
) -> Callable[[Function], Function]:
    """Let `uhal._lane` repeat calls of a function that makes tensors, perhaps from arrays."""
    return remembered_creation(DeviceTensor, asks, of_arrays)


def undefined(
    executor: DeviceExecutor, shape: int | Iterable[int], dtype: DTypeLike = f32
) -> Creation:
    """Undefined elements, of `empty`."""
    layout, element = Layout.contiguous(shape), as_dtype(dtype)
    return _creation(executor, layout, element)


def of_zeros(
    executor: DeviceExecutor, shape: int | Iterable[int], dtype: DTypeLike = f32
) -> Creation:
    """Zeros, of `zeros`."""
    layout, element = Layout.contiguous(shape), as_dtype(dtype)
    return _creation(executor, layout, element, zeros=True)


def of_number(
    executor: DeviceExecutor, shape: int | Iterable[int], value: Any, dtype: DTypeLike = f32
) -> Creation | None:
    """One number in each element, of `full`."""
    layout, element = Layout.contiguous(shape), as_dtype(dtype)
    number = checked_number("full", element, value)
    if element.name in MOVED_AS or not layout.size:
        return None
    like = make(DeviceTensor, None, layout, element, executor)
    return _launched(executor, filled(like, element, layout.shape, number), ())


def of_ones(
    executor: DeviceExecutor, shape: int | Iterable[int], dtype: DTypeLike = f32
) -> Creation | None:
    """Ones, of `ones`."""
    return of_number(executor, shape, 1, dtype)


def copied(executor: DeviceExecutor, values: npt.NDArray[Any]) -> Creation | None:
    """A copy of an array, which the device keeps; `None` for large arrays."""
    element = as_dtype(values.dtype)
    if element.name in MOVED_AS or not 0 < values.nbytes <= KEPT_BYTES:
        return None
    kept = DeviceTensor.from_numpy(values, device=executor.device)
    return _launched(executor, plan_copy(kept), (kept._buffer,))


def _launched(
    executor: DeviceExecutor, plan: Plan, arguments: tuple[DeviceBuffer, ...]
) -> Creation | None:
    launch = executor.enqueuing(plan.question)
    if not isinstance(launch, LaunchSequence):
        return None
    return _creation(executor, plan._layout, plan._dtype, launch, (*arguments, *plan.numbers))


def _creation(
    executor: DeviceExecutor,
    layout: Layout,
    element: DType,
    launch: LaunchSequence | None = None,
    arguments: tuple[Any, ...] = (),
    **written: bool,
) -> Creation:
    return Creation(
        executor.device,
        layout.size,
        storage_of(element),
        launch,
        arguments,
        layout=layout,
        element=element,
        **written,
    )


def of_array(
    executor: DeviceExecutor, values: Any, dtype: DTypeLike | None = None
) -> Creation | None:
    """A copy of each call's array; `None` where the elements have to be converted."""
    if values.dtype == np.bool_:
        return None
    element = as_dtype(values.dtype)
    if dtype is not None and as_dtype(dtype) is not element:
        return None
    return _creation(executor, Layout.contiguous(values.shape), element, copies=True)


def like_of(creation: Callable[..., Creation | None]) -> Callable[..., Creation | None]:
    """A creation in another tensor's shape and dtype."""

    def asks(executor: DeviceExecutor, x: DeviceTensor, dtype: DTypeLike | None = None) -> Any:
        return creation(executor, x.shape, dtype=x.dtype if dtype is None else dtype)

    return asks


def of_number_like(
    executor: DeviceExecutor, x: DeviceTensor, value: Any, dtype: DTypeLike | None = None
) -> Creation | None:
    """One number in each element, of `full_like`."""
    return of_number(executor, x.shape, value, x.dtype if dtype is None else dtype)
