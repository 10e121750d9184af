"""Errors of files of weights."""

from __future__ import annotations

from uhal.errors import InvalidImageError


class InvalidFileError(InvalidImageError):
    """A file of weights that is damaged, cut short, or not of the format that it claims."""


class FileWarning(UserWarning):
    """A file says something that is read otherwise than it may be meant, or not at all."""
