"""Programs built or translated for a device, kept from process to process.

The files are private to one user, because a program is code that this process will run. Each file
is written under a temporary name, renamed, and checked on reading. A damaged file is deleted, and
the program is built again. Other files in the folder stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from uhal import environment
from uhal.images.private_folder import private_folder, read_own, user_cache

MAX_BYTES = 256 << 20
"""Byte limit of all files. Above it, least recently used files are deleted, down to 3/4."""

_MAGIC = b"uhalCL1\n"
_DIGEST_BYTES = 32
_SUFFIX = ".bin"
_OWN_NAME = re.compile(r"[0-9a-f]{64}\.bin|\.[0-9a-f]{64}\.bin\.[0-9]+")
"""Names of programs, and of temporary files, which a killed process leaves behind."""


class ProgramCache:
    """A folder of programs by key. Any thread and any process may use it.

    Without a safe folder the cache finds and keeps nothing; `refusal` has the reason.
    """

    def __init__(self, folder: Path | None, max_bytes: int = MAX_BYTES) -> None:
        """Make the folder if it is missing; `None` keeps nothing."""
        self._folder = folder
        self._max_bytes = max_bytes
        self.refusal = "" if folder is not None else "it is switched off"
        if folder is None:
            return
        try:
            private_folder(folder)
        except OSError as error:
            self.refusal = str(error)

    @classmethod
    def of_user(cls, backend: str) -> ProgramCache:
        """Return a backend's cache: `uhal/<backend>` in the folder that its variable names.

        The variable is `UHAL_<BACKEND>_CACHE`; `off` disables the cache. Without the variable, the
        folder is the user's cache.
        """
        variable = f"UHAL_{backend.upper()}_CACHE"
        given = environment.read(variable)
        if given == "off":
            return cls._refused(f"{variable}=off")
        try:
            return cls(Path(given) / "uhal" / backend if given else user_cache(backend))
        except OSError as error:
            return cls._refused(str(error))

    @classmethod
    def _refused(cls, reason: str) -> ProgramCache:
        made = cls(None)
        made.refusal = reason
        return made

    @property
    def folder(self) -> Path | None:
        """Folder of the cached programs, `None` without a cache."""
        return None if self.refusal else self._folder

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Let one process at a time find, build and keep the program of a key.

        Other processes wait for the first, and then find the program.
        """
        folder = self.folder
        if folder is None:
            yield
            return
        # Few lock files serve all keys. Lock files are never removed, because a process may hold
        # one.
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
        """Return the program of a key, `None` if its file is missing or damaged."""
        if self.folder is None:
            return None
        path = self._path(key)
        content = read_own(path, self._max_bytes)
        if content is None:
            self.forget(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        digest = content[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
        program = content[len(_MAGIC) + _DIGEST_BYTES :]
        if not content.startswith(_MAGIC) or _digest(key, program) != digest:
            self.forget(key)
            return None
        return program

    def keep(self, key: str, program: bytes) -> None:
        """Write the program of a key if possible; remove old programs to limit the size."""
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
                if _OWN_NAME.fullmatch(entry.name):
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
    """Return the key of a program made from these parts."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def _digest(key: str, program: bytes) -> bytes:
    return hashlib.sha256(key.encode() + program).digest()
