"""The codes of libuhal_webgpu and the exceptions they become. No other table has these codes."""

from __future__ import annotations

from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidImageError,
    NotSupportedError,
    OutOfMemoryError,
)
from webgpu_backend._runtime import runtime_header

# Other codes become a plain DeviceError.
CLASS_OF: dict[str, type[DeviceError]] = {
    "UHAL_WG_OUT_OF_MEMORY": OutOfMemoryError,
    # Errors that the interface should have prevented.
    "UHAL_WG_INVALID_VALUE": ArgumentValueError,
    # naga, or the driver's compiler, refused a translated kernel.
    "UHAL_WG_INVALID_SHADER": InvalidImageError,
    # The device lacks the feature.
    "UHAL_WG_NO_TIMES": NotSupportedError,
    "UHAL_WG_BEYOND_BINDING": NotSupportedError,
    "UHAL_WG_NO_MAPPED_MEMORY": NotSupportedError,
}

TEXT: dict[str, str] = {
    "UHAL_WG_OUT_OF_MEMORY": "the device's memory is full",
    "UHAL_WG_INVALID_SHADER": "the translated kernel was refused",
    "UHAL_WG_VALIDATION": "wgpu refused a command",
    "UHAL_WG_INTERNAL": "wgpu or the driver failed",
    "UHAL_WG_DEVICE_LOST": "the device is lost",
    "UHAL_WG_NO_TIMES": "there is no time of this event",
    "UHAL_WG_BEYOND_BINDING": "a kernel cannot be given so much memory behind one pointer",
    "UHAL_WG_NO_MAPPED_MEMORY": "no page-locked memory begins at this address",
}
"""Meaning of a code for which wgpu gives no message."""

ADVICE: dict[str, str] = {
    "UHAL_WG_OUT_OF_MEMORY": (
        "Device.memory_stats() shows memory in use, Device.empty_cache() returns the pool's unused "
        "memory"
    ),
    "UHAL_WG_NO_TIMES": (
        "Record both events, make them without EventFlags.DISABLE_TIMING, and keep fewer than 4096"
    ),
    "UHAL_WG_BEYOND_BINDING": "Split the array over several buffers",
}


def code_name(code: int) -> str:
    """Return the name runtime.h has for a code, or the number."""
    names = {
        value: name
        for name, value in runtime_header().constants.items()
        if name in TEXT or name in CLASS_OF or name == "UHAL_WG_NOT_READY"
    }
    return names.get(code, str(code))
