"""Translated kernels as shared libraries, kept between processes.

A library's name is made of everything its bytes depend on: the PTX text, the kernel, the
translator's own sources, the processor. Files appear by renaming, so processes may share a folder.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from simulators.ptx.parser import parse
from simulators.ptx.program import Program

if TYPE_CHECKING:
    from simulators.ptx.checks import Check

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "runtime"
NUMERICS = RUNTIME / "numerics.c"
COMPILER = os.environ.get("CC", "cc")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


class BuildError(Exception):
    """The C compiler failed; the text is what it said."""


def folder() -> Path:
    """Where libraries are kept: UHAL_SIM_CACHE, or a folder of the user's."""
    chosen = os.environ.get("UHAL_SIM_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "uhal" / "ptx"


@functools.cache
def translator_version() -> str:
    """A hash of the translator's sources and of the LLVM it uses."""
    import llvmlite

    digest = hashlib.sha256(str(llvmlite.__version__).encode())
    for source in sorted([*HERE.glob("*.py"), *RUNTIME.iterdir()]):
        if source.is_file():
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def kernel_library(
    text: str, entry: str, check: Check = "on", program: Program | None = None
) -> Path:
    """The library of one kernel of a PTX text, translated when it is not there yet.

    It exports `uptx_kernel`, a `struct uptx_kernel` of runtime/ptx.h; with other checks it is
    another library, so that one without them pays for none. Raises `PtxError` for what
    cannot be translated and `BuildError` when there is no working C compiler to link with.
    """
    from simulators.ptx.translate import cpu_features

    made_of = "\0".join((text, entry, check, translator_version(), cpu_features()))
    name = hashlib.sha256(made_of.encode()).hexdigest()[:40]
    target = folder() / f"{name}.so"
    if not target.exists():
        make_library(parse(text) if program is None else program, entry, check, target)
    return target


def make_library(program: Program, entry: str, check: Check, target: Path) -> None:
    """Translate a kernel into a library at `target`; raises what `kernel_library` does."""
    from simulators.ptx.translate import compile_object, translate

    code = compile_object(translate(program, entry, check).ir)
    numerics = _numerics_object()
    with tempfile.TemporaryDirectory(dir=_made(target.parent)) as scratch:
        kernel = Path(scratch) / "kernel.o"
        kernel.write_bytes(code)
        linked = Path(scratch) / "kernel.so"
        # -z defs: a helper that is missing shows here and not in the middle of a launch.
        _run("-shared", "-Wl,-z,defs", "-o", str(linked), str(kernel), str(numerics), "-lm")
        os.replace(linked, target)


def runtime_library() -> Path:
    """The run time as a library of its own, for processes that are no simulated driver."""
    sources = sorted(one for one in RUNTIME.glob("*.c") if one != NUMERICS)
    target = folder() / f"runtime-{translator_version()[:32]}.so"
    if not target.exists():
        _compile(target, "-shared", "-pthread", *map(str, sources), "-lm")
    return target


def _numerics_object() -> Path:
    target = folder() / f"numerics-{translator_version()[:32]}.o"
    if not target.exists():
        # Contraction would fuse what PTX keeps apart.
        _compile(target, "-c", "-ffp-contract=off", "-frounding-math", str(NUMERICS))
    return target


def _compile(target: Path, *arguments: str) -> None:
    with tempfile.TemporaryDirectory(dir=_made(target.parent)) as scratch:
        made = Path(scratch) / target.name
        _run(*_FLAGS, "-o", str(made), *arguments)
        os.replace(made, target)


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _run(*arguments: str) -> None:
    try:
        done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{COMPILER} cannot be started: {error}") from None
    if done.returncode:
        raise BuildError(f"{COMPILER} failed:\n{done.stderr.strip()}")
