"""A file's pages, mapped read-only: a page is loaded on first access."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.files.errors import InvalidFileError, require_valid
from uhal.images.regular_file import require_file

Bytes = npt.NDArray[np.uint8]


class MappedFile:
    """One open file. Arrays over its pages keep the mapping alive. Any thread may use it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and map a file.

        Raises `OSError`, and `InvalidFileError` for an empty file, a folder, a FIFO or a device.
        """
        self.path = Path(path)
        require_file(self.path, InvalidFileError)
        self._descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            self.size = os.fstat(self._descriptor).st_size
            require_valid(
                self.size,
                self.path,
                "the file is empty",
            )
            pages = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise
        self.memory = memoryview(pages)
        """The file's pages, as bytes."""
        self.pages: Bytes = np.frombuffer(pages, np.uint8)
        """The file's pages as an array, read-only."""

    def view(self, start: int, nbytes: int) -> Bytes:
        """Return bytes of the file as a read-only view of its pages.

        Raises `InvalidFileError` if the file is too short, or was truncated after it was opened:
        touching missing pages would end the process.
        """
        self.require(start, nbytes)
        return self.pages[start : start + nbytes]

    def require(self, start: int, nbytes: int) -> None:
        """Raise `InvalidFileError` unless the file has these bytes at present."""
        require_valid(
            start + nbytes <= self.size,
            self.path,
            f"expected {nbytes} bytes at {start}, the file has {self.size}",
        )
        now = os.fstat(self._descriptor).st_size
        require_valid(
            start + nbytes <= now,
            self.path,
            f"expected {nbytes} bytes at {start}, the file has {now} now; it had "
            f"{self.size} when it was opened, and was cut short since",
        )

    def read_into(self, target: npt.NDArray[Any], start: int) -> None:
        """Fill an array of u8 from the file, without its pages. Raises as `view` does."""
        view = target.data
        done = 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], start + done)
            if count == 0:
                self.require(start, len(view))
                raise InvalidFileError(f"{self.path}: cannot be read beyond {start + done}")
            done += count

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
