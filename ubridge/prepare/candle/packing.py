"""Kernels that pack their operands for vectors: which devices have them."""

from __future__ import annotations

from ubridge.device.images import load_module
from uhal import Device, DType
from uhal.errors import NotFoundError

_DTYPES = ("bf16", "f16", "f32")


def packs(module: str, dtype: DType, device: Device) -> bool:
    """Return whether the device has such a module and the dtype is supported; only CPUs have it."""
    if dtype.name not in _DTYPES:
        return False
    try:
        load_module(module, device=device)
    except NotFoundError:
        return False
    return True


__all__ = ["packs"]
