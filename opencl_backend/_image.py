"""Checks whether a device supports an image's SPIR-V module, and in which version."""

from __future__ import annotations

from dataclasses import dataclass

from opencl_backend._devices import ClDevice
from opencl_backend.earlier import EARLIEST, LAST_LIKE_EARLIEST
from uhal.contract import Chosen, ImageCandidate
from uhal.errors import InvalidImageError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_image import kernels_of


@dataclass(frozen=True)
class Read:
    """An image that a device supports."""

    module: SpirvModule
    version: tuple[int, int]
    """SPIR-V version of the kernels that the driver gets."""
    chosen: Chosen


def read(image: bytes, device: ClDevice, what: str) -> Read:
    """Read an image, and check that the device supports such modules.

    Raises `InvalidImageError` when the bytes are no SPIR-V, damaged, not for OpenCL, or of a
    version that the device does not support.
    """
    module, description = kernels_of(image, what)
    reported = module.version if module.version in device.il_versions else EARLIEST
    if reported not in device.il_versions or module.version > LAST_LIKE_EARLIEST:
        taken = ", ".join(".".join(map(str, one)) for one in sorted(device.il_versions))
        raise InvalidImageError(f"{what} is {description}; {device.name} takes SPIR-V {taken}")
    given = ".".join(map(str, reported))
    reason = f"{device.name} takes SPIR-V {given}, and compiles each kernel when it is asked for"
    chosen = Chosen(description, reason, (ImageCandidate(description, True, reason),))
    return Read(module, reported, chosen)
