"""OpenCL's codes and their exceptions. The only table of codes of this backend.

Names and meanings come from Khronos's "OpenCL API Specification".
"""

from __future__ import annotations

from functools import cache

from opencl_backend._library import header
from uhal.errors import (
    ArgumentTypeError,
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
    "CL_INVALID_VALUE": ArgumentValueError,
    "CL_INVALID_WORK_DIMENSION": ArgumentValueError,
    "CL_INVALID_WORK_GROUP_SIZE": ArgumentValueError,
    "CL_INVALID_WORK_ITEM_SIZE": ArgumentValueError,
    "CL_INVALID_GLOBAL_WORK_SIZE": ArgumentValueError,
    "CL_INVALID_BUFFER_SIZE": ArgumentValueError,
    "CL_MEM_COPY_OVERLAP": ArgumentValueError,
    "CL_INVALID_ARG_INDEX": ArgumentTypeError,
    "CL_INVALID_ARG_VALUE": ArgumentTypeError,
    "CL_INVALID_ARG_SIZE": ArgumentTypeError,
    "CL_INVALID_KERNEL_ARGS": ArgumentTypeError,
    # The device is out of memory, or the host is out of memory for the device's work.
    "CL_MEM_OBJECT_ALLOCATION_FAILURE": OutOfMemoryError,
    "CL_OUT_OF_RESOURCES": OutOfMemoryError,
    "CL_OUT_OF_HOST_MEMORY": OutOfMemoryError,
    # The image is damaged, or not for this device.
    "CL_BUILD_PROGRAM_FAILURE": InvalidImageError,
    "CL_COMPILE_PROGRAM_FAILURE": InvalidImageError,
    "CL_LINK_PROGRAM_FAILURE": InvalidImageError,
    "CL_INVALID_BINARY": InvalidImageError,
    "CL_INVALID_PROGRAM": InvalidImageError,
    "CL_INVALID_PROGRAM_EXECUTABLE": InvalidImageError,
    "CL_INVALID_KERNEL_NAME": NotFoundError,
    "CL_DEVICE_NOT_FOUND": NotFoundError,
    "CL_PLATFORM_NOT_FOUND_KHR": NotFoundError,
    # Destroyed, or never made.
    "CL_INVALID_PLATFORM": InvalidHandleError,
    "CL_INVALID_DEVICE": InvalidHandleError,
    "CL_INVALID_CONTEXT": InvalidHandleError,
    "CL_INVALID_COMMAND_QUEUE": InvalidHandleError,
    "CL_INVALID_KERNEL": InvalidHandleError,
    "CL_INVALID_EVENT": InvalidHandleError,
    "CL_INVALID_MEM_OBJECT": InvalidHandleError,
    # The device or the runtime lacks the operation, or did not enable it.
    "CL_INVALID_OPERATION": NotSupportedError,
    "CL_COMPILER_NOT_AVAILABLE": NotSupportedError,
    "CL_PROFILING_INFO_NOT_AVAILABLE": NotSupportedError,
    "CL_INVALID_QUEUE_PROPERTIES": NotSupportedError,
}

TEXT: dict[str, str] = {
    "CL_BUILD_PROGRAM_FAILURE": "the driver's compiler refused the program",
    "CL_INVALID_KERNEL_ARGS": "not every argument of the kernel was given",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE": "the device's memory is full",
    "CL_OUT_OF_RESOURCES": "the device has too little memory, or gave the command up",
    "CL_PLATFORM_NOT_FOUND_KHR": "no runtime is registered with the loader",
    "CL_PROFILING_INFO_NOT_AVAILABLE": "there is no time of this event",
}
"""Texts for codes with unclear names. OpenCL itself has no texts for its codes."""

ADVICE: dict[str, str] = {
    "CL_OUT_OF_RESOURCES": (
        "Device.memory_info() shows free memory, Device.empty_cache() returns the pool's unused "
        "memory"
    ),
    "CL_PROFILING_INFO_NOT_AVAILABLE": (
        "Record both events, and make them without EventFlags.DISABLE_TIMING"
    ),
    "CL_PLATFORM_NOT_FOUND_KHR": (
        "OCL_ICD_VENDORS names a runtime's library or a folder of .icd files"
    ),
}


@cache
def names() -> dict[int, str]:
    """Return the name of each code."""
    return {
        value: name
        for name, value in header().constants.items()
        if value < 0 and name.startswith("CL_")
    }


def status_name(code: int) -> str:
    """Return the name abi.h has for a code, or the number."""
    return names().get(code, str(code))


def text_of(name: str) -> str:
    """Return the text of a code, by default the words of its name."""
    return TEXT.get(name) or name.removeprefix("CL_").replace("_", " ").lower()
