"""Instruction levels of host kernels: all levels, this CPU's levels, compiler flags.

The build loads this file by its path before anything is built, and the host backend and `ubridge`
import it, so build and run time always agree. It uses the standard library only and must import
nothing of `uhal`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

BASE_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-fvisibility=hidden"),
)
"""Compiler options of a host kernel on every machine; a level only adds its `-march`.

No kernel reads `errno` or the floating-point flags. A compiler that must set them correctly does
not vectorize a choice between two values. The options change no result.
"""


CHECKED_FLAGS = (
    # The last optimisation option wins: `-O1` keeps lines and variables as in the source.
    *("-O1", "-g", "-fsanitize=thread", "-DUHAL_CHECKED=1"),
    # All default libraries of the compiler except the sanitizer's.
    *("-Wl,--no-as-needed", "-nodefaultlibs", "-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc"),
)
"""Additional compiler options that check every access of a host kernel."""

CHECK = "UHAL_HOST_CHECK"
"""Environment variable: 1 selects checked kernels."""


@dataclass(frozen=True)
class Level:
    """An instruction level of compiled kernels, and the CPU features it needs."""

    name: str
    march: str | None
    """Argument of `-march`; `None` leaves the compiler's default."""
    vectors: str
    """Name of the vector unit; empty without a guaranteed unit."""
    cpu_flags: frozenset[str] = frozenset()
    """Names from `/proc/cpuinfo` that must all be present."""
    options: tuple[str, ...] = ()
    """Compiler options for instructions that `march` does not name."""
    tiles: bool = False
    """The system must grant a process the registers of Intel's matrix unit first."""
    modules: frozenset[str] = frozenset()
    """Modules that the level makes faster; no other module is compiled. Empty: all modules."""

    @property
    def number(self) -> int:
        """The level in a kernel table: n of x86-64-vn, 0 elsewhere."""
        _, _, number = (self.march or "").partition("x86-64-v")
        return int(number or 0)


_V2 = frozenset("cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2".split())
_V3 = _V2 | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())

GENERIC = Level("generic", None, "")
"""Level of any CPU, for architectures without a level below."""

_MATRICES = frozenset({"conv_packed", "matmul_packed"})
_BLOCKS = frozenset({"block_matmul"})

ALL_LEVELS: dict[str, tuple[Level, ...]] = {
    "x86_64": (
        Level(
            "x86-64-v4-amx",
            "x86-64-v4",
            "AMX",
            _V4 | {"avx512_bf16", "amx_tile", "amx_bf16"},
            ("-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
            tiles=True,
            modules=_MATRICES,
        ),
        Level(
            "x86-64-v4-bf16",
            "x86-64-v4",
            "AVX-512 with bf16",
            _V4 | {"avx512_bf16"},
            ("-mavx512bf16",),
            modules=_MATRICES,
        ),
        Level(
            "x86-64-v4-vnni",
            "x86-64-v4",
            "AVX-512 with products of bytes",
            _V4 | {"avx512_vnni"},
            ("-mavx512vnni",),
            modules=_BLOCKS,
        ),
        Level("x86-64-v4", "x86-64-v4", "AVX-512", _V4),
        Level(
            "x86-64-v3-vnni",
            "x86-64-v3",
            "AVX2 with products of bytes",
            _V3 | {"avx_vnni"},
            ("-mavxvnni",),
            modules=_BLOCKS,
        ),
        Level("x86-64-v3", "x86-64-v3", "AVX2", _V3),
        Level("x86-64-v2", "x86-64-v2", "SSE4.2", _V2),
    ),
    "aarch64": (
        Level(
            "aarch64-dot",
            "armv8.2-a+dotprod",
            "NEON with products of bytes",
            frozenset({"asimddp"}),
            modules=_BLOCKS,
        ),
        Level("aarch64", "armv8-a", "NEON"),
    ),
}
"""Levels by machine, best first. A wheel carries every level of its machine."""

LIMIT = "UHAL_HOST_LEVEL"
"""Environment variable that names the best level to use and to build."""

_ARCH_PRCTL = 158  # the system call's number on x86-64
_ARCH_REQ_XCOMP_PERM = 0x1023  # asm/prctl.h
_XFEATURE_XTILEDATA = 18  # Intel's Software Developer's Manual, volume 1, section 13.5


def machine_levels(module: str = "", machine: str = "") -> tuple[Level, ...]:
    """Levels of a module in a wheel, best first, by default for this kind of machine.

    `machine` names another kind of machine.
    """
    levels = ALL_LEVELS.get(machine or _machine(), (GENERIC,))
    return tuple(level for level in levels if not level.modules or module in level.modules)


def usable_levels(module: str = "") -> tuple[Level, ...]:
    """Levels of a module that this CPU runs, best first; `generic` is always the last."""
    usable = [level for level in machine_levels(module) if not refusal(level)]
    if GENERIC not in usable:
        usable.append(GENERIC)
    return tuple(usable)


def best_level(module: str = "") -> Level:
    """The best level of this CPU; a clone builds modules for it if the compiler can."""
    return usable_levels(module)[0]


def refusal(level: Level) -> str:
    """Return why this process cannot run code of a level; empty if it can.

    Raises `ValueError` when `UHAL_HOST_LEVEL` names no level of this machine.
    """
    missing = level.cpu_flags - cpu_flags()
    if missing and not cpu_flags():
        return "the system does not tell this CPU's instructions: /proc/cpuinfo cannot be read"
    if missing:
        return f"this CPU lacks {', '.join(sorted(missing))}"
    if level in _above_limit():
        return f"{LIMIT}={os.environ[LIMIT]}"
    if level.tiles and not _tiles_granted():
        return "the system does not grant the registers of the matrix unit"
    return ""


def _above_limit() -> tuple[Level, ...]:
    named = os.environ.get(LIMIT, "")
    if not named:
        return ()
    levels = (*ALL_LEVELS.get(_machine(), ()), GENERIC)
    names = [level.name for level in levels]
    if named not in names:
        raise ValueError(f"{LIMIT}: expected one of {', '.join(names)}, got {named!r}")
    return levels[: names.index(named)]


@functools.cache
def _tiles_granted() -> bool:
    # Forked children inherit the permission. See Linux's Documentation/arch/x86/xstate.rst.
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    return bool(syscall(*map(ctypes.c_long, arguments)) == 0)


def compile_flags(level: Level | None = None) -> tuple[str, ...]:
    """Compiler flags of a host kernel, without `-I` and `-o`; without a level they fit any CPU."""
    if level is None or level.march is None:
        return BASE_FLAGS
    return (*BASE_FLAGS, f"-march={level.march}", *level.options)


@functools.cache
def cpu_flags() -> Set[str]:
    """Linux's feature names of the first CPU; empty if they cannot be read."""
    if platform.system() == "Darwin":
        # Every 64-bit Intel Mac has the second level; Rosetta promises no more.
        return _V2
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _machine() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
