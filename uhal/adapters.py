"""Libraries of slot adapters: C functions for slots without a fitting vendor function.

A backend with adapters compiles `adapters.c` into a library beside its `abi.h` (see
`cython_src/slot_adapters.h`) and loads it here.
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
    """A backend's library of adapters, loaded for a library of the vendor.

    It stays loaded as long as the process lasts. Any thread may use it.
    """

    def __init__(self, folder: Path, backend: str) -> None:
        """Load the library in the backend's folder; `LibraryNotFoundError` if it is missing."""
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
    """Load a separate copy of one of uhal's libraries, with its own variables.

    `LibraryNotFoundError`, with the backend's name, when it was not built.
    """
    path = folder / f"{stem}.{'dylib' if sys.platform == 'darwin' else 'so'}"
    with _lock:
        try:
            if path not in _loaded:
                library = open_library(path)
                _loaded.add(path)
                return library
            # Needed only for a second library of a vendor, which usual processes do not open.
            import shutil
            import tempfile

            with tempfile.TemporaryDirectory(prefix="uhal-") as copies:
                return open_library(shutil.copy(path, copies))
        except OSError as error:
            raise LibraryNotFoundError(
                f"{error}. Build it: python setup.py build_ext --inplace", backend=backend
            ) from error
