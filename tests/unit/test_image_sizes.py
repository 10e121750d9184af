"""The images of ubridge's kernels stay small enough for a wheel that carries all of them."""

from __future__ import annotations

from pathlib import Path

from uhal.images import cpu_level

KERNELS = Path(__file__).resolve().parents[2] / "ubridge" / "kernels"
MOST_BYTES_OF_DEVICES = 16_000_000
"""Limit for all files of CUDA, ROCm and OpenCL, which are compressed."""
MOST_BYTES_OF_HOSTS = 17_800_000
"""Limit for the libraries of all levels; a wheel compresses them to a third."""


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_images_for_devices_stay_small() -> None:
    sizes = {name: size(KERNELS / "images" / name) for name in ("cuda", "rocm", "opencl")}
    assert sum(sizes.values()) <= MOST_BYTES_OF_DEVICES, sizes


def test_libraries_for_hosts_stay_small() -> None:
    """A checkout has one level of the host's modules, a wheel has all levels: assume equal
    sizes."""
    largest: dict[str, int] = {}
    for path in (KERNELS / "host").rglob("*.so"):
        largest[path.name] = max(path.stat().st_size, largest.get(path.name, 0))
    total = sum(largest.values()) * len(cpu_level.machine_levels())
    assert total <= MOST_BYTES_OF_HOSTS, largest
