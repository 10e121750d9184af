"""Check for a regular file before it is opened: a FIFO would wait for its writer."""

from __future__ import annotations

import os
import stat

from uhal.errors import DeviceError, InvalidImageError

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


def require_file(
    path: str | os.PathLike[str], error: type[DeviceError] = InvalidImageError
) -> None:
    """Refuse a folder, a FIFO, a socket or a device where a file is expected.

    Raises `error`, or `OSError` if the path does not exist.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        given = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise error(f"{os.fspath(path)}: expected a file, got {given}")
