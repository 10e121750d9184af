"""Folders of compiled kernels and packages that later runs of tests find again."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest


def kept_folder(config: pytest.Config, name: str) -> Path:
    """Return a folder in pytest's cache; without that cache it ends with this process."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is not None:
        return cache.mkdir(name)
    # pytest -p no:cacheprovider
    folder = Path(_temporary().name, name)
    folder.mkdir(exist_ok=True)
    return folder


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="uhal-tests-")
