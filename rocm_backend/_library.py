"""libhsa-runtime64: where it is looked for, and its functions as abi.h declares them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from uhal.abi import Check, Header, Library, LibrarySearch

LIBRARY_VARIABLE = "UHAL_ROCM_LIBRARY"
CANDIDATES = (
    "libhsa-runtime64.so.1",
    # Where AMD's packages put it, which not every distribution searches.
    "/opt/rocm/lib/libhsa-runtime64.so.1",
)


@cache
def header() -> Header:
    """The interface as the backend knows it."""
    return Header.parse(Path(__file__).resolve().parent / "abi.h")


def bind(search: LibrarySearch, check: Check) -> Library:
    """Bind a runtime that was found."""
    assert search.handle is not None
    path = search.path or search.attempts[-1].path
    return Library(search.handle, path, header(), status="hsa_status_t", check=check)
