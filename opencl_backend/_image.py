"""Reads a user's image: a SPIR-V module, plain or compressed by gzip."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from opencl_backend._devices import ClDevice
from opencl_backend.earlier import EARLIEST, LAST_LIKE_EARLIEST
from opencl_backend.spirv import SpirvModule
from opencl_backend.spirv_words import (
    ADDRESSING_PHYSICAL_64,
    CAPABILITY_SHADER,
    MEMORY_OPENCL,
    is_spirv,
)
from uhal.contract import Chosen, ImageCandidate
from uhal.errors import InvalidImageError

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 1 << 28
"""Bytes of a module once decompressed."""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class Read:
    """An image that a device takes."""

    module: SpirvModule
    version: tuple[int, int]
    """SPIR-V version of the kernels that the driver gets."""
    chosen: Chosen


def read(image: bytes, device: ClDevice, what: str) -> Read:
    """Read an image and see that the device takes modules of its kind.

    Raises `InvalidImageError` when the bytes are no SPIR-V, damaged, or of a kind for other
    programs than OpenCL's, or of a version the device does not take.
    """
    packed = image[: len(GZIP_MAGIC)] == GZIP_MAGIC
    module = SpirvModule(_unpacked(image, what) if packed else _checked(image, what), what)
    version = ".".join(map(str, module.version))
    description = f"SPIR-V {version}{', gzip' if packed else ''}"
    if CAPABILITY_SHADER in module.capabilities or module.memory != MEMORY_OPENCL:
        raise InvalidImageError(
            f"{what} is a SPIR-V module for graphics (Vulkan, OpenGL): OpenCL takes those of the "
            "Kernel capability and the OpenCL memory model"
        )
    if module.addressing != ADDRESSING_PHYSICAL_64:
        raise InvalidImageError(
            f"{what} was compiled for another size of addresses: compile it for 64 bits (spirv64)"
        )
    if not module.entries:
        raise InvalidImageError(f"{what} has no kernel")
    told = module.version if module.version in device.il_versions else EARLIEST
    if told not in device.il_versions or module.version > LAST_LIKE_EARLIEST:
        taken = ", ".join(".".join(map(str, one)) for one in sorted(device.il_versions))
        raise InvalidImageError(f"{what} is {description}; {device.name} takes SPIR-V {taken}")
    given = ".".join(map(str, told))
    reason = f"{device.name} takes SPIR-V {given}, and compiles each kernel when it is asked for"
    chosen = Chosen(description, reason, (ImageCandidate(description, True, reason),))
    return Read(module, told, chosen)


def _checked(image: bytes, what: str) -> bytes:
    if not is_spirv(image):
        raise InvalidImageError(
            f"{what} is no image for OpenCL devices: expected a SPIR-V module, also compressed by "
            f"gzip, got {len(image)} bytes that begin with {image[:8]!r}"
        )
    return image


def _unpacked(image: bytes, what: str) -> bytes:
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = decoder.decompress(image, MAX_BYTES)
    except zlib.error as error:
        raise InvalidImageError(f"{what} is damaged: {error}") from error
    if not decoder.eof or decoder.unused_data:
        raise InvalidImageError(f"{what} is damaged: its compressed data end elsewhere")
    return plain
