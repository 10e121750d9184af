"""Translated kernels as shared libraries, kept between processes.

A library's name is made of everything its bytes depend on: the PTX text, the kernel, the
translator's own sources, the processor. Only kernels that count depend on count.py and the run
time's count.h. A complete file is renamed into place, so processes may share a folder.

Libraries are code: they are loaded from a folder that only this user can write to, and only if they
belong to this user. A folder beyond its limit loses its least recently used files.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import linking
from .linking import BuildError as BuildError
from .parser import parse
from .program import Program

if TYPE_CHECKING:
    from .sites import Check

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "runtime"
NUMERICS = RUNTIME / "numerics.c"
LIMIT_VARIABLE = "UHAL_SIM_CACHE_LIMIT"
USUAL_LIMIT = "1G"
RECENT_SECONDS = 3600
"""Seconds for which used files stay: a loaded module may still need its text."""
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_OURS = re.compile(r"[0-9a-f]{40}\.(so|ptx|module)|(runtime|numerics)-[0-9a-f]{32}\.(so|o)")


class CacheError(BuildError):
    """The folder of translated kernels is not this user's alone, or has an impossible limit."""


def folder() -> Path:
    """Where libraries are kept: UHAL_SIM_CACHE, or a folder of the user's."""
    chosen = os.environ.get("UHAL_SIM_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "uhal" / "ptx"


def private(path: Path) -> Path:
    """Return a folder, made if need be. `CacheError` unless only this user can write to it."""
    path.mkdir(0o700, parents=True, exist_ok=True)
    _require_own(path, path.stat())
    return path


def usable(path: Path) -> bool:
    """Say whether a file of the cache is there, and note that it is used.

    Raises `CacheError` for a file that another user made or can change.
    """
    private(path.parent)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise CacheError(f"{path} is no file: delete it. {_ELSEWHERE}")
    _require_own(path, found)
    os.utime(path)
    return True


_ELSEWHERE = "UHAL_SIM_CACHE names another folder"


def _require_own(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise CacheError(
            f"{path} belongs to user {found.st_uid} and not to user {os.geteuid()}: translated "
            f"kernels in it are not trusted. {_ELSEWHERE}"
        )
    if found.st_mode & 0o022:
        raise CacheError(
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o}): translated "
            f"kernels in it are not trusted. chmod go-w makes it yours. {_ELSEWHERE}"
        )


def limit() -> int:
    """Return the bytes that the folder may have: UHAL_SIM_CACHE_LIMIT. `CacheError` for others."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip() or USUAL_LIMIT
    found = re.fullmatch(r"(\d{1,18})([KMGT]?)", text)
    if found is None:
        raise CacheError(f"{LIMIT_VARIABLE}: expected bytes such as 512M or 2G, got {text[:80]!r}")
    return int(found[1]) << _UNITS[found[2]]


def prune(path: Path) -> None:
    """Remove the least recently used files, down to three quarters of the limit."""
    most = limit()
    kept = []
    with os.scandir(path) as found:
        for one in found:
            if _OURS.fullmatch(one.name) and one.is_file(follow_symlinks=False):
                facts = one.stat(follow_symlinks=False)
                kept.append((facts.st_mtime, facts.st_size, one.path))
    total = sum(size for _, size, _ in kept)
    if total <= most:
        return
    for used, size, name in sorted(kept):
        if total <= most * 3 // 4 or used > time.time() - RECENT_SECONDS:
            return
        Path(name).unlink(missing_ok=True)
        total -= size


@functools.cache
def translator_version(check: Check = "on") -> str:
    """A hash of the sources a kernel's code depends on and of the LLVM it is made with."""
    import llvmlite

    sources = {*HERE.glob("*.py"), RUNTIME / "ptx.h", RUNTIME / "count.h", NUMERICS}
    if check != "count":
        sources -= {HERE / "count.py", RUNTIME / "count.h"}
    return _digest(str(llvmlite.__version__), sources)


@functools.cache
def _runtime_version() -> str:
    return _digest("", {HERE / "linking.py", *RUNTIME.iterdir()})


def _digest(first: str, sources: set[Path]) -> str:
    digest = hashlib.sha256(first.encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def kernel_library(
    text: str, entry: str, check: Check = "on", program: Program | None = None
) -> Path:
    """The library of one kernel of a PTX text, translated when it is not there yet.

    It exports `uptx_kernel`, a `struct uptx_kernel` of runtime/ptx.h; with other checks it is
    another library, so that one without them pays for none. Raises `PtxError` for what
    cannot be translated, `BuildError` when there is no working C compiler to link with and
    `CacheError` when the folder is not to be trusted.
    """
    from .translate import cpu_features

    made_of = "\0".join((text, entry, check, translator_version(check), cpu_features()))
    name = hashlib.sha256(made_of.encode()).hexdigest()[:40]
    target = folder() / f"{name}.so"
    if not usable(target):
        make_library(parse(text) if program is None else program, entry, check, target)
    return target


def make_library(program: Program, entry: str, check: Check, target: Path) -> None:
    """Translate a kernel into a library at `target`; raises what `kernel_library` does."""
    from .translate import compile_object, translate

    limit()
    code = compile_object(translate(program, entry, check))
    numerics = _numerics_object()
    with tempfile.TemporaryDirectory(dir=private(target.parent)) as scratch:
        kernel = Path(scratch) / "kernel.o"
        kernel.write_bytes(code)
        linked = Path(scratch) / "kernel.so"
        linking.link(linked, (kernel, numerics))
        _appear(linked, target)
    prune(target.parent)


def runtime_library() -> Path:
    """The run time as a library of its own, for processes that are no simulated driver."""
    sources = sorted(one for one in RUNTIME.glob("*.c") if one != NUMERICS)
    target = folder() / f"runtime-{_runtime_version()[:32]}.so"
    if not usable(target):
        with tempfile.TemporaryDirectory(dir=private(target.parent)) as scratch:
            objects = [Path(scratch) / f"{source.stem}.o" for source in sources]
            for source, made in zip(sources, objects, strict=True):
                linking.compile_object(source, made)
            linked = Path(scratch) / target.name
            linking.link(linked, objects)
            _appear(linked, target)
    return target


def _numerics_object() -> Path:
    target = folder() / f"numerics-{translator_version()[:32]}.o"
    if not usable(target):
        with tempfile.TemporaryDirectory(dir=private(target.parent)) as scratch:
            made = Path(scratch) / target.name
            # Contraction would fuse operations that PTX keeps separate.
            linking.compile_object(NUMERICS, made, "-ffp-contract=off", "-frounding-math")
            _appear(made, target)
    return target


def _appear(made: Path, target: Path) -> None:
    # Set whatever the umask: a file that others can write would not be loaded.
    made.chmod(0o600)
    os.replace(made, target)
