"""Dtypes by the standard's names, their kinds and limits, and the namespace's answers."""

from __future__ import annotations

import builtins
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ubridge.core.fits import require
from ubridge.core.promotion import promoted, with_number
from ubridge.device.executor import DeviceExecutor
from ubridge.ops.results import require_tensors
from ubridge.tensor import DeviceTensor
from uhal import Device, DType, as_dtype
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, bool_, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from uhal.errors import ArgumentTypeError

bool = bool_
int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
float32, float64 = f32, f64

_KINDS = MappingProxyType(
    {
        "bool": (bool_,),
        "signed integer": (i8, i16, i32, i64),
        "unsigned integer": (u8, u16, u32, u64),
        "integral": (i8, i16, i32, i64, u8, u16, u32, u64),
        "real floating": (f32, f64),
        "complex floating": (),
        "numeric": (i8, i16, i32, i64, u8, u16, u32, u64, f32, f64),
    }
)
"""Kinds of dtypes by the standard's names; f16, bf16 and f8e4m3 are not in the standard."""


class FloatInfo(NamedTuple):
    """Limits of a floating dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(given: Any) -> DType:
    return given.dtype if isinstance(given, DeviceTensor) else as_dtype(given)


def finfo(type: DTypeLike | DeviceTensor, /) -> FloatInfo:
    """Return the limits of a floating dtype."""
    dtype = _dtype_of(type)
    if dtype not in (f32, f64):
        raise ArgumentTypeError(f"finfo: expected f32 or f64, got {dtype}")
    found = np.finfo(dtype.dtype)
    return FloatInfo(
        8 * dtype.itemsize,
        float(found.eps),
        float(found.max),
        float(found.min),
        float(found.smallest_normal),
        dtype,
    )


def iinfo(type: DTypeLike | DeviceTensor, /) -> IntegerInfo:
    """Return the limits of an integer dtype."""
    dtype = _dtype_of(type)
    if dtype.max is None or dtype.min is None or dtype is bool_:
        raise ArgumentTypeError(f"iinfo: expected an integer dtype, got {dtype}")
    return IntegerInfo(8 * dtype.itemsize, dtype.max, dtype.min, dtype)


def isdtype(dtype: DTypeLike, kind: Any) -> builtins.bool:
    """Return whether a dtype is of a kind, given by name, as a dtype, or as a tuple of both."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return as_dtype(dtype) in _KINDS[kind]
    return as_dtype(dtype) is as_dtype(kind)


def can_cast(from_: DTypeLike | DeviceTensor, to: DTypeLike, /) -> builtins.bool:
    """Return whether promotion converts a dtype to another of its kind."""
    given, target = _dtype_of(from_), as_dtype(to)
    are_whole = {given.kind, target.kind} <= {"int", "uint"}
    if given.kind != target.kind and not are_whole:
        return False
    try:
        return promoted("can_cast", given, target) is target
    except ArgumentTypeError:
        return False


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the common dtype of tensors, dtypes and numbers."""
    numbers = [one for one in arrays_and_dtypes if isinstance(one, (int, float))]
    dtypes = [_dtype_of(one) for one in arrays_and_dtypes if not isinstance(one, (int, float))]
    require(dtypes, "result_type: expected at least one tensor or dtype")
    found = dtypes[0]
    for one in dtypes[1:]:
        found = promoted("result_type", found, one)
    for number in numbers:
        found = with_number("result_type", found, number)
    return found


def astype(
    x: DeviceTensor, dtype: DTypeLike, /, *, copy: builtins.bool = True, device: Any = None
) -> DeviceTensor:
    """Return the elements as another dtype, on another device if one is given."""
    require_tensors("astype", x)
    found = x.astype(dtype, copy)
    return found if device is None else found.to_device(device)


class NamespaceInfo:
    """Answers of the namespace about dtypes and devices."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities of the namespace."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Return the device of new tensors."""
        return DeviceExecutor.of(None).device

    def devices(self) -> list[Device]:
        """Return the open devices that tensors may be on."""
        return [self.default_device()]

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, DType]:
        """Return the dtypes of new tensors and of indices."""
        return {"real floating": f32, "integral": i64, "indexing": i64}

    def dtypes(self, *, device: DeviceLike | None = None, kind: Any = None) -> dict[str, DType]:
        """Return the dtypes of a kind by their names in this namespace."""
        names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64"
        found = {name: globals()[name] for name in names.split()}
        return {name: one for name, one in found.items() if kind is None or isdtype(one, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """Return the namespace's answers about dtypes and devices."""
    return NamespaceInfo()
