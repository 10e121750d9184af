"""Finds the kernels of GCUs: Ubridge's `.topsfb` files, which are not ours to ship."""

from __future__ import annotations

import os
from pathlib import Path

from uhal import registry
from uhal.errors import NotFoundError

VARIABLE = "UHAL_TOPS_KERNELS"
UBRIDGE = "https://github.com/EnflameTechnology/Ubridge"


def topsfb_file(module: str) -> Path:
    """Return the file of a module, from `$UHAL_TOPS_KERNELS`, else beside the loaded runtime.

    Raises `NotFoundError` that says where it was looked for.
    """
    tried = []
    for folder in _folders():
        path = folder / f"{module}.topsfb"
        if path.is_file():
            return path
        tried.append(str(path))
    raise NotFoundError(
        f"no kernel module {module!r} for GCUs: tried {', '.join(tried) or 'nowhere'}. Set "
        f"{VARIABLE} to the folder of Ubridge's .topsfb files (kernels/scorpio of {UBRIDGE})",
        backend="tops",
    )


def _folders() -> list[Path]:
    named = os.environ.get(VARIABLE)
    if named:
        return [Path(named)]
    runtime = registry.record("tops").path
    return [] if runtime is None else [Path(runtime).resolve().parent / "topsfb"]
