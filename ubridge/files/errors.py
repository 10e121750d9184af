"""Errors of files of weights."""

from __future__ import annotations

from uhal.errors import InvalidImageError


class InvalidFileError(InvalidImageError):
    """A damaged or truncated file of weights, or another format."""


class FileWarning(UserWarning):
    """A file's setting that is ignored, or read with another meaning."""


def require_valid(holds: object, where: object, what: str) -> None:
    """Raise `InvalidFileError` about the file `where` unless the condition holds."""
    if not holds:
        raise InvalidFileError(f"{where}: {what}")
