"""Splits PTX text into statements with lines, without comments, with matched braces."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import PtxSyntaxError

MAX_CHARACTERS = 256 << 20

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|/\*', re.DOTALL)
_LINE_DIRECTIVE = re.compile(r"^[ \t]*\.(?:loc|file)[ \t][^\n]*", re.MULTILINE)
_MARK = re.compile(r'[;{}]|"[^"]*"')
_BLANKS = re.compile(r"\s*")
_LABEL = re.compile(r"\s*([\w$%]+)\s*:(?!:)")


def clean(text: str) -> str:
    """Blank out comments and directives without a semicolon; line numbers stay the same."""
    if len(text) > MAX_CHARACTERS:
        raise PtxSyntaxError(f"the text has {len(text)} characters, {MAX_CHARACTERS} are read")

    def blank(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            return found[0]
        if found[0] == "/*":
            raise PtxSyntaxError(
                "a comment is never closed", text.count("\n", 0, found.start()) + 1
            )
        return " " + "\n" * found[0].count("\n")

    return _LINE_DIRECTIVE.sub("", _COMMENT_OR_STRING.sub(blank, text))


class Lines:
    """Finds the line of a position in a text."""

    def __init__(self, text: str, first: int = 1) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._first = first

    def at(self, position: int) -> int:
        """The line of a position."""
        return bisect_right(self._starts, position) - 1 + self._first


@dataclass(frozen=True)
class Piece:
    """A statement, or the text before a block."""

    text: str
    line: int
    ended_by: str
    """`;`, `{` or `}`; `:` for a label."""
    end: int
    """Position where the text continues."""


def pieces(text: str, lines: Lines, position: int = 0) -> Iterator[Piece]:
    """Cut a text at semicolons, labels and the braces of blocks.

    Braces inside a statement, of vectors and initializers, belong to it.
    """
    while True:
        start = _skip_blanks(text, position)
        label = _LABEL.match(text, start)
        if label is not None:
            position = label.end()
            yield Piece(label[1], lines.at(start), ":", position)
            continue
        mark = _next_mark(text, start)
        if mark is None:
            if text[start:].strip():
                raise PtxSyntaxError("it breaks off in the middle of a statement", lines.at(start))
            return
        before = text[start : mark.start()].strip()
        if mark[0] == "{" and before and not _is_head(before):
            mark = _statement_end(text, mark, lines)
            before = text[start : mark.start()].strip()
        position = mark.end()
        yield Piece(before, lines.at(start), mark[0], position)


def block_end(text: str, position: int, line: int) -> int:
    """Return the index of the `}` of the block that opened just before `position`."""
    depth = 1
    for mark in _MARK.finditer(text, position):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.start()
    raise PtxSyntaxError("a block is never closed", line)


def _skip_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    assert found is not None
    return found.end()


def _next_mark(text: str, position: int) -> re.Match[str] | None:
    for mark in _MARK.finditer(text, position):
        if mark[0][0] != '"':
            return mark
    return None


def _is_head(before: str) -> bool:
    return re.search(r"(?:^|\s)\.(?:entry|func)\s", before) is not None or before.startswith(
        ".section"
    )


def _statement_end(text: str, mark: re.Match[str], lines: Lines) -> re.Match[str]:
    depth = 1
    for following in _MARK.finditer(text, mark.end()):
        depth += {"{": 1, "}": -1}.get(following[0], 0)
        if following[0] == ";" and depth == 0:
            return following
        if depth < 0:
            break
    raise PtxSyntaxError("a statement's braces do not match", lines.at(mark.start()))
