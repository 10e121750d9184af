"""Shared code of the gallery: options, compiling a kernel, writing a picture."""

import argparse
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

import uhal
from uhal import Device, Module

HEADERS = Path(uhal.__file__).parent / "include"
COLOURS = np.array(
    [(8, 12, 40), (34, 62, 130), (48, 140, 160), (120, 200, 140), (250, 222, 130), (255, 250, 235)]
)
"""Colours from the smallest value to the largest."""


def options(summary: str | None, name: str) -> argparse.Namespace:
    """Return the command line's options: backend, size and output."""
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--backend", help="host, opencl or cuda; by default the first that works")
    parser.add_argument("--size", type=int, default=512, help="width of the picture")
    parser.add_argument("--output", type=Path, default=Path(f"{name}.png"))
    return parser.parse_args()


def module_of(program: str, device: Device) -> Module:
    """Compile the kernel beside a program for a device: `picture.cu` beside `picture.py`."""
    source = Path(program).with_suffix(".cu")
    if device.backend == "opencl":
        from opencl_backend.compile import kernels

        return Module.from_bytes(kernels(source.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        image = str(Path(folder, "image"))
        if device.backend == "host":
            flags = subprocess.check_output([sys.executable, "-m", "uhal", "cflags"], text=True)
            command = ["c++", *shlex.split(flags), "-x", "c++", str(source), "-o", image]
        elif device.backend == "cuda":
            command = ["nvcc", "-std=c++17", f"-I{HEADERS}", "--ptx", "-arch=compute_80"]
            command += [str(source), "-o", image]
        else:
            sys.exit(f"{Path(program).name} compiles for host, opencl and cuda only")
        subprocess.run(command, check=True)
        return Module.from_file(image)


def coloured(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Colours of values between 0 and 1."""
    stops = np.linspace(0, 1, len(COLOURS))
    return np.stack([np.interp(values, stops, one) for one in COLOURS.T], axis=-1).astype(np.uint8)


def write_png(path: Path, pixels: npt.NDArray[np.uint8]) -> None:
    """Write rows of RGB bytes as a PNG (ISO/IEC 15948): one zlib stream, no filters."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    height, width, _ = pixels.shape
    rows = np.insert(pixels.reshape(height, width * 3), 0, 0, axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    signature = b"\x89PNG\r\n\x1a\n"
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b"")]
    path.write_bytes(signature + b"".join(parts))
