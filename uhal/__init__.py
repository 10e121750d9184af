"""One interface to every accelerator: devices, streams, memory, kernels and checked launches.

An import of `uhal` opens no driver library and starts no thread. `Api.quick_init()` finds a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uhal import _installation as _installation
from uhal import _tracebacks, dtypes, errors
from uhal._lane import (
    BoundLaunch,
    DeviceBuffer,
    DevicePointer,
    Event,
    Function,
    HostBuffer,
    LaunchSequence,
    Passed,
    Plan,
    PlanSlot,
    Stream,
    Tally,
    launch,
    set_recorder,
)
from uhal._version import __version__
from uhal.api import Api
from uhal.contract import BackendRecord, DeviceLimits
from uhal.device import Device
from uhal.diagnostics import diagnostics
from uhal.dtypes import DType, as_dtype
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    CaptureError,
    DeviceError,
    DeviceWarning,
    InvalidHandleError,
    InvalidImageError,
    LibraryNotFoundError,
    NoDeviceError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)
from uhal.flags import EventFlags, StreamFlags
from uhal.habits import refuse_call
from uhal.launch_config import LaunchConfig
from uhal.module import Module
from uhal.profiler import Profile, annotate, is_profiling, profile
from uhal.signature import Parameter, Signature
from uhal.timing import Timing, bench

__all__ = [
    "Api",
    "Device",
    "Stream",
    "StreamFlags",
    "Event",
    "EventFlags",
    "Module",
    "Function",
    "BoundLaunch",
    "Signature",
    "Parameter",
    "DeviceBuffer",
    "HostBuffer",
    "DevicePointer",
    "Plan",
    "PlanSlot",
    "LaunchConfig",
    "launch",
    "LaunchSequence",
    "Passed",
    "Tally",
    "set_recorder",
    "diagnostics",
    "profile",
    "Profile",
    "annotate",
    "is_profiling",
    "bench",
    "Timing",
    "dtypes",
    "DType",
    "as_dtype",
    "BackendRecord",
    "DeviceLimits",
    "errors",
    "DeviceError",
    "OutOfMemoryError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "ArgumentRangeError",
    "InvalidHandleError",
    "NotFoundError",
    "InvalidImageError",
    "LibraryNotFoundError",
    "NotSupportedError",
    "NoDeviceError",
    "CaptureError",
    "DeviceWarning",
    "__version__",
]

if not TYPE_CHECKING:  # a type checker would take every name for an attribute

    def __getattr__(name: str) -> object:
        """Refuse a missing name; a traceback adds a similar name."""
        import sys
        from importlib.util import find_spec

        from uhal.habits import OF_MODULE, OF_OTHERS

        advice = OF_MODULE.get(name, OF_OTHERS if name.islower() else "")
        if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
            advice = f"write import uhal.{name} first"
        raise AttributeError(
            f"module 'uhal' has no attribute {name!r}" + (f" ({advice})" if advice else ""),
            name=name,
            obj=sys.modules[__name__],
        )


refuse_call("uhal.device", "Write uhal.Device(ordinal, backend).")
refuse_call("uhal.module", "Write uhal.Module.from_file(path).")
_tracebacks.install_from_environment()
