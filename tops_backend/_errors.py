"""Codes of TopsRuntime and the exceptions they become. The only table of codes of this backend.

Names and numbers come from `topsError_t` in the vendor's header. If a number has two names, the
first is used.
"""

from __future__ import annotations

from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)

MISSING_FUNCTION = -1
"""Our code for a call of a slot whose function the library lacks."""

MISSING_NAME = "UHAL_TOPS_FUNCTION_MISSING"
MISSING_TEXT = "this runtime library has no such function"

# Other codes become a plain DeviceError.
CLASS_OF: dict[str, type[DeviceError]] = {
    MISSING_NAME: NotSupportedError,
    # Errors that the interface should have prevented.
    "topsErrorInvalidValue": ArgumentValueError,
    "topsErrorInvalidConfiguration": ArgumentValueError,
    "topsErrorLaunchOutOfResources": ArgumentValueError,
    "topsErrorCooperativeLaunchTooLarge": ArgumentValueError,
    "topsErrorOutOfMemory": OutOfMemoryError,
    "topsErrorRuntimeMemory": OutOfMemoryError,
    # The image is damaged, or for another device.
    "topsErrorInvalidImage": InvalidImageError,
    "topsErrorNoBinaryForGcu": InvalidImageError,
    "topsErrorInvalidKernelFile": InvalidImageError,
    "topsErrorInvalidSource": InvalidImageError,
    "topsErrorSharedObjectSymbolNotFound": InvalidImageError,
    "topsErrorSharedObjectInitFailed": InvalidImageError,
    # Destroyed, never made, or of another device.
    "topsErrorInvalidHandle": InvalidHandleError,
    "topsErrorInvalidContext": InvalidHandleError,
    "topsErrorContextIsDestroyed": InvalidHandleError,
    "topsErrorInvalidDevicePointer": InvalidHandleError,
    "topsErrorInvalidDeviceFunction": InvalidHandleError,
    "topsErrorNotFound": NotFoundError,
    "topsErrorInvalidSymbol": NotFoundError,
    # This device, library or state does not support the call.
    "topsErrorNotSupported": NotSupportedError,
    "topsErrorInsufficientDriver": NotSupportedError,
    "topsErrorPeerAccessUnsupported": NotSupportedError,
    "topsErrorUnsupportedLimit": NotSupportedError,
    "topsErrorStreamCaptureUnsupported": NotSupportedError,
    "topsErrorStreamCaptureImplicit": NotSupportedError,
}

_RESTART = "Start a new process: the device's memory is lost"

ADVICE: dict[str, str] = {
    MISSING_NAME: "Update TopsRider, which TopsRuntime is part of",
    "topsErrorOutOfMemory": (
        "Device.memory_info() shows free memory, Device.empty_cache() returns the pool's unused "
        "memory; efsmi shows other processes"
    ),
    "topsErrorNotInitialized": (
        "A process that was forked after TopsRuntime was initialised cannot use it: start workers "
        "with the spawn method"
    ),
    "topsErrorDeinitialized": "The process is exiting and the runtime has shut down",
    "topsErrorInsufficientDriver": "Update the GCU's driver: efsmi shows its version",
    "topsErrorNoDevice": (
        "efsmi lists the driver's devices; is TOPS_VISIBLE_DEVICES empty, or /dev/gcu0 not passed "
        "into the container?"
    ),
    "topsErrorInvalidDevice": "TOPS_VISIBLE_DEVICES renumbers the devices",
    "topsErrorNoBinaryForGcu": "Compile for this device: topscc -arch=gcu300 for an S60",
    "topsErrorInvalidDevicePointer": (
        "A pointer is good on the device that was current when it was allocated, and there only"
    ),
    "topsErrorInvalidHandle": "Is the object closed, or of another device?",
    "topsErrorECCNotCorrectable": f"A memory error of the hardware: efsmi tells more. {_RESTART}",
    "topsErrorIllegalAddress": f"The kernel left the memory it was given. {_RESTART}",
    "topsErrorLaunchFailure": f"The kernel failed while it ran. {_RESTART}",
    "topsErrorLaunchTimeOut": f"The kernel ran for too long. {_RESTART}",
    "topsErrorAssert": f"The kernel printed the assertion. {_RESTART}",
    "topsErrorLaunchOutOfResources": (
        "A block is the SIPs of one cluster and its shared memory the cluster's L2: launch a "
        "smaller one"
    ),
    "topsErrorCooperativeLaunchTooLarge": (
        "All blocks of a cooperative launch run at once: launch no more than there are clusters"
    ),
    "topsErrorHostMemoryAlreadyRegistered": "The memory is pinned already",
    "topsErrorOperatingSystem": "dmesg may show the refusal of the operating system",
}

STICKY = (
    # No document says which errors are sticky. After these codes, no result of the device is
    # reliable.
    "topsErrorECCNotCorrectable",
    "topsErrorIllegalAddress",
    "topsErrorLaunchTimeOut",
    "topsErrorContextIsDestroyed",
    "topsErrorAssert",
    "topsErrorLaunchFailure",
)
"""Codes after which the device is lost."""
