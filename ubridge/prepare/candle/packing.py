"""Devices with kernels that pack their operands for vectors."""

from __future__ import annotations

from ubridge.device.images import has_module
from uhal import Device, DType

_DTYPES = ("bf16", "f16", "f32")


def packs(module: str, dtype: DType, device: Device) -> bool:
    """Return whether the device has a packing module, and the module supports the dtype."""
    return dtype.name in _DTYPES and has_module(module, device)
