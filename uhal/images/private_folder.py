"""Folders of one user, for code that this process will run.

Nobody else may write to such a folder. The translator of the simulated CUDA driver imports nothing
of uhal and has the same rules in `simulators/ptx/cache.py`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def user_cache(name: str) -> Path:
    """Return uhal's folder of this name in the user's cache. `OSError` without a home folder."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        cache = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(f"no folder for a cache: {error}. Set XDG_CACHE_HOME") from None
    return cache / "uhal" / name


def private_folder(folder: Path) -> Path:
    """Return a folder that only this user can write to; create missing folders.

    New folders have mode 0700 for any umask. Raises `OSError`, and `PermissionError` for a folder
    that belongs to another user or that others can write to.
    """
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            one.mkdir(0o700)
            one.chmod(0o700)
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is no folder")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user: its code is not trusted")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError(f"{folder} may be written by others: chmod go-w it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder


def read_own(path: Path, most: int) -> bytes | None:
    """Return the contents of this user's file; `None` for any other file or a longer one.

    Does not follow links, and does not wait for a FIFO or a device at the path.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not is_own or found.st_mode & _WRITABLE_BY_OTHERS or found.st_size > most:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
