"""Finds Ubridge's compiled modules for GCUs, which this project does not ship.

A module is one file, `unary.topsfb`. `UHAL_TOPS_KERNELS` names their folder, by default `topsfb/`
beside the loaded runtime library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ubridge.device.registry import Image
from ubridge.prepare.gcu.table import GCU
from uhal import Api, Device
from uhal.errors import NotFoundError

BACKEND = "tops"
VARIABLE = "UHAL_TOPS_KERNELS"
SUFFIX = ".topsfb"
REPOSITORY = "https://github.com/EnflameTechnology/Ubridge"


class GcuImages:
    """Ubridge's compiled modules."""

    def modules(self) -> Sequence[str]:
        """Return the names of the modules that operations use; the folder may have more."""
        return sorted({one.kernel.module for one in GCU.values() if one.kernel is not None})

    def find(self, module: str, device: Device) -> Image:
        """Return the file of a module.

        Raises `NotFoundError`, which names the folder, the variable, and the place where the files
        are published.
        """
        folder = _folder()
        if folder is not None:
            path = folder / f"{module}{SUFFIX}"
            if path.is_file():
                return Image(path)
        looked = "the runtime's path is unknown" if folder is None else f"it is not in {folder}"
        raise NotFoundError(
            f"no {module}{SUFFIX} for GCUs: {looked}. Set {VARIABLE} to the folder with Ubridge's "
            f"compiled kernels, kernels/scorpio of {REPOSITORY}"
        )


def _folder() -> Path | None:
    told = os.environ.get(VARIABLE, "").strip()
    if told:
        return Path(told)
    library = next((one.path for one in Api.backends() if one.name == BACKEND), None)
    return None if library is None else Path(library).resolve().parent / "topsfb"
