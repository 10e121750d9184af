"""Reads a user's image: a SPIR-V module of kernels, plain or compressed by gzip."""

from __future__ import annotations

import zlib

from uhal.errors import InvalidImageError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import (
    ADDRESSING_PHYSICAL_64,
    CAPABILITY_SHADER,
    MEMORY_OPENCL,
    is_spirv,
)

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 1 << 28
"""Bytes of a module once decompressed."""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def kernels_of(image: bytes, what: str) -> tuple[SpirvModule, str]:
    """Return the module of an image, and the kind of the image's file.

    Raises `InvalidImageError` if the bytes are no SPIR-V, damaged, or not for OpenCL.
    """
    packed = image[: len(GZIP_MAGIC)] == GZIP_MAGIC
    module = SpirvModule(_unpacked(image, what) if packed else _checked(image, what), what)
    version = ".".join(map(str, module.version))
    if CAPABILITY_SHADER in module.capabilities or module.memory != MEMORY_OPENCL:
        raise InvalidImageError(
            f"{what} is a SPIR-V module for graphics (Vulkan, OpenGL): expected one of the Kernel "
            "capability and the OpenCL memory model"
        )
    if module.addressing != ADDRESSING_PHYSICAL_64:
        raise InvalidImageError(
            f"{what} was compiled for another size of addresses: compile it for 64 bits (spirv64)"
        )
    if not module.entries:
        raise InvalidImageError(f"{what} has no kernel")
    return module, f"SPIR-V {version}{', gzip' if packed else ''}"


def _checked(image: bytes, what: str) -> bytes:
    if not is_spirv(image):
        raise InvalidImageError(
            f"{what} is no SPIR-V image: expected a SPIR-V module, also compressed by gzip, got "
            f"{len(image)} bytes that begin with {image[:8]!r}"
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
