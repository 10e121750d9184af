"""Programs built or translated for a device, kept from process to process.

The files are private to one user, because a program is code that this process will run. Each is
written to a temporary file and moved, and checked when it is read. A damaged file is dropped, and
its program built anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 256 << 20
"""Bytes of all files. Above it, the least recently used go, down to three quarters."""

_MAGIC = b"uhalCL1\n"
_DIGEST_BYTES = 32
_SUFFIX = ".bin"


class ProgramCache:
    """A folder of programs by key. Any thread and any process may use it.

    Without a folder that is safe to use nothing is found and nothing is kept: `refusal` says why.
    """

    def __init__(self, folder: Path | None, max_bytes: int = MAX_BYTES) -> None:
        """Make the folder if it is not there; `None` keeps nothing."""
        self._folder = folder
        self._max_bytes = max_bytes
        self.refusal = "" if folder is not None else "it is switched off"
        if folder is None:
            return
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.refusal = _fault_of(folder)
        except OSError as error:
            self.refusal = str(error)

    @classmethod
    def of_user(cls, backend: str) -> ProgramCache:
        """Return a backend's cache: the folder that its variable names, else uhal's for the user.

        `UHAL_<BACKEND>_CACHE=off` disables the cache.
        """
        variable = f"UHAL_{backend.upper()}_CACHE"
        reported = os.environ.get(variable, "")
        if reported == "off":
            switched_off = cls(None)
            switched_off.refusal = f"{variable}=off"
            return switched_off
        base = os.environ.get("XDG_CACHE_HOME") or ""
        try:
            home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
        except RuntimeError:  # a user without a home
            return cls(Path(reported)) if reported else cls(None)
        return cls(Path(reported) if reported else home / "uhal" / backend)

    @property
    def folder(self) -> Path | None:
        """Folder of the cached programs, `None` without a cache."""
        return None if self.refusal else self._folder

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Let one process at a time find, build and keep the program of a key.

        Others that ask for it wait for the first, and then find it.
        """
        folder = self.folder
        if folder is None:
            yield
            return
        # Few files for all keys: they are never removed, for somebody may hold one.
        name = folder / f"lock-{key[:1]}"
        try:
            lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            yield
            return
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def find(self, key: str) -> bytes | None:
        """Return the program of a key, `None` when there is none that is whole."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest = content[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
        program = content[len(_MAGIC) + _DIGEST_BYTES :]
        if not content.startswith(_MAGIC) or _digest(key, program) != digest:
            self.forget(key)
            return None
        return program

    def keep(self, key: str, program: bytes) -> None:
        """Write the program of a key, if possible; old programs make room for it."""
        if self.folder is None or len(program) > self._max_bytes // 4:
            return
        path = self._path(key)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(_MAGIC + _digest(key, program) + program)
            os.replace(unfinished, path)
            self._bound()
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def forget(self, key: str) -> None:
        """Remove the program of a key."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{key}{_SUFFIX}"

    def _bound(self) -> None:
        assert self._folder is not None
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # Also temporary files of a process that was killed.
                if _SUFFIX in entry.name:
                    reported = entry.stat(follow_symlinks=False)
                    found.append((reported.st_mtime, reported.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        if total <= self._max_bytes:
            return
        for _, size, path in sorted(found):
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
            if total <= self._max_bytes // 4 * 3:
                return


def key_of(*parts: bytes | str) -> str:
    """Return the key of a program that is made of these."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def _digest(key: str, program: bytes) -> bytes:
    return hashlib.sha256(key.encode() + program).digest()


def _fault_of(folder: Path) -> str:
    """Why a folder is not safe to run code from; empty when it is."""
    reported = folder.stat()
    if not stat.S_ISDIR(reported.st_mode):
        return f"{folder} is no folder"
    if reported.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if reported.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{folder} may be written by others: chmod go-w it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written"
    return ""
