"""libtopsrt, of either generation, and the slots of the hot table it fills."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tops_backend._errors import MISSING_FUNCTION
from uhal import environment
from uhal.abi import Check, Header, Library, LibrarySearch
from uhal.adapters import SlotAdapters

LIBRARY_VARIABLE = "UHAL_TOPS_LIBRARY"
CONFIG_VARIABLE = "UHAL_TOPS_LAUNCH_CONFIG"
"""Bytes of the configuration of extended launches, 72 or 64: no public header gives the size."""
PARAMETERS_VARIABLE = "UHAL_TOPS_PARAMETERS"
"""How launches pass parameters: `pointers` (an array) or `block` (all in one).

Newer code uses `pointers` only, which the published header calls unimplemented.
"""

_SONAMES = ("libtopsrt.so", "libtopsrt.so.1", "libtopsrt.so.2")
CANDIDATES = (*_SONAMES, *(f"/opt/tops/lib/{name}" for name in _SONAMES))

FUNCTION_OF_SLOT = {
    "current": "topsGetDevice",
    "bind": "topsSetDevice",
    "launch": "topsModuleLaunchKernel",
    "launch_ex": "topsModuleLaunchKernelEx",
    "alloc": "topsMalloc",
    "free": "topsFree",
    "alloc_async": "topsMallocAsync",
    "free_async": "topsFreeAsync",
    "host_alloc": "topsHostMalloc",
    "host_free": "topsHostFree",
    "copy_h2d": "topsMemcpyHtoDAsync",
    "copy_d2h": "topsMemcpyDtoHAsync",
    "copy_d2d": "topsMemcpyDtoDAsync",
    "memset_8": "topsMemsetD8Async",
    "memset_16": "topsMemsetD16Async",
    "memset_32": "topsMemsetD32Async",
    "stream_create": "topsStreamCreateWithFlags",
    "stream_destroy": "topsStreamDestroy",
    "stream_synchronize": "topsStreamSynchronize",
    "stream_query": "topsStreamQuery",
    "stream_wait_event": "topsStreamWaitEvent",
    "stream_callback": "topsLaunchHostFunc",
    "event_create": "topsEventCreateWithFlags",
    "event_destroy": "topsEventDestroy",
    "event_record": "topsEventRecord",
    "event_synchronize": "topsEventSynchronize",
    "event_query": "topsEventQuery",
    "event_elapsed": "topsEventElapsedTime",
    "get_function": "topsModuleGetFunction",
    "module_unload": "topsModuleUnload",
    "graph_launch": "topsGraphLaunch",
}
"""`graph_update_kernel` is missing: no known function changes a launch inside a graph.

`copy_peer` is missing: peer copies were only seen on a stream of the source's device, but uhal
orders them by the destination's stream. Peer copies go through the host instead."""

ADAPTER_OF_SLOT = {
    "current": "tops_current",
    "bind": "tops_bind",
    "alloc_async": "tops_alloc_async",
    "stream_create": "tops_stream_create",
    "launch_ex": "tops_launch_ex_72",
}
"""`LaunchForms` chooses the launch functions."""
OPTIONAL_SLOTS = frozenset(("launch_ex", "alloc_async", "free_async", "graph_launch"))


@cache
def header() -> Header:
    """The interface, as abi.h declares it."""
    return Header.load(Path(__file__).resolve().parent / "abi.h")


class TopsLibrary(Library):
    """libtopsrt. Functions of the newer generation alone are looked up like all others."""

    def __init__(self, search: LibrarySearch, check: Check) -> None:
        """Bind an opened library."""
        assert search.handle is not None
        path = search.path or search.attempts[-1].path
        super().__init__(search.handle, path, header(), status="topsError_t", check=check)
        self._adapters = SlotAdapters(Path(__file__).resolve().parent, "tops")
        self._stand_ins: list[object] = []

    def slots(self, functions: Mapping[str, str], forms: LaunchForms) -> dict[str, int]:
        """Return the address of every slot: 0 for an optional function the library lacks."""
        adapters = {**ADAPTER_OF_SLOT, **forms.adapters()}
        return {slot: self._slot(slot, name, adapters) for slot, name in functions.items()}

    def _slot(self, slot: str, name: str, adapters: Mapping[str, str]) -> int:
        if self.has(name):
            address = self.address(name)
            adapter = adapters.get(slot)
            return address if adapter is None else self._adapters.over(adapter, address)
        if slot == "stream_callback" and self.has("topsStreamAddCallback"):
            address = self.address("topsStreamAddCallback")
            return self._adapters.over("tops_stream_callback", address)
        if slot in OPTIONAL_SLOTS:
            return 0
        return self._stand_in(name)

    def _stand_in(self, name: str) -> int:
        """Return a stand-in that reports the missing function."""
        function: Any = header().function_type(name)(lambda *_: MISSING_FUNCTION)
        self._stand_ins.append(function)
        return ctypes.cast(function, ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class LaunchForms:
    """How this process launches kernels."""

    config_bytes: int
    """Bytes of the library's launch configuration, set by the user."""
    packed: bool
    """Whether parameters are passed in one block; the user's setting."""
    sub_threads: bool
    """Whether devices launch only through `topsModuleLaunchKernelEx`, with threads of a SIP."""

    @classmethod
    def told(cls, *, sub_threads: bool) -> LaunchForms:
        """Read the variables. `ArgumentValueError` for an invalid value."""
        config = int(environment.read(CONFIG_VARIABLE))
        return cls(config, environment.read(PARAMETERS_VARIABLE) == "block", sub_threads)

    def functions(self) -> dict[str, str]:
        """Return the runtime's function behind each slot."""
        functions = dict(FUNCTION_OF_SLOT)
        if self.sub_threads:
            functions["launch"] = functions["launch_ex"]
        if self.packed:
            # The adapter in this slot stores the offsets of parameters for the launches.
            functions["prepare_function"] = FUNCTION_OF_SLOT["launch"]
        return functions

    def adapters(self) -> dict[str, str]:
        """Return the adapters of the launching slots."""
        adapters = {"launch_ex": f"tops_launch_ex_{self.config_bytes}"}
        if self.packed:
            adapters |= {
                "launch": "tops_launch_packed",
                "prepare_function": "tops_prepare_function",
            }
        if self.sub_threads:
            adapters["launch"] = f"tops_launch_{self.config_bytes}"
        return adapters
