"""Libraries of slot adapters: C functions for slots that a vendor's own function does not fit.

A backend that needs some compiles `adapters.c` into a library beside its `abi.h`
(`cython_src/slot_adapters.h` says how one is written) and asks for them here.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path

from uhal.abi import open_library
from uhal.errors import LibraryNotFoundError

_loaded: set[Path] = set()
_lock = threading.Lock()


class SlotAdapters:
    """One load of a backend's library of adapters, for one library of the vendor.

    It stays loaded as long as the process lasts. Any thread may use it.
    """

    def __init__(self, folder: Path, backend: str) -> None:
        """Load the library in the backend's folder; `LibraryNotFoundError` where there is none."""
        self._folder = folder
        self._give = own_load(folder, "libuhal_adapters", backend).uhal_slot_adapter
        self._give.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
        self._give.restype = ctypes.c_void_p

    def over(self, name: str, vendor_function: int) -> int:
        """Return the address of the adapter `name`, which calls the vendor's function from now on.

        Raises `ValueError` for a name the library does not have.
        """
        address = self._give(name.encode(), vendor_function)
        if not address:
            raise ValueError(f"the adapters of {self._folder.name} have no {name!r}")
        return int(address)


def own_load(folder: Path, stem: str, backend: str) -> ctypes.CDLL:
    """Load a library of uhal's own with variables of its own: the loader gives a copy anew.

    `LibraryNotFoundError`, with the backend's name, when it was not built.
    """
    path = folder / f"{stem}.{'dylib' if sys.platform == 'darwin' else 'so'}"
    with _lock:
        try:
            if path not in _loaded:
                library = open_library(path)
                _loaded.add(path)
                return library
            # Only a second library of a vendor needs them, which no usual process opens.
            import shutil
            import tempfile

            with tempfile.TemporaryDirectory(prefix="uhal-") as copies:
                return open_library(shutil.copy(path, copies))
        except OSError as error:
            raise LibraryNotFoundError(
                f"{error}. Build it: python setup.py build_ext --inplace", backend=backend
            ) from error
