"""Libraries of slot adapters: C functions for slots that a vendor's own function does not fit.

A backend that needs some compiles `adapters.c` into a library beside its `abi.h`
(`cython_src/slot_adapters.h` says how one is written) and asks for them here.
"""

from __future__ import annotations

import ctypes
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from uhal.errors import LibraryNotFoundError

_loaded: set[Path] = set()
_lock = threading.Lock()


class SlotAdapters:
    """One load of a backend's library of adapters, for one library of the vendor.

    It stays loaded as long as the process lasts. Any thread may use it.
    """

    def __init__(self, folder: Path, backend: str) -> None:
        """Load the library in the backend's folder; `LibraryNotFoundError` where there is none."""
        self._path = folder / f"libuhal_adapters.{'dylib' if sys.platform == 'darwin' else 'so'}"
        try:
            self._give = _own_load(self._path).uhal_slot_adapter
        except OSError as error:
            raise LibraryNotFoundError(
                f"{error}. Build it: python setup.py build_ext --inplace", backend=backend
            ) from error
        self._give.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
        self._give.restype = ctypes.c_void_p

    def over(self, name: str, vendor_function: int) -> int:
        """Return the address of the adapter `name`, which calls the vendor's function from now on.

        Raises `ValueError` for a name the library does not have.
        """
        address = self._give(name.encode(), vendor_function)
        if not address:
            raise ValueError(f"{self._path.name} has no slot adapter {name!r}")
        return int(address)


def _own_load(path: Path) -> ctypes.CDLL:
    """Load the library with variables of its own: the loader gives a file once, a copy anew."""
    with _lock:
        if path not in _loaded:
            library = ctypes.CDLL(str(path))
            _loaded.add(path)
            return library
        with tempfile.TemporaryDirectory(prefix="uhal-") as folder:
            return ctypes.CDLL(str(shutil.copy(path, folder)))
