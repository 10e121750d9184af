"""Finds the BLAS that multiplies matrices on the host.

ubridge looks for the BLAS at the first product, never at import: in the wheel `scipy-openblas32`,
or in the file that `UHAL_BLAS_LIBRARY` names. Without a BLAS, ubridge's own kernel multiplies.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from uhal.abi import LibrarySearch, find_library
from uhal.contract import joined_reasons
from uhal.errors import LibraryNotFoundError

VARIABLE = "UHAL_BLAS_LIBRARY"
WHEEL = "scipy_openblas32"

_ROOM = 192 << 20
"""Bytes of address space without which OpenBLAS may end the process when it is loaded or called."""
_CORES = {"SkylakeX": 4, "Cooperlake": 4, "SapphireRapids": 4, "Haswell": 3, "Zen": 3}
"""OpenBLAS's sets of kernels for x86-64 with the level of their instructions; others have 2."""
_PREFIXES = ("", "scipy_")
"""Prefixes of functions' names in builds of OpenBLAS."""


@dataclass(frozen=True)
class Blas:
    """A BLAS with 32-bit integers that computes on the calling thread alone."""

    path: str
    gemm: Mapping[str, int]
    """Maps a dtype's name to the address of its function; empty when there is no BLAS."""
    gemv: Mapping[str, int]
    """Maps a dtype's name to the address of the product of a matrix by a vector."""
    reason: str
    """Reason for the chosen library, or for its absence."""
    core: str = ""
    """OpenBLAS's name of the kernels that it chose for this CPU."""

    @property
    def level(self) -> int:
        """Level n of x86-64-vn: the instructions of its kernels."""
        return _CORES.get(self.core, 2)


@cache
def find_blas() -> Blas:
    """Return the BLAS of this process; only the first call looks for it.

    OpenBLAS is set to start no threads, for the whole process: the host runtime's threads divide a
    product. The separate copies of OpenBLAS in numpy and scipy are not changed. Raises
    `LibraryNotFoundError` if the file in `UHAL_BLAS_LIBRARY` is no BLAS library.
    """
    candidates = _wheel_libraries()
    named = bool(os.environ.get(VARIABLE))
    if not candidates and not named:
        wheel = WHEEL.replace("_", "-")
        return Blas("", {}, {}, f"{wheel} is not installed: pip install {wheel}")
    try:
        mmap.mmap(-1, _ROOM).close()
    except (OSError, MemoryError):
        return Blas("", {}, {}, f"OpenBLAS needs {_ROOM >> 20} MiB of address space, not left here")
    search = find_library(VARIABLE, candidates)
    found = _opened(search)
    if found is None:
        said = joined_reasons(search.attempts)
        if search.path:
            said = f"{search.path} has no cblas_sgemm, cblas_sgemv and openblas_set_num_threads"
        if named:
            raise LibraryNotFoundError(f"{VARIABLE}: {said}", backend="host")
        return Blas("", {}, {}, said)
    return found


def _opened(search: LibrarySearch) -> Blas | None:
    library = search.handle
    if library is None:
        return None
    for prefix in _PREFIXES:
        try:
            limit = library[f"{prefix}openblas_set_num_threads"]
            core = library[f"{prefix}openblas_get_corename"]
            gemm, gemv = (
                {
                    dtype: _address(library, f"{prefix}cblas_{letter}{name}")
                    for dtype, letter in (("f32", "s"), ("f64", "d"))
                }
                for name in ("gemm", "gemv")
            )
        except AttributeError:
            continue
        limit(1)
        core.restype = ctypes.c_char_p
        named = core().decode("ascii", "replace")
        return Blas(search.path or "", gemm, gemv, f"{search.path} was found", named)
    return None


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def _wheel_libraries() -> list[str]:
    # Importing the wheel would make its functions visible to all libraries.
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        return []
    return sorted(map(str, Path(wheel.origin).parent.glob("lib/libscipy_openblas*")))
