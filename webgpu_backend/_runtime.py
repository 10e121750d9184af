"""libuhal_webgpu, our native library over wgpu-native: opening it, and its slots.

It links no wgpu-native. The library gets the addresses of the functions it calls, and offers the
hot table's functions, as `runtime.h` declares them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from uhal.abi import Check, Header, Library, open_own_library
from webgpu_backend._library import major_release_of

FUNCTION_OF_SLOT = {
    "current": "uhalWgCtxGetCurrent",
    "bind": "uhalWgCtxSetCurrent",
    "launch": "uhalWgLaunchKernel",
    "alloc": "uhalWgMemAlloc",
    "free": "uhalWgMemFree",
    "host_alloc": "uhalWgMemHostAlloc",
    "host_free": "uhalWgMemFreeHost",
    "copy_h2d": "uhalWgMemcpyHtoDAsync",
    "copy_d2h": "uhalWgMemcpyDtoHAsync",
    "copy_d2d": "uhalWgMemcpyDtoDAsync",
    "memset_8": "uhalWgMemsetD8Async",
    "memset_16": "uhalWgMemsetD16Async",
    "memset_32": "uhalWgMemsetD32Async",
    "stream_create": "uhalWgStreamCreate",
    "stream_destroy": "uhalWgStreamDestroy",
    "stream_synchronize": "uhalWgStreamSynchronize",
    "stream_synchronize_while": "uhalWgStreamSynchronizeWhile",
    "stream_query": "uhalWgStreamQuery",
    "stream_wait_event": "uhalWgStreamWaitEvent",
    "stream_series": "uhalWgStreamSeries",
    "event_create": "uhalWgEventCreate",
    "event_destroy": "uhalWgEventDestroy",
    "event_record": "uhalWgEventRecord",
    "event_synchronize": "uhalWgEventSynchronize",
    "event_synchronize_while": "uhalWgEventSynchronizeWhile",
    "event_query": "uhalWgEventQuery",
    "event_elapsed": "uhalWgEventElapsedTime",
}
"""Python finds and unloads kernels (`_modules.py`); callbacks are emulated."""

_FOLDER = Path(__file__).resolve().parent
_LIBRARY = _FOLDER / "libuhal_webgpu.so"


@cache
def runtime_header() -> Header:
    """The interface of libuhal_webgpu."""
    return Header.load(_FOLDER / "runtime.h")


def open_runtime(wgpu: Library, check: Check) -> Library:
    """Open libuhal_webgpu over an opened wgpu-native.

    Raises `LibraryNotFoundError` when the library was not built, or has another version.
    """
    runtime = open_own_library(
        _LIBRARY, runtime_header(), "uhalWg", "UHAL_WG_VERSION", backend="webgpu", check=check
    )
    names = _function_names(runtime)
    addresses = [wgpu.address(name) if wgpu.has(name) else None for name in names]
    functions = (ctypes.c_void_p * len(addresses))(*addresses)
    runtime.uhalWgOpen(functions, len(addresses), major_release_of(wgpu))
    return runtime


def error_text(runtime: Library) -> str:
    """Return wgpu's message for this thread's last error."""
    text = ctypes.c_char_p()
    runtime.uhalWgErrorText(text)
    return (text.value or b"").decode("utf-8", "replace").strip()


def _function_names(runtime: Library) -> list[str]:
    names: list[str] = []
    name = ctypes.c_char_p()
    ask = runtime.unchecked("uhalWgFunctionName")
    while ask(name, len(names)) == 0:
        names.append((name.value or b"").decode())
    return names
