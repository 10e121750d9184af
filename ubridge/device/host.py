"""The host as a device, and the test for devices that share its memory."""

from __future__ import annotations

from uhal import Device, DeviceBuffer
from uhal.dtypes import u8

HOST = "host"
"""The backend of the CPU, for work that must run there. Other modules name no backend."""
_CPU = 1
"""`kDLCPU` of DLPack."""


def has_host_memory(device: Device) -> bool:
    """Return whether kernels of the device read memory of the host, such as a file's pages."""
    try:
        kind, _ = DeviceBuffer.uninitialized(0, u8, device=device).__dlpack_device__()
    except BufferError:
        return False
    return kind == _CPU
