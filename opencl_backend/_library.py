"""OpenCL's libraries: where they are looked for, and the functions as abi.h declares them.

Like every OpenCL program, uhal opens the loader `libOpenCL.so.1`, which reads `OCL_ICD_VENDORS`
and the system's list of runtimes. Without a usable device there, it opens a runtime that pip
installed.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from uhal.abi import Check, Header, Library, LibrarySearch, find_library

LIBRARY_VARIABLE = "UHAL_OPENCL_LIBRARY"
_LOADERS = ("libOpenCL.so.1", "/System/Library/Frameworks/OpenCL.framework/OpenCL")
_LOADER = _LOADERS[sys.platform == "darwin"]
_IN_WHEELS = ("libintelocl.so",)
"""Runtimes that the wheel intel-opencl-rt puts into Python's own `lib`."""


@cache
def header() -> Header:
    """The interface, as abi.h declares it."""
    return Header.load(Path(__file__).resolve().parent / "abi.h")


def bind(search: LibrarySearch, check: Check) -> Library:
    """Bind a library that was found."""
    assert search.handle is not None
    path = search.path or search.attempts[-1].path
    return Library(search.handle, path, header(), status="cl_status", check=check)


def candidates() -> tuple[str, ...]:
    """Return the loader, then the runtimes that pip installed for this Python, in that order."""
    folders = dict.fromkeys((sys.prefix, site.getuserbase()))
    files = (Path(folder, "lib", name) for folder in folders for name in _IN_WHEELS)
    return (_LOADER, *(str(path) for path in files if path.exists()))


def searches() -> Iterator[LibrarySearch]:
    """Look for each candidate by itself; if the variable is set, only for its library."""
    for candidate in candidates():
        found = find_library(LIBRARY_VARIABLE, (candidate,))
        yield found
        if found.attempts[0].path != candidate:  # the variable's
            return
