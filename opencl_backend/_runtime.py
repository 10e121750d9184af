"""libuhal_opencl, the native library over OpenCL: opening it, and its functions by slot.

It links no OpenCL. libuhal_opencl gets the addresses of OpenCL's functions, and exports the
functions of the hot table, as `runtime.h` declares them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from uhal.abi import Check, Header, Library, open_own_library

FUNCTION_OF_SLOT = {
    "current": "uhalClCtxGetCurrent",
    "bind": "uhalClCtxSetCurrent",
    "launch": "uhalClLaunchKernel",
    "alloc": "uhalClMemAlloc",
    "free": "uhalClMemFree",
    "host_alloc": "uhalClMemHostAlloc",
    "host_free": "uhalClMemFreeHost",
    "copy_h2d": "uhalClMemcpyHtoDAsync",
    "copy_d2h": "uhalClMemcpyDtoHAsync",
    "copy_d2d": "uhalClMemcpyDtoDAsync",
    "memset_8": "uhalClMemsetD8Async",
    "memset_16": "uhalClMemsetD16Async",
    "memset_32": "uhalClMemsetD32Async",
    "stream_create": "uhalClStreamCreate",
    "stream_destroy": "uhalClStreamDestroy",
    "stream_synchronize": "uhalClStreamSynchronize",
    "stream_query": "uhalClStreamQuery",
    "stream_wait_event": "uhalClStreamWaitEvent",
    "stream_callback": "uhalClLaunchHostFunc",
    "event_create": "uhalClEventCreate",
    "event_destroy": "uhalClEventDestroy",
    "event_record": "uhalClEventRecord",
    "event_synchronize": "uhalClEventSynchronize",
    "event_query": "uhalClEventQuery",
    "event_elapsed": "uhalClEventElapsedTime",
}
"""Python finds and unloads kernels: `_modules.py`."""

_FOLDER = Path(__file__).resolve().parent
_LIBRARY = _FOLDER / "libuhal_opencl.so"


@cache
def runtime_header() -> Header:
    """The interface of libuhal_opencl."""
    return Header.load(_FOLDER / "runtime.h")


def open_runtime(check: Check) -> Library:
    """Open libuhal_opencl. Raises `LibraryNotFoundError` without it or at another version."""
    return open_own_library(
        _LIBRARY, runtime_header(), "uhalCl", "UHAL_CL_VERSION", backend="opencl", check=check
    )


def hand_over(runtime: Library, opencl: Library) -> None:
    """Give libuhal_opencl the functions of OpenCL that it calls.

    Raises `LibraryNotFoundError` if a function is missing, because the library is older than OpenCL
    2.1.
    """
    addresses = [opencl.address(name) for name in _function_names(runtime)]
    array = (ctypes.c_void_p * len(addresses))(*addresses)
    runtime.uhalClOpen(array, len(addresses))


def _function_names(runtime: Library) -> list[str]:
    names: list[str] = []
    name = ctypes.c_char_p()
    ask = runtime.unchecked("uhalClFunctionName")
    while ask(name, len(names)) == 0:
        names.append((name.value or b"").decode())
    return names
