"""libhsa-runtime64: its search path, its functions as in abi.h, its initialisation."""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

from uhal.abi import Check, Header, Library, LibrarySearch

LIBRARY_VARIABLE = "UHAL_ROCM_LIBRARY"
CANDIDATES = (
    "libhsa-runtime64.so.1",
    # The folder of AMD's packages, which some distributions do not search.
    "/opt/rocm/lib/libhsa-runtime64.so.1",
)


@cache
def header() -> Header:
    """The interface, as abi.h declares it."""
    return Header.load(Path(__file__).resolve().parent / "abi.h")


def bind(search: LibrarySearch, check: Check) -> Library:
    """Bind a runtime that was found."""
    assert search.handle is not None
    path = search.path or search.attempts[-1].path
    return Library(search.handle, path, header(), status="hsa_status_t", check=check)


def initialize(search: LibrarySearch, library: Library, check: Check) -> int:
    """Initialise a runtime once for the life of the process; return the result of `hsa_init`.

    A probe and an opened backend share the runtime, because a second start would set the driver up
    again. A forked child has the runtime without its threads. So in a child, `check` gets the
    status for an uninitialised runtime.
    """
    assert search.handle is not None
    key = search.handle._handle
    with _lock:
        process = _initialized_in.get(key)
        if process is not None and process != os.getpid():
            check("hsa_init", header().constants["HSA_STATUS_ERROR_NOT_INITIALIZED"])
        status = 0 if process is not None else int(library.unchecked("hsa_init")())
        if status == 0:
            _initialized_in[key] = os.getpid()
        return status


_lock = threading.Lock()
_initialized_in: dict[int, int] = {}
"""The loader's handle of each initialised runtime, and the process that initialised it."""
