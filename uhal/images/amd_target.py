"""Target ids, AMD's names for the processor and features of code: `gfx90a:sramecc+:xnack-`.

A feature is on, off, or not mentioned. If the target id of a device does not mention a feature, the
device lacks the feature. If the target id of code does not mention a feature, the code runs with
the feature on or off. Sources: LLVM's "User Guide for AMDGPU Backend", "Target ID" and "ELF
Header"; clang 22 for the processor numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from uhal.errors import InvalidImageError

FEATURES = ("sramecc", "xnack")
"""The features, in their order in a target id."""

PROCESSORS = {
    0x2C: "gfx900",
    0x2D: "gfx902",
    0x2E: "gfx904",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x31: "gfx909",
    0x32: "gfx90c",
    0x33: "gfx1010",
    0x34: "gfx1011",
    0x35: "gfx1012",
    0x36: "gfx1030",
    0x37: "gfx1031",
    0x38: "gfx1032",
    0x39: "gfx1033",
    0x3D: "gfx1035",
    0x3E: "gfx1034",
    0x3F: "gfx90a",
    0x40: "gfx940",
    0x41: "gfx1100",
    0x42: "gfx1013",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x45: "gfx1036",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x51: "gfx9-generic",
    0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic",
    0x54: "gfx11-generic",
    0x55: "gfx1152",
    0x58: "gfx1153",
    0x59: "gfx12-generic",
    0x5A: "gfx1251",
    0x5F: "gfx9-4-generic",
}
"""Maps a number in an ELF header's flags to a processor. Current runtimes lack older chips."""

_TARGET = re.compile(r"(?:amdgcn-amd-amdhsa-\w*-)?(gfx[0-9a-f]+(?:-[0-9a-z-]+)?)((?::\w+[+-])*)\Z")
_PROCESSOR_MASK = 0xFF
_FEATURE_SHIFT = {"xnack": 8, "sramecc": 10}
_OFF = 2
_ON = 3
_GENERIC_VERSION_SHIFT = 24


@dataclass(frozen=True)
class TargetId:
    """A processor and the settings of its features that code depends on. Hashable."""

    processor: str
    """`gfx90a`; for a family of processors `gfx11-generic`."""
    features: tuple[tuple[str, bool], ...] = field(default=())
    """(name, on or off) of each mentioned feature, in the order of `FEATURES`."""

    @classmethod
    def parse(cls, text: str) -> TargetId:
        """Read `gfx90a:xnack-`, with or without the triple that the runtime and files put before
        it.

        Raises `InvalidImageError` for any other name.
        """
        found = _TARGET.match(text)
        if found is None:
            _fail(text)
        reported = {part[:-1]: part[-1] == "+" for part in found[2].split(":")[1:]}
        if not reported.keys() <= set(FEATURES) or len(reported) != found[2].count(":"):
            _fail(text)
        return cls(found[1], _ordered(reported))

    @classmethod
    def from_flags(cls, flags: int) -> TargetId | None:
        """Read the flags of an ELF header, of code object version 4 and later.

        `None` when the processor is newer than this table.
        """
        processor = PROCESSORS.get(flags & _PROCESSOR_MASK)
        if processor is None:
            return None
        settings = {name: flags >> shift & 3 for name, shift in _FEATURE_SHIFT.items()}
        reported = {name: value == _ON for name, value in settings.items() if value in (_OFF, _ON)}
        return cls(processor, _ordered(reported))

    @property
    def generic(self) -> bool:
        """True for code that runs on a whole family of processors."""
        return self.processor.endswith("-generic")

    def conflict(self, device: TargetId) -> str:
        """Return why code for this target does not run on a device; empty if it does.

        The processor and every feature that this target mentions must be equal, as in the runtime's
        loader.
        """
        if self.processor != device.processor:
            return f"made for {self.processor}, and the device is {device.processor}"
        settings = dict(device.features)
        for name, on in self.features:
            if name not in settings:
                return f"made for {name}{_sign(on)}, and the device does not have {name}"
            if settings[name] is not on:
                has = _sign(settings[name])
                return f"made for {name}{_sign(on)}, and the device runs with {name}{has}"
        return ""

    def __str__(self) -> str:
        return self.processor + "".join(f":{name}{_sign(on)}" for name, on in self.features)


def generic_version(flags: int) -> int:
    """Return the version of a generic target from an ELF header's flags; 0 for other targets."""
    return flags >> _GENERIC_VERSION_SHIFT


def _ordered(reported: dict[str, bool]) -> tuple[tuple[str, bool], ...]:
    return tuple((name, reported[name]) for name in FEATURES if name in reported)


def _sign(on: bool) -> str:
    return "+" if on else "-"


def _fail(text: str) -> NoReturn:
    raise InvalidImageError(f"{text[:80]!r} is no target id of AMD's compilers")
