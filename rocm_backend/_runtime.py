"""libuhal_hsa, our native library over the HSA runtime: opening it, and its slots.

libuhal_hsa links nothing of ROCm. It gets the addresses of the runtime's functions, and exports the
functions of the hot table, as `runtime.h` declares them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from uhal import environment
from uhal.abi import Check, Header, Library, open_own_library

FUNCTION_OF_SLOT = {
    "current": "uhalHsaCtxGetCurrent",
    "bind": "uhalHsaCtxSetCurrent",
    "launch": "uhalHsaLaunchKernel",
    "alloc": "uhalHsaMemAlloc",
    "free": "uhalHsaMemFree",
    "host_alloc": "uhalHsaMemHostAlloc",
    "host_free": "uhalHsaMemFreeHost",
    "copy_h2d": "uhalHsaMemcpyHtoDAsync",
    "copy_d2h": "uhalHsaMemcpyDtoHAsync",
    "copy_d2d": "uhalHsaMemcpyDtoDAsync",
    "copy_peer": "uhalHsaMemcpyPeerAsync",
    "memset_8": "uhalHsaMemsetD8Async",
    "memset_16": "uhalHsaMemsetD16Async",
    "memset_32": "uhalHsaMemsetD32Async",
    "stream_create": "uhalHsaStreamCreate",
    "stream_destroy": "uhalHsaStreamDestroy",
    "stream_synchronize": "uhalHsaStreamSynchronize",
    "stream_synchronize_while": "uhalHsaStreamSynchronizeWhile",
    "stream_query": "uhalHsaStreamQuery",
    "stream_wait_event": "uhalHsaStreamWaitEvent",
    "stream_callback": "uhalHsaLaunchHostFunc",
    "stream_progress": "uhalHsaStreamProgress",
    "event_create": "uhalHsaEventCreate",
    "event_destroy": "uhalHsaEventDestroy",
    "event_record": "uhalHsaEventRecord",
    "event_synchronize": "uhalHsaEventSynchronize",
    "event_synchronize_while": "uhalHsaEventSynchronizeWhile",
    "event_query": "uhalHsaEventQuery",
    "event_elapsed": "uhalHsaEventElapsedTime",
    "get_function": "uhalHsaModuleGetFunction",
    "module_unload": "uhalHsaModuleUnload",
    "graph_launch": "uhalHsaGraphLaunch",
    "graph_update_kernel": "uhalHsaGraphExecKernelNodeSetParams",
}

_FOLDER = Path(__file__).resolve().parent
_LIBRARY = _FOLDER / "libuhal_hsa.so"


@cache
def runtime_header() -> Header:
    """The interface of libuhal_hsa."""
    return Header.load(_FOLDER / "runtime.h")


def open_runtime(check: Check) -> Library:
    """Open libuhal_hsa. Raises `LibraryNotFoundError` without it or at another version."""
    return open_own_library(
        _LIBRARY, runtime_header(), "uhalHsa", "UHAL_HSA_VERSION", backend="rocm", check=check
    )


def hand_over(runtime: Library, hsa: Library, frequency: int, agents: list[int]) -> None:
    """Give libuhal_hsa the functions of the HSA runtime it calls, and its settings.

    `frequency` is the system clock's, in ticks per second, `agents` are the handles of all GPUs.
    `LibraryNotFoundError` when the runtime lacks one of the functions.
    """
    addresses = [hsa.address(name) for name in _function_names(runtime)]
    settings = runtime_header().ctype("uhalHsaSettings")()
    settings.timestamp_frequency = frequency
    settings.deadline_ns = int(float(environment.read("UHAL_ROCM_DEADLINE")) * 1e9)
    settings.queues = int(environment.read("UHAL_ROCM_QUEUES"))
    settings.agent_count = len(agents)
    settings.agents[: len(agents)] = agents
    array = (ctypes.c_void_p * len(addresses))(*addresses)
    runtime.uhalHsaOpen(array, len(addresses), settings)


def _function_names(runtime: Library) -> list[str]:
    names: list[str] = []
    name = ctypes.c_char_p()
    ask = runtime.unchecked("uhalHsaFunctionName")
    while ask(name, len(names)) == 0:
        names.append((name.value or b"").decode())
    return names
