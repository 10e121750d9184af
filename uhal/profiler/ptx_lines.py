"""Lines of a PTX text and their lines in the source."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOCATION = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+")
_FUNCTION = re.compile(r"\.(entry|func)\b")


class SourceLine(NamedTuple):
    """A line of a text, and its source position."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class PtxLines:
    """A PTX text by its lines, counted from 1."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Names and directives are ASCII; comments may hold anything.
        self._lines = _lines(path)
        self._files = {
            found[1]: found[2] for one in self._lines if (found := _FILE.match(one)) is not None
        }
        self._sources = self._find_sources()

    def _find_sources(self) -> list[tuple[str, int] | None]:
        """Source file and line of each PTX line, from the last `.loc` in its function."""
        sources: list[tuple[str, int] | None] = []
        last: tuple[str, int] | None = None
        for one in self._lines:
            found = _LOCATION.match(one)
            if found is not None:
                file = self._files.get(found[1])
                last = (file, int(found[2])) if file is not None and found[2] != "0" else None
            elif _FUNCTION.search(one):
                last = None
            sources.append(last)
        return sources

    def location(self, line: int) -> SourceLine:
        """The source's line if the text names it (nvcc's -lineinfo), else the PTX line."""
        source = self._sources[line - 1] if 0 < line <= len(self._sources) else None
        if source is None:
            return SourceLine(self.path, line, self.instruction(line))
        file, at = source
        lines = _lines(file)
        return SourceLine(file, at, lines[at - 1].strip() if at <= len(lines) else "")

    def instruction(self, line: int) -> str:
        """The instruction in a line of the text; empty for a line out of range."""
        return self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""


@functools.lru_cache(maxsize=32)
def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_bytes().decode("latin-1").splitlines())
    except OSError:
        return ()


__all__ = ["PtxLines", "SourceLine"]
