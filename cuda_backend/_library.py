"""libcuda, opened: every function in exactly the version that abi.h declares."""

from __future__ import annotations

import ctypes
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from uhal.abi import Check, Header, Library, LibrarySearch

LIBRARY_VARIABLE = "UHAL_CUDA_LIBRARY"
CANDIDATES = (
    # cuInit detects the toolkit's stub of that name.
    "libcuda.so.1",
    # The driver's folder in WSL 2, which some distributions do not search.
    "/usr/lib/wsl/lib/libcuda.so.1",
)

_FINDER_PARAMETERS = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)


@cache
def header() -> Header:
    """The interface, as abi.h declares it."""
    return Header.load(Path(__file__).resolve().parent / "abi.h")


def function_type(name: str) -> type[Any]:
    """Return the ctypes type of a driver function that abi.h declares."""
    return header().function_type(name)


class DriverLibrary(Library):
    """libcuda, whose functions come from cuGetProcAddress.

    Each request names the CUDA version that introduced the form in abi.h. A function that
    cuGetProcAddress does not know counts as missing, even if the library exports the symbol. Before
    CUDA 11.3, functions are looked up by their exported names (`cuMemAlloc_v2`).
    """

    def __init__(self, search: LibrarySearch, check: Check) -> None:
        """Bind an opened library."""
        assert search.handle is not None
        path = search.path or search.attempts[-1].path
        super().__init__(search.handle, path, header(), status="CUresult", check=check)

    def _symbol(self, name: str) -> Any:
        since = self.header.constants.get(f"UHAL_SINCE_{name}")
        if since is None or self._finder is None:
            return super()._symbol(name)
        status, address = self._ask(self._finder, name, since)
        return function_type(name)(address) if status == 0 and address else None

    @cached_property
    def _finder(self) -> Any:
        """The newest form of cuGetProcAddress that works; `None` before CUDA 11.3."""
        too_new = self.header.constants["CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"]
        # The newer form has one more parameter: a status, which the address already implies.
        for name, further in (("cuGetProcAddress_v2", [ctypes.c_void_p]), ("cuGetProcAddress", [])):
            finder = super()._symbol(name)
            if finder is None:
                continue
            finder.argtypes = [*_FINDER_PARAMETERS, *further]
            # A library may export functions that the driver under it does not have yet.
            if self._ask(finder, "cuInit", 0)[0] != too_new:
                return finder
        return None

    def _ask(self, finder: Any, name: str, since: int) -> tuple[int, int | None]:
        found = ctypes.c_void_p()
        flags = self.header.constants["CU_GET_PROC_ADDRESS_LEGACY_STREAM"]
        rest = [None] * (len(finder.argtypes) - len(_FINDER_PARAMETERS))
        status = finder(_base_name(name).encode(), ctypes.byref(found), since, flags, *rest)
        return status, found.value


def _base_name(name: str) -> str:
    """A function's name for cuGetProcAddress, without the version suffix."""
    stem, _, version = name.rpartition("_v")
    return stem if stem and version.isdigit() else name
