"""Instruction levels of host kernels: which exist, which this CPU runs, how one is compiled.

The build loads this file by its path before anything is built, the host backend and `ubridge`
import it at run time, so the two can never disagree. It uses the standard library only and must
import nothing of `uhal`.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

BASE_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-fvisibility=hidden"),
)
"""How a host kernel is compiled on every machine; a level only adds its `-march`.

No kernel reads `errno` or the floating-point flags, and a compiler that must keep them right does
not vectorize a choice between two values. No result changes.
"""


@dataclass(frozen=True)
class Level:
    """One instruction level: a folder of compiled kernels, and what a CPU needs to run them."""

    name: str
    march: str | None
    """Argument of `-march`; `None` leaves the compiler's default."""
    vectors: str
    """The vector unit in the words of a data sheet, empty when nothing is promised."""
    cpu_flags: frozenset[str] = frozenset()
    """Names from `/proc/cpuinfo` that must all be present."""

    @property
    def number(self) -> int:
        """The level as a kernel table has it: n of x86-64-vn, 0 elsewhere."""
        _, _, number = self.name.partition("x86-64-v")
        return int(number or 0)


_V2 = frozenset("cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2".split())
_V3 = _V2 | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())

GENERIC = Level("generic", None, "")
"""What any CPU runs: built on machines that no level below names."""

LEVELS: dict[str, tuple[Level, ...]] = {
    "x86_64": (
        Level("x86-64-v4", "x86-64-v4", "AVX-512", _V4),
        Level("x86-64-v3", "x86-64-v3", "AVX2", _V3),
        Level("x86-64-v2", "x86-64-v2", "SSE4.2", _V2),
    ),
    "aarch64": (Level("aarch64", "armv8-a", "NEON"),),
}
"""Levels by machine, best first. A wheel carries every level of its machine."""


def machine_levels() -> tuple[Level, ...]:
    """Levels a wheel for this kind of machine carries, best first."""
    return LEVELS.get(_machine(), (GENERIC,))


def usable_levels() -> tuple[Level, ...]:
    """Levels this CPU runs, best first; `generic` is always the last."""
    present = cpu_flags()
    usable = [level for level in machine_levels() if level.cpu_flags <= present]
    if GENERIC not in usable:
        usable.append(GENERIC)
    return tuple(usable)


def best_level() -> Level:
    """The level a clone builds."""
    return usable_levels()[0]


def compile_flags(level: Level | None = None) -> tuple[str, ...]:
    """Compiler flags of a host kernel, without `-I` and `-o`; without a level they fit any CPU."""
    if level is None or level.march is None:
        return BASE_FLAGS
    return (*BASE_FLAGS, f"-march={level.march}")


@functools.cache
def cpu_flags() -> Set[str]:
    """Feature names of the first CPU as Linux spells them; empty where they cannot be read."""
    if platform.system() == "Darwin":
        # Every 64-bit Intel Mac has the second level; Rosetta promises no more.
        return _V2
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def _machine() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
