"""NVIDIA's rules for the devices and drivers that run a given image.

Sources: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility" and "Feature Set
Compiler Targets"; CUDA Compatibility guide, "Minor Version Compatibility"; PTX ISA, "Release
Notes".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uhal.errors import InvalidImageError
from uhal.images.chooser import Fit, Judgement

Version = tuple[int, int]

PTX_OF_CUDA: tuple[tuple[Version, Version], ...] = (
    ((9, 0), (6, 0)),
    ((9, 1), (6, 1)),
    ((9, 2), (6, 2)),
    ((10, 0), (6, 3)),
    ((10, 1), (6, 4)),
    ((10, 2), (6, 5)),
    ((11, 0), (7, 0)),
    ((11, 1), (7, 1)),
    ((11, 2), (7, 2)),
    ((11, 3), (7, 3)),
    ((11, 4), (7, 4)),
    ((11, 5), (7, 5)),
    ((11, 6), (7, 6)),
    ((11, 7), (7, 7)),
    ((11, 8), (7, 8)),
    ((12, 0), (8, 0)),
    ((12, 1), (8, 1)),
    ((12, 2), (8, 2)),
    ((12, 3), (8, 3)),
    ((12, 4), (8, 4)),
    ((12, 5), (8, 5)),
    ((12, 7), (8, 6)),
    ((12, 8), (8, 7)),
    ((12, 9), (8, 8)),
    ((13, 0), (9, 0)),
    ((13, 1), (9, 1)),
    ((13, 2), (9, 2)),
    ((13, 3), (9, 3)),
    ((13, 4), (9, 4)),
    ((13, 5), (9, 5)),
)
"""Newest PTX ISA by a driver's CUDA version, from the release notes of the ISA."""

_TEGRA = frozenset([(5, 3), (6, 2), (7, 2), (8, 7), (8, 8), (10, 1), (11, 0)])
"""Embedded chips: they and other chips of their major version cannot run each other's binaries."""

_TARGET = re.compile(r"(?:sm|compute)_(\d{1,3})(\d)([af]?)$")


@dataclass(frozen=True)
class Target:
    """Target of compiled code."""

    capability: Version
    suffix: str
    """`a`: this capability only; `f`: its family; empty: PTX also for later capabilities."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `sm_90a`. `InvalidImageError` for another form of name."""
        found = _TARGET.match(text)
        if found is None:
            raise InvalidImageError(f"{text[:40]!r} is no target of NVIDIA's compilers")
        return cls((int(found[1]), int(found[2])), found[3])


@dataclass(frozen=True)
class DeviceTarget:
    """A device and its driver, for which images are chosen."""

    name: str
    """`cuda:0`."""
    capability: Version
    driver: Version
    """The CUDA version the driver is made for."""

    def __str__(self) -> str:
        return (
            f"{self.name} (compute capability {_dotted(self.capability)}, driver for CUDA "
            f"{_dotted(self.driver)})"
        )


def judge_ptx(description: str, version: Version, target: str, device: DeviceTarget) -> Judgement:
    """Say whether the driver compiles PTX of `version` for `target` on the device."""
    wanted = Target.parse(target)
    newness = (*wanted.capability, len(wanted.suffix), *version)
    refusal = _ptx_version_refusal(version, device.driver) or _capability_refusal(wanted, device)
    if refusal:
        return Judgement(description, Fit.REFUSED, refusal, newness)
    reason = f"the driver compiles it for compute capability {_dotted(device.capability)}"
    return Judgement(description, Fit.PORTABLE, reason, newness)


def judge_cubin(
    description: str, target: str, toolkit: Version | None, device: DeviceTarget
) -> Judgement:
    """Say whether the device runs a cubin for `target` made by `toolkit` (`None`: unknown)."""
    wanted = Target.parse(target)
    newness = (*wanted.capability, len(wanted.suffix))
    if toolkit is not None and toolkit[0] > device.driver[0]:
        reason = (
            f"CUDA {_dotted(toolkit)} made it and the driver is for CUDA {_dotted(device.driver)}: "
            f"a binary needs a driver of its own major version or a later one"
        )
        return Judgement(description, Fit.REFUSED, reason, newness)
    if wanted.capability == device.capability:
        return Judgement(description, Fit.EXACT, "made for exactly this device", newness)
    if _runs_binary(wanted, device.capability):
        reason = f"compute capability {_dotted(device.capability)} runs such code too"
        return Judgement(description, Fit.COMPATIBLE, reason, newness)
    reason = (
        f"made for compute capability {_dotted(wanted.capability)}, and the device has "
        f"{_dotted(device.capability)}"
    )
    return Judgement(description, Fit.REFUSED, reason, newness)


def newest_ptx(driver: Version) -> Version | None:
    """The newest PTX ISA a driver compiles; `None` when it is older than the table."""
    return max((ptx for cuda, ptx in PTX_OF_CUDA if cuda <= driver), default=None)


def _ptx_version_refusal(version: Version, driver: Version) -> str:
    newest = newest_ptx(driver)
    if newest is not None and version <= newest:
        return ""
    if driver > PTX_OF_CUDA[-1][0]:
        return ""  # a driver newer than the table decides itself
    needed = next((cuda for cuda, ptx in PTX_OF_CUDA if ptx >= version), None)
    needs = "a newer driver" if needed is None else f"a driver for CUDA {_dotted(needed)} or later"
    takes = "" if newest is None else f" and takes PTX up to {_dotted(newest)}"
    return f"PTX {_dotted(version)} needs {needs}; this one is for CUDA {_dotted(driver)}{takes}"


def _capability_refusal(wanted: Target, device: DeviceTarget) -> str:
    has = f"the device has {_dotted(device.capability)}"
    only = _dotted(wanted.capability)
    if wanted.suffix == "a" and wanted.capability != device.capability:
        return f"written for compute capability {only} alone, and {has}"
    if wanted.suffix == "f" and not _same_family(wanted.capability, device.capability):
        return f"written for the family of compute capability {only}, and {has}"
    if wanted.capability > device.capability:
        return f"written for compute capability {only} or later, and {has}"
    return ""


def _same_family(code: Version, device: Version) -> bool:
    """Say whether family-specific code of one capability runs on the other."""
    chips_apart = (code in _TEGRA or device in _TEGRA) and code != device
    return code[0] == device[0] and code[1] <= device[1] and not chips_apart


def _runs_binary(wanted: Target, device: Version) -> bool:
    """Say whether a binary runs on a device of another capability."""
    return wanted.suffix != "a" and _same_family(wanted.capability, device)


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
