"""Single kernels of ubridge's committed modules, as the WebGPU backend translates them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import ubridge
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_slices import Cutter, Slice

FOLDER = Path(ubridge.__file__).parent / "kernels" / "images" / "opencl"
SUFFIX = ".spv.gz"


@cache
def module(name: str) -> tuple[SpirvModule, Cutter]:
    spirv = SpirvModule(gzip.decompress((FOLDER / f"{name}{SUFFIX}").read_bytes()), name)
    return spirv, Cutter(spirv)


def entries() -> Iterator[tuple[str, str]]:
    """Yield (module, kernel) for every kernel."""
    for path in sorted(FOLDER.glob(f"*{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        for entry in module(name)[0].entries:
            yield name, entry


def cut(name: str, entry: str) -> Slice:
    """The module of one kernel."""
    spirv, cutter = module(name)
    return cutter.cut(spirv.entries[entry])
