"""The images of ubridge's kernels stay small enough for a wheel that carries all of them."""

from __future__ import annotations

from pathlib import Path

from uhal.images import cpu_level

KERNELS = Path(__file__).resolve().parents[2] / "ubridge" / "kernels"
MOST_BYTES = 26_000_000
"""Limit in bytes for all images of CUDA, ROCm and all levels of the host; a packed wheel has half.

Images for OpenCL have a limit of their own: `test_opencl_images.py`.
"""


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_images_stay_small() -> None:
    """A checkout has one level of the host's modules, a wheel has all: count each level as
    large."""
    largest: dict[str, int] = {}
    for path in (KERNELS / "host").rglob("*.so"):
        largest[path.name] = max(path.stat().st_size, largest.get(path.name, 0))
    sizes = {name: size(KERNELS / "images" / name) for name in ("cuda", "rocm")}
    sizes["host, all levels"] = sum(largest.values()) * len(cpu_level.machine_levels())
    assert sum(sizes.values()) <= MOST_BYTES, sizes
