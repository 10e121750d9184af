"""Codes of the HSA runtime and of libuhal_hsa, and their exceptions.

The only table of codes of this backend.

Names and meanings come from `hsa_status_t` in the "HSA Runtime Programmer's Reference Manual" and
from AMD's extensions to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)

# Other codes become a plain DeviceError.
CLASS_OF: dict[str, type[DeviceError]] = {
    # Errors that the interface should have prevented.
    "HSA_STATUS_ERROR_INVALID_ARGUMENT": ArgumentValueError,
    "HSA_STATUS_ERROR_INVALID_INDEX": ArgumentValueError,
    "HSA_STATUS_ERROR_OUT_OF_REGISTERS": ArgumentValueError,
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": OutOfMemoryError,
    # The image is damaged, or for another device.
    "HSA_STATUS_ERROR_INVALID_CODE_OBJECT": InvalidImageError,
    "HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS": InvalidImageError,
    "HSA_STATUS_ERROR_INVALID_ISA": InvalidImageError,
    "HSA_STATUS_ERROR_INVALID_ISA_NAME": InvalidImageError,
    "HSA_STATUS_ERROR_INVALID_FILE": InvalidImageError,
    "HSA_STATUS_ERROR_VARIABLE_UNDEFINED": InvalidImageError,
    # The handle was destroyed, never made, or belongs to another device. Unknown memory counts,
    # too.
    "HSA_STATUS_ERROR_INVALID_AGENT": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_ALLOCATION": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_MEMORY_POOL": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_SIGNAL": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_QUEUE": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_EXECUTABLE": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER": InvalidHandleError,
    "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME": NotFoundError,
    # This device, runtime or state cannot do it.
    "HSA_STATUS_ERROR_NOT_SUPPORTED": NotSupportedError,
    "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION": NotSupportedError,
}

# Status that libuhal_hsa returns for a lost device. Every later call on it returns the same status.
STICKY_PREFIX = "UHAL_HSA_LOST_"

LOST_TEXT: dict[str, str] = {
    "UHAL_HSA_LOST_COPY": "an asynchronous copy failed",
    "UHAL_HSA_LOST_PEER": "work of the device waits for another device, and that is lost",
    "UHAL_HSA_LOST_DEADLINE": "the device did nothing for as long as UHAL_ROCM_DEADLINE allows",
}
"""Meanings of codes that uhal defines, not the runtime."""

CAPTURE_TEXT: dict[str, str] = {
    "UHAL_HSA_ILLEGAL_STATE": "the stream is not in a state for this",
    "UHAL_HSA_CAPTURE_UNSUPPORTED": "it cannot be captured",
    "UHAL_HSA_CAPTURE_INVALIDATED": "the capture was spoilt by a mistake before",
    "UHAL_HSA_CAPTURE_MERGE": "it would join two captures",
    "UHAL_HSA_CAPTURE_UNMATCHED": "the capture did not begin on this stream",
    "UHAL_HSA_CAPTURE_UNJOINED": "the capture has work that its stream does not wait for",
    "UHAL_HSA_CAPTURE_ISOLATION": "the capture would depend on work outside of it",
    "UHAL_HSA_CAPTURED_EVENT": "the event was recorded in a capture",
}
"""Codes of libuhal_hsa's own about captures."""

_STATUS_PREFIXES = ("HSA_STATUS_ERROR", "HSA_STATUS_INFO", "HSA_STATUS_CU")
_RESTART = "Start a new process: the device's memory is lost"

ADVICE: dict[str, str] = {
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": (
        "Device.memory_info() shows free memory, Device.empty_cache() returns the pool's unused "
        "memory; rocm-smi shows other processes"
    ),
    "HSA_STATUS_ERROR_NOT_INITIALIZED": (
        "A process that was forked after ROCm was initialised cannot use it: start workers with "
        "the spawn method"
    ),
    "HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS": "Compile for this device",
    "HSA_STATUS_ERROR_INVALID_ISA": "Compile for this device",
    "HSA_STATUS_ERROR_OUT_OF_REGISTERS": "Launch a smaller block",
    "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME": (
        "Is the name spelled as in the source? The runtime finds the global symbols of .symtab, a "
        "kernel as NAME.kd: --strip-all removes them, hidden visibility makes them local"
    ),
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION": _RESTART,
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION": f"Is the image for this device? {_RESTART}",
    "HSA_STATUS_ERROR_MEMORY_FAULT": _RESTART,
    "HSA_STATUS_ERROR_EXCEPTION": f"dmesg may say more; look for lines with amdgpu. {_RESTART}",
    "HSA_STATUS_ERROR_FATAL": _RESTART,
    "UHAL_HSA_LOST_COPY": _RESTART,
    "UHAL_HSA_LOST_DEADLINE": _RESTART,
    "UHAL_HSA_LOST_PEER": _RESTART,
}


def status_name(constants: Mapping[str, int], code: int) -> str:
    """Return the name abi.h has for a status, or the number."""
    names = (name for name, value in constants.items() if value == code)
    return next((name for name in names if name.startswith(_STATUS_PREFIXES)), f"{code:#x}")
