"""Kernels that pack their operands for vectors: which devices have them."""

from __future__ import annotations

from ubridge.device.images import has_module
from uhal import Device, DType

_DTYPES = ("bf16", "f16", "f32")


def packs(module: str, dtype: DType, device: Device) -> bool:
    """Return whether the device has such a module and the dtype is supported; only CPUs have it."""
    return dtype.name in _DTYPES and has_module(module, device)


__all__ = ["packs"]
