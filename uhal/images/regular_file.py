"""Checks of paths, and of files before they are opened: a FIFO would wait for its writer."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError, InvalidImageError

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


def path_of(what: str, path: object) -> Path:
    """Return a path that the system can take; messages begin with `what`.

    Raises `ArgumentTypeError` for another type, and `ArgumentValueError` for a path with a NUL or
    with characters that file names cannot have.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{what}: expected a str or a path, got {type(text).__name__}")
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        raise ArgumentValueError(f"{what}: expected a name of a file, got {text!r}") from None
    if b"\0" in encoded:
        raise ArgumentValueError(f"{what}: expected no NUL in it, got {text!r}")
    return Path(text)


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
