"""The `.topsfb` files of Ubridge's modules, made from its table of entries: `make simulators`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from .writer import Gcu, topsfb

ENTRIES = Path(__file__).resolve().parents[2] / "tops_backend" / "ubridge_entries.json"
TARGETS = ("gcu200", "gcu210", "gcu300", "gcu400")
"""The architectures that simulated devices have."""


@cache
def modules() -> dict[str, dict[str, list[str]]]:
    """Maps a module's name to its kernels by name, with the C types of their parameters."""
    table: dict[str, dict[str, Any]] = json.loads(ENTRIES.read_text(encoding="utf-8"))
    return {
        module: {
            entry["name"]: [parameter["type"] for parameter in entry["params"]]
            for entry in described["entries"]
        }
        for module, described in table.items()
    }


def assemble(module: str) -> bytes:
    """Return a module's `.topsfb`, with an image for every architecture."""
    return topsfb(*(Gcu(modules()[module], target) for target in TARGETS))


def write_all(folder: Path) -> None:
    """Write `<module>.topsfb` of every module; files that are up to date stay untouched."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules():
        path = folder / f"{module}.topsfb"
        image = assemble(module)
        if not path.is_file() or path.read_bytes() != image:
            path.write_bytes(image)
