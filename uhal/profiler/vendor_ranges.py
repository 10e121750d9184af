"""Ranges of NVTX and roctx, which begin and end on the calling thread.

The libraries are opened at the first range. They are optional; if they are missing, ranges do
nothing, because no vendor's tool is listening.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uhal import terminal

_ENCODED_MOST = 1024


@dataclass(frozen=True)
class RangeLibrary:
    """An opened library. Any thread may call it."""

    name: str
    push: Callable[[str], object]
    """Begin a range on the calling thread; longer names are cut at 1024 bytes."""
    pop: Callable[[], object]
    """End the range begun last on the calling thread."""


@dataclass(frozen=True)
class _Kind:
    name: str
    variable: str
    """Environment variable with the library's path; empty: use no library."""
    files: tuple[str, ...]
    push: str
    pop: str


# NVTX 3 for C is only a header; nvToolsExt is a library of the same functions, part of CUDA until
# 12. roctx comes with rocprofiler-sdk, and as libroctx64 with ROCm before 7.
_KINDS = (
    _Kind(
        "nvtx",
        "UHAL_NVTX_LIBRARY",
        ("libnvToolsExt.so.1", "libnvToolsExt.so"),
        "nvtxRangePushA",
        "nvtxRangePop",
    ),
    _Kind(
        "roctx",
        "UHAL_ROCTX_LIBRARY",
        ("librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so", "libroctx64.so.4"),
        "roctxRangePushA",
        "roctxRangePop",
    ),
)

_opened: tuple[RangeLibrary, ...] | None = None
_lock = threading.Lock()


def listening() -> tuple[RangeLibrary, ...]:
    """Return the available libraries; they are searched once."""
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = tuple(found for kind in _KINDS if (found := _open(kind)) is not None)
    return _opened


def _open(kind: _Kind) -> RangeLibrary | None:
    given = os.environ.get(kind.variable)
    if given == "":
        return None
    if kind.name == "nvtx" and given is None:
        # NVIDIA's own package uses NVTX 3, which current tools inject themselves into.
        found = _nvtx_package()
        if found is not None:
            return found
    from uhal.abi import open_library  # programs without ranges import no ABI

    for path in (given,) if given else kind.files:
        try:
            library = open_library(path)
            push, pop = getattr(library, kind.push), getattr(library, kind.pop)
        except (OSError, AttributeError) as failure:
            if given:
                terminal.write(sys.stderr, f"uhal: {kind.variable}={given}: {failure}\n")
            continue
        push.argtypes, push.restype = [ctypes.c_char_p], ctypes.c_int
        pop.argtypes, pop.restype = [], ctypes.c_int
        return RangeLibrary(kind.name, _encoding(push), pop)
    return None


def _encoding(push: Callable[[bytes], Any]) -> Callable[[str], object]:
    def encoded(name: str) -> object:
        return push(name.encode("utf-8", "replace")[:_ENCODED_MOST])

    return encoded


def _nvtx_package() -> RangeLibrary | None:
    try:
        nvtx = importlib.import_module("nvtx")
    except ImportError:
        return None
    return RangeLibrary("nvtx", nvtx.push_range, nvtx.pop_range)
