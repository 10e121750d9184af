"""The PTX of ubridge's modules, from the shipped images."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from uhal.images.fatbin import FatbinEntry, read_fatbin

FATBINS = Path(__file__).resolve().parents[1] / "ubridge" / "kernels" / "images" / "cuda"


def shipped_entries(module: str) -> tuple[FatbinEntry, ...]:
    """Return the images of a module: PTX and cubins."""
    return read_fatbin(gzip.decompress((FATBINS / f"{module}.fatbin.gz").read_bytes()))


def shipped_texts(module: str) -> dict[str, bytes]:
    """Return the PTX by target, the lowest first; fatbinary has dropped the signatures'
    comments."""
    entries = (one for one in shipped_entries(module) if one.kind == "PTX")
    texts = {one.target: one.image().rstrip(b"\0") for one in entries}
    return dict(sorted(texts.items()))


def shipped_ptx(module: str) -> bytes:
    """Return the PTX for the lowest target."""
    return next(iter(shipped_texts(module).values()))


def write_shipped_ptx(folder: Path, module: str) -> Path:
    """Write a module's PTX and its signatures in the form that other loaders read."""
    path = folder / f"{module}.ptx"
    path.write_bytes(shipped_ptx(module))
    shutil.copy(FATBINS / f"{module}.fatbin.gz.sig", f"{path}.sig")
    return path
