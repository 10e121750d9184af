"""Runs the stale compile jobs of a build in parallel, the longest first.

A job is fresh when its output exists and the stamp beside the build holds the digest of its
inputs' contents and of its recipe. Times of files are never compared: a checkout changes them.
`build/cache` keeps outputs by digest, so a file that a clone and several wheels share is compiled
once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

OUTPUT = "{output}"
"""Placeholder in a command for the job's output file."""
MOST_WORKERS = 1024
CACHE_LIMIT = 512 << 20
"""Bytes of made files that are kept; a set of all wheels is some 60 MB."""


@dataclass(frozen=True)
class Job:
    """A file to make by running `commands` in turn; the last command writes `{output}`."""

    label: str
    output: Path
    inputs: tuple[Path, ...]
    commands: tuple[tuple[str, ...], ...]
    weight: int
    """Jobs with larger values start earlier; only the order matters."""
    tools: str = ""
    """Versions of the tools: another version makes the output stale."""

    def digest(self, root: Path) -> str:
        """Digest of everything the output depends on, independent of where the tree lies."""
        recipe = "\0".join("\0".join(command) for command in self.commands)
        result = hashlib.sha256(f"{self.tools}\n{recipe}\n".replace(str(root), "").encode())
        for path in sorted(self.inputs):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            result.update(f"{os.path.relpath(path, root)} {content}\n".encode())
        return result.hexdigest()


class BuildError(Exception):
    """A command of a job failed; the text is the command and its output."""


def build(jobs: Sequence[Job], root: Path) -> None:
    """Bring every output up to date. `BuildError` lists each failure, not only the first."""
    workers = _workers()
    stale = [job for job in jobs if not _is_fresh(job, root)]
    stale.sort(key=lambda job: job.weight, reverse=True)
    if not stale:
        _say(f"native parts: {len(jobs)} up to date")
        return
    noun = "core" if workers == 1 else "cores"
    _say(f"native parts: {len(stale)} of {len(jobs)} to build on {workers} {noun}")
    started = time.monotonic()
    progress = _Progress(len(stale))
    failures: list[str] = []
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(_run, job, root, progress): job for job in stale}
        for future in as_completed(running):
            try:
                future.result()
            except BuildError as error:
                failures.append(f"{running[future].label}: {error}")
    _prune(_cache(root))
    if failures:
        raise BuildError("\n\n".join(failures))
    _say(f"native parts: built in {time.monotonic() - started:.0f} s")


class _Progress:
    """Numbers jobs in the order they start."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = 0
        self._lock = threading.Lock()

    def start(self, label: str) -> None:
        with self._lock:
            self._started += 1
            width = len(str(self._total))
            _say(f"[{self._started:{width}}/{self._total}] {label}")


def _run(job: Job, root: Path, progress: _Progress) -> None:
    digest = job.digest(root)
    kept = _cache(root) / digest
    known = kept.exists()
    progress.start(f"{job.label}: kept from before" if known else f"{job.label} …")
    job.output.parent.mkdir(parents=True, exist_ok=True)
    # The finished file replaces the old file in one step: a process may have the old library
    # mapped, and a build may be interrupted.
    descriptor, name = tempfile.mkstemp(suffix=job.output.suffix, dir=job.output.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        if known:
            shutil.copyfile(kept, temporary)
            os.utime(kept)
        else:
            for command in job.commands:
                _execute([part.replace(OUTPUT, name) for part in command], root)
            _keep(temporary, kept)
        temporary.chmod(0o755)
        temporary.replace(job.output)
    finally:
        temporary.unlink(missing_ok=True)
    stamp = _stamp(job, root)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest, encoding="ascii")


def _keep(made: Path, kept: Path) -> None:
    """Copy a file into the cache in one step: builds of several checkouts may run at a time."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="unfinished-", dir=kept.parent)
    os.close(descriptor)
    shutil.copyfile(made, name)
    os.replace(name, kept)


def _prune(cache: Path) -> None:
    """Remove the least recently used files, down to the limit."""
    sizes = {path: path.stat() for path in cache.glob("*") if path.is_file()}
    total = sum(facts.st_size for facts in sizes.values())
    for path in sorted(sizes, key=lambda path: sizes[path].st_mtime_ns):
        if total <= CACHE_LIMIT:
            break
        path.unlink(missing_ok=True)
        total -= sizes[path].st_size


def _cache(root: Path) -> Path:
    return root / "build" / "cache"


def _execute(command: Sequence[str], root: Path) -> None:
    try:
        done = subprocess.run(
            [*_remembering(command), *command],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BuildError(f"exit status {done.returncode}\n$ {' '.join(command)}\n{done.stdout}")
    if done.stdout.strip():
        _say(done.stdout.rstrip())


def _remembering(command: Sequence[str]) -> tuple[str, ...]:
    """Compiler prefix for a cache that several checkouts share."""
    remembers = "-c" in command and shutil.which("ccache")
    return (remembers,) if remembers else ()


def _is_fresh(job: Job, root: Path) -> bool:
    try:
        return job.output.exists() and _stamp(job, root).read_text() == job.digest(root)
    except FileNotFoundError:
        return False


def _stamp(job: Job, root: Path) -> Path:
    # The path in the checkout is the key, so that a moved or copied checkout is not rebuilt.
    relative = os.path.relpath(job.output.resolve(), root.resolve())
    name = hashlib.sha256(relative.encode()).hexdigest()[:16]
    return root / "build" / "stamps" / f"{job.output.name}.{name}"


def _workers() -> int:
    wanted = os.environ.get("UHAL_BUILD_JOBS", "").strip()
    if wanted:
        # `uhal.environment` cannot be imported before the lane is built.
        if not re.fullmatch("[0-9]{1,4}", wanted) or not 1 <= int(wanted) <= MOST_WORKERS:
            raise BuildError(
                f"UHAL_BUILD_JOBS: expected a number from 1 to {MOST_WORKERS}, got "
                f"{wanted[:80]!r}; unset it for one a core"
            )
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _say(line: str) -> None:
    print(line, file=sys.stdout, flush=True)
