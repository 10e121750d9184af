"""Reads a user's image: a SPIR-V module of kernels, plain or compressed by gzip."""

from __future__ import annotations

from uhal.errors import InvalidImageError
from uhal.images.gzipped import is_gzipped, unpacked
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import (
    ADDRESSING_PHYSICAL_64,
    CAPABILITY_SHADER,
    MEMORY_OPENCL,
    is_spirv,
)


def kernels_of(image: bytes, what: str) -> tuple[SpirvModule, str]:
    """Return the module of an image, and the kind of the image's file.

    Raises `InvalidImageError` if the bytes are no SPIR-V, damaged, or not for OpenCL.
    """
    module = SpirvModule(_checked(unpacked(image, what), what), what)
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
    return module, f"SPIR-V {version}{', gzip' if is_gzipped(image) else ''}"


def _checked(image: bytes, what: str) -> bytes:
    if not is_spirv(image):
        raise InvalidImageError(
            f"{what} is no SPIR-V image: expected a SPIR-V module, also compressed by gzip, got "
            f"{len(image)} bytes that begin with {image[:8]!r}"
        )
    return image
