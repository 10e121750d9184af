"""Codes of the host runtime and the exceptions they become: this backend's only table."""

from __future__ import annotations

from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    NoDeviceError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)

# Names as in abi.h; a code that is not here is a plain DeviceError.
CLASS_OF: dict[str, type[DeviceError]] = {
    # Sizes and geometry that the runtime refuses; the interface should refuse them first.
    "UHAL_HOST_ERROR_INVALID_VALUE": ArgumentValueError,
    "UHAL_HOST_ERROR_LAUNCH_OUT_OF_RESOURCES": ArgumentValueError,
    "UHAL_HOST_ERROR_OUT_OF_MEMORY": OutOfMemoryError,
    "UHAL_HOST_ERROR_NO_DEVICE": NoDeviceError,
    "UHAL_HOST_ERROR_INVALID_DEVICE": NoDeviceError,
    # The image is no kernel library, is for another CPU, or is refused by the system's loader.
    "UHAL_HOST_ERROR_INVALID_IMAGE": InvalidImageError,
    "UHAL_HOST_ERROR_NO_BINARY_FOR_CPU": InvalidImageError,
    "UHAL_HOST_ERROR_SHARED_OBJECT_INIT_FAILED": InvalidImageError,
    "UHAL_HOST_ERROR_INVALID_CONTEXT": InvalidHandleError,
    "UHAL_HOST_ERROR_INVALID_HANDLE": InvalidHandleError,
    "UHAL_HOST_ERROR_NOT_FOUND": NotFoundError,
    "UHAL_HOST_ERROR_NOT_SUPPORTED": NotSupportedError,
    # Calls that a stream cannot record.
    "UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED": NotSupportedError,
}

ADVICE: dict[str, str] = {
    "UHAL_HOST_ERROR_INVALID_IMAGE": "Build it with c++ $(python -m uhal cflags)",
    "UHAL_HOST_ERROR_NO_BINARY_FOR_CPU": "Build it on this machine, without -march",
    "UHAL_HOST_ERROR_LAUNCH_FAILED": "Start a new process: the device's memory is lost",
    "UHAL_HOST_ERROR_OUT_OF_MEMORY": "Device memory is the machine's memory here",
}

LOST = "UHAL_HOST_ERROR_LAUNCH_FAILED"
"""The error text ends with the failed kernel's message, whichever call reports the error."""

# After these codes, every later call on the device returns the same code.
STICKY = (LOST,)

# Failures with details, which the runtime keeps on the failing thread.
DETAILED = frozenset(
    (
        "UHAL_HOST_ERROR_INVALID_IMAGE",
        "UHAL_HOST_ERROR_NO_BINARY_FOR_CPU",
        "UHAL_HOST_ERROR_SHARED_OBJECT_INIT_FAILED",
        "UHAL_HOST_ERROR_OPERATING_SYSTEM",
        "UHAL_HOST_ERROR_ILLEGAL_STATE",
        "UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "UHAL_HOST_ERROR_STREAM_CAPTURE_INVALIDATED",
        "UHAL_HOST_ERROR_STREAM_CAPTURE_MERGE",
        "UHAL_HOST_ERROR_STREAM_CAPTURE_UNMATCHED",
        "UHAL_HOST_ERROR_STREAM_CAPTURE_UNJOINED",
        "UHAL_HOST_ERROR_STREAM_CAPTURE_ISOLATION",
        "UHAL_HOST_ERROR_CAPTURED_EVENT",
    )
)
