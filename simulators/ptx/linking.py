"""Makes objects of the run time's C files and libraries of objects, with the machine's tools.

The compiler is `CC`, else `cc`. Without either, the wheel `ziglang` has clang and a linker. Linking
by its compiler would first build a C library's start-up code for half a minute. So its linker is
called directly, with the libraries that this process has loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
PACKAGE = "ziglang"
INSTALL = 'pip install "uhal-py[kernels]"'
_LOADERS = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
LIBRARIES = ("libm.so.6", "libgcc_s.so.1", "libc.so.6", *_LOADERS)
"""Libraries of called functions: mathematics, conversions of halves for processors without them,
and the loader's for variables of threads."""


class BuildError(Exception):
    """The compiler or the linker failed; the text is its output."""


def compile_object(source: Path, output: Path, *options: str) -> None:
    """Compile a C file to an object. `BuildError` has the compiler's output."""
    compiler = [*_zig("cc")] if _lacks_compiler() else _compiler()
    _run([*compiler, *FLAGS, *options, "-c", "-o", str(output), str(source)])


def link(output: Path, objects: Sequence[Path]) -> None:
    """Make a shared library of objects; a helper that is missing is a `BuildError` here.

    Without `-z defs` it would be an error during a launch.
    """
    made = ["-o", str(output), *map(str, objects)]
    if _lacks_compiler():
        libraries = [path for name in LIBRARIES if (path := _loaded(name))]
        _run([*_zig("ld.lld"), "-shared", "-z", "defs", *made, "--as-needed", *libraries])
    else:
        _run([*_compiler(), "-shared", "-pthread", "-Wl,-z,defs", *made, "-lm"])


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def _lacks_compiler() -> bool:
    wanted = os.environ.get("CC") or shutil.which("cc")
    return not wanted and importlib.util.find_spec(PACKAGE) is not None


def _zig(tool: str) -> list[str]:
    return [sys.executable, "-m", PACKAGE, tool]


def _loaded(name: str) -> str | None:
    """Path where the loader finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2] == name:
            return f"/{path}"
    return None


def _run(command: list[str]) -> None:
    named = shlex.join(command[: 4 if command[0] == sys.executable else 1])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(
            f"{named} cannot be started: {error}. Install a C compiler, set CC to one, or "
            f"{INSTALL}, which brings clang"
        ) from None
    if done.returncode:
        raise BuildError(f"{named} failed:\n{done.stderr.strip()}")
