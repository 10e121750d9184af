"""Runs the kernels and checks their results: `python program.py [backend]`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from uhal import Device, DeviceBuffer, Module

BUILD = Path(__file__).parent / "build"
IMAGES = {"host": "kernels.so", "cuda": "kernels.ptx", "opencl": "kernels.spv", "rocm": "kernels.hsaco"}
"""Images that `make` builds for each backend."""


def load(device: Device) -> Module:
    """Load the kernels on a device."""
    name = IMAGES.get(device.backend)
    if name is None:
        raise SystemExit(f"the Makefile builds nothing for {device.backend}")
    if not (BUILD / name).exists():
        raise SystemExit(f"build/{name} is missing: run make {name.removeprefix('kernels.')}")
    return Module.from_file(BUILD / name, device=device)


def run(device: Device, size: int = 1000) -> float:
    """Compute `2 x + y` and its sum on a device; return the largest error."""
    rng = np.random.default_rng()
    x, y = rng.standard_normal((2, size), "f4")
    with device:
        module = load(device)
        given, result = DeviceBuffer.from_numpy(x), DeviceBuffer.from_numpy(y)
        total = DeviceBuffer.zeros(1, "f32")
        module.get_function("saxpy")[4, 128](size, 2.0, given, result)
        module.get_function("sum")[4, 128](size, result, total)
        expected = 2.0 * x.astype("f8") + y
        errors = np.abs(result.to_numpy() - expected)
        return float(max(errors.max(), abs(total.to_numpy()[0] - expected.sum()) / size))


def main() -> None:
    """Run on the backend of the command line, or on the best device there is."""
    device = Device(0, sys.argv[1]) if len(sys.argv) > 1 else Device(0)
    error = run(device)
    print(f"{device.backend}: {device.name}: largest error {error:.1e}")
    if error > 1e-5:
        raise SystemExit("that is too much")


if __name__ == "__main__":
    main()
