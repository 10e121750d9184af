"""Codes of the CUDA driver and the exceptions they become. The only table of codes of this backend.

Names and meanings come from `CUresult` in the CUDA Driver API manual, "Data types used by CUDA
driver".
"""

from __future__ import annotations

from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    LibraryNotFoundError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)

MISSING_FUNCTION = -1
"""uhal's own code: a slot returns it if the driver lacks the function."""

MISSING_NAME = "UHAL_CUDA_FUNCTION_MISSING"
MISSING_TEXT = "this driver library has no such function"

# Other codes become a plain DeviceError.
CLASS_OF: dict[str, type[DeviceError]] = {
    MISSING_NAME: NotSupportedError,
    # Errors that the interface should have prevented.
    "CUDA_ERROR_INVALID_VALUE": ArgumentValueError,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": ArgumentValueError,
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": ArgumentValueError,
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": ArgumentValueError,
    "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION": ArgumentValueError,
    "CUDA_ERROR_OUT_OF_MEMORY": OutOfMemoryError,
    # The image is damaged, for another device, or for another driver.
    "CUDA_ERROR_INVALID_IMAGE": InvalidImageError,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": InvalidImageError,
    "CUDA_ERROR_INVALID_PTX": InvalidImageError,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": InvalidImageError,
    "CUDA_ERROR_INVALID_SOURCE": InvalidImageError,
    "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND": InvalidImageError,
    "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC": InvalidImageError,
    # Destroyed, never made, or of another device.
    "CUDA_ERROR_INVALID_CONTEXT": InvalidHandleError,
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": InvalidHandleError,
    "CUDA_ERROR_INVALID_HANDLE": InvalidHandleError,
    "CUDA_ERROR_INVALID_RESOURCE_TYPE": InvalidHandleError,
    "CUDA_ERROR_NOT_FOUND": NotFoundError,
    # This device, driver or state cannot do it.
    "CUDA_ERROR_NOT_SUPPORTED": NotSupportedError,
    "CUDA_ERROR_NOT_PERMITTED": NotSupportedError,
    "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER": NotSupportedError,
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": NotSupportedError,
    "CUDA_ERROR_JIT_COMPILATION_DISABLED": NotSupportedError,
    "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": NotSupportedError,
    "CUDA_ERROR_UNSUPPORTED_LIMIT": NotSupportedError,
    "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY": NotSupportedError,
    "CUDA_ERROR_CDP_NOT_SUPPORTED": NotSupportedError,
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": NotSupportedError,
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": NotSupportedError,
    "CUDA_ERROR_STUB_LIBRARY": LibraryNotFoundError,
}

_RESTART = "Start a new process: the device's memory is lost"
_WAIT_FOR_DRIVER = "Run nvidia-smi: the driver's own services have to be up first"

ADVICE: dict[str, str] = {
    MISSING_NAME: "Update the NVIDIA driver",
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "Device.memory_info() shows free memory, Device.empty_cache() returns the pool's unused "
        "memory; nvidia-smi shows other processes"
    ),
    "CUDA_ERROR_NOT_INITIALIZED": (
        "A process that was forked after CUDA was initialised cannot use it: start workers with "
        "the spawn method"
    ),
    "CUDA_ERROR_DEINITIALIZED": "The process is exiting and the driver has shut down",
    "CUDA_ERROR_STUB_LIBRARY": (
        "This is the toolkit's stub for linking; install the NVIDIA driver, or take the stubs "
        "folder out of LD_LIBRARY_PATH"
    ),
    "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER": "Update the NVIDIA driver",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": (
        "Another process has the device to itself: nvidia-smi shows its compute mode"
    ),
    "CUDA_ERROR_NO_DEVICE": (
        "nvidia-smi lists the driver's devices; is CUDA_VISIBLE_DEVICES empty, or the device not "
        "passed into the container?"
    ),
    "CUDA_ERROR_INVALID_DEVICE": "CUDA_VISIBLE_DEVICES renumbers the devices",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "Compile for this device, or ship PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        "Update the NVIDIA driver, or compile with an older toolkit"
    ),
    "CUDA_ERROR_JIT_COMPILATION_DISABLED": (
        "CUDA_DISABLE_PTX_JIT is set: unset it, or ship a binary for this device"
    ),
    "CUDA_ERROR_ECC_UNCORRECTABLE": (
        "A memory error of the hardware: nvidia-smi -q -d ECC tells more"
    ),
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": "An error of the link: nvidia-smi nvlink -e tells more",
    "CUDA_ERROR_OPERATING_SYSTEM": "dmesg may show the refusal of the operating system",
    "CUDA_ERROR_INVALID_HANDLE": "Is the object closed, or of another device?",
    "CUDA_ERROR_ILLEGAL_ADDRESS": _RESTART,
    "CUDA_ERROR_MISALIGNED_ADDRESS": _RESTART,
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": _RESTART,
    "CUDA_ERROR_LAUNCH_FAILED": _RESTART,
    "CUDA_ERROR_HARDWARE_STACK_ERROR": f"Deep recursion overflows the stack. {_RESTART}",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": f"Is the image for this device? {_RESTART}",
    "CUDA_ERROR_INVALID_PC": _RESTART,
    "CUDA_ERROR_ASSERT": f"The kernel printed the assertion to stderr. {_RESTART}",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": f"The kernel must free its tensor memory. {_RESTART}",
    "CUDA_ERROR_CONTAINED": _RESTART,
    "CUDA_ERROR_EXTERNAL_DEVICE": _RESTART,
    "CUDA_ERROR_LAUNCH_TIMEOUT": _RESTART,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "The kernel needs too many registers or too much shared memory for this block: launch a "
        "smaller one"
    ),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": (
        "All blocks of a cooperative launch run at once: Function.max_active_blocks() times the "
        "device's processors is the most"
    ),
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": "The memory is pinned already",
    "CUDA_ERROR_SYSTEM_NOT_READY": _WAIT_FOR_DRIVER,
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "libcuda and the kernel module are of different versions: restart after a driver update"
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "The compatibility libcuda is for data-centre devices: take it out of LD_LIBRARY_PATH"
    ),
    "CUDA_ERROR_MPS_CONNECTION_FAILED": "Is the MPS server running?",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": "Capture on a stream made for it",
    "CUDA_ERROR_UNKNOWN": "dmesg may say more; look for lines with NVRM and Xid",
}

SEARCH = {
    "CUDA_ERROR_INVALID_PTX": "Compile it with ptxas, which explains the error",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": (
        "libnvidia-ptxjitcompiler.so.1 is part of the driver: in a container, ask for the compute "
        "capability of the driver (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
    ),
    "CUDA_ERROR_ILLEGAL_ADDRESS": "compute-sanitizer finds the access",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "compute-sanitizer finds the access",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "compute-sanitizer finds the access",
    "CUDA_ERROR_LAUNCH_FAILED": "compute-sanitizer finds the cause",
    "CUDA_ERROR_INVALID_PC": "compute-sanitizer finds the cause",
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        "The device also drives a display, which limits how long a kernel may run"
    ),
}
"""Advice on where to look for a cause that the driver's text does not name."""


def advice_for(name: str, text: str) -> str:
    """Advice for a code, given the driver's text for it.

    NVIDIA's driver has one sentence for each code. A text that ends with details in parentheses
    names the cause of this failure, so advice on where to look would mislead.
    """
    parts = [ADVICE.get(name, "")]
    if not text.endswith(")"):
        parts.insert(0, SEARCH.get(name, ""))
    return ". ".join(part for part in parts if part)


STICKY = (
    # The manual: "any further CUDA work will return the same error".
    "CUDA_ERROR_CONTAINED",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    "CUDA_ERROR_EXTERNAL_DEVICE",
    # "The context cannot be used anymore, and must be destroyed".
    "CUDA_ERROR_ASSERT",
    # The manual does not say so, but nothing on the device can be relied on after these errors.
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_MPS_CLIENT_TERMINATED",
)
"""After these codes, every later call on the device returns the same code."""
