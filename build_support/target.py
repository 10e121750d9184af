"""Target of a wheel: an interpreter, and a machine that may differ from this one.

An interpreter reports everything that its extension modules depend on, so one build makes the lane
for all interpreters. Another machine's compiler is clang of the wheel `ziglang`, which brings
glibc's headers and link libraries of any version.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

_ASK = """
import json, sys, sysconfig
names = ("CC", "LDSHARED", "CFLAGS", "EXT_SUFFIX")
said = {name: sysconfig.get_config_var(name) or "" for name in names}
said["tag"] = sys.implementation.cache_tag
said["version"] = sys.version
said["minor"] = sys.version_info[1]
said["includes"] = [sysconfig.get_path(name) for name in ("include", "platinclude")]
print(json.dumps(said))
"""
OLDEST_GLIBC = "2.28"
"""The glibc that zig links against. RHEL 8 has it, the oldest system with `manylinux` images."""
# zig links its C++ library, with debug symbols, into every file.
_WITHOUT_SYMBOLS = ("-Wl,-s",)
# zig's -march names a CPU; the triple means the architecture's baseline CPU.
_OF_ZIG: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "-march=armv8-a": (),
        "-march=armv8.2-a+dotprod": ("-mcpu=generic+v8_2a+dotprod",),
    }
)


@dataclass(frozen=True)
class Python:
    """Facts of an interpreter."""

    minor: int
    tag: str
    version: str
    suffix: str
    """Suffix of an extension module's file name."""
    cc: tuple[str, ...]
    link: tuple[str, ...]
    """Options that make an extension module of objects."""
    flags: tuple[str, ...]
    includes: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A machine, and the compilers for it."""

    machine: str
    """Name from `platform.machine()`."""
    cc: tuple[str, ...]
    cxx: tuple[str, ...]
    python: Python
    small: tuple[str, ...] = ()
    """Options that drop unused code and data, for linkers other than the usual."""
    renamed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """This compiler's spelling of a kernel's options; empty if it has no such option."""


@functools.cache
def python_at(executable: str = sys.executable) -> Python:
    """Return the facts of an interpreter."""
    answer = subprocess.run([executable, "-c", _ASK], check=True, capture_output=True, text=True)
    said = json.loads(answer.stdout)
    # The lane does not link libpython, so the builder's path of libpython is dropped.
    link = [
        part
        for part in shlex.split(said["LDSHARED"] or "cc -shared")[1:]
        if not part.startswith(("-L", "-Wl,-rpath"))
    ]
    return Python(
        minor=said["minor"],
        tag=said["tag"],
        version=said["version"],
        suffix=said["EXT_SUFFIX"],
        cc=tuple(shlex.split(said["CC"] or "cc")),
        link=tuple(link),
        flags=tuple(shlex.split(said["CFLAGS"])),
        includes=tuple(dict.fromkeys(said["includes"])),
    )


def this_machine(python: Python | None = None) -> Target:
    """Return the machine at hand, with the compilers of the environment, and an interpreter."""
    python = python or python_at()
    return Target(platform.machine(), _cc(python), _cxx(), python)


def other_machine(machine: str, python: Python) -> Target:
    """Return another Linux machine; zig compiles for it.

    An interpreter's headers are the same for all 64-bit machines.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise SystemExit(f"wheels for {machine} need zig: {sys.executable} -m pip install ziglang")
    zig = (sys.executable, "-m", "ziglang")
    triple = f"{machine}-linux-gnu.{OLDEST_GLIBC}"
    there = replace(
        python,
        suffix=python.suffix.replace(platform.machine(), machine),
        link=("-shared",),
        flags=("-DNDEBUG", "-fwrapv"),
    )
    cc, cxx = ((*zig, one, "-target", triple, *_WITHOUT_SYMBOLS) for one in ("cc", "c++"))
    return Target(machine, cc, cxx, there, _WITHOUT_SYMBOLS, _OF_ZIG)


def _cc(python: Python) -> tuple[str, ...]:
    if os.environ.get("CC"):
        return tuple(shlex.split(os.environ["CC"]))
    # A Python built elsewhere names its builder's compiler, which may be missing here.
    return python.cc if shutil.which(python.cc[0]) else ("cc",)


def _cxx() -> tuple[str, ...]:
    return tuple(shlex.split(os.environ.get("CXX") or "c++"))


@functools.cache
def version_of(compiler: Sequence[str]) -> str:
    """Return the first line of a compiler's version text; empty without a compiler."""
    try:
        done = subprocess.run([*compiler, "--version"], capture_output=True, encoding="utf-8")
    except OSError:
        return ""
    return done.stdout.partition("\n")[0]
