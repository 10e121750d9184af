"""Splits PTX into statements, without comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from uhal.errors import InvalidImageError

_COMMENT_OR_STRING = re.compile(r'//|/\*|"')
_LINE_DIRECTIVE = re.compile(r"^[ \t]*\.(?:loc|file)\s[^\n]*", re.MULTILINE)
"""The two directives in a body that end without a semicolon."""
_FUNCTION = re.compile(r"(?:^|\s)\.(?:entry|func)\s")
_BREAK = re.compile(r'[;{}"]')


def code_of(text: str) -> str:
    """Return the text without comments and without directives for source lines."""
    return _LINE_DIRECTIVE.sub("", _without_comments(text))


def _without_comments(text: str) -> str:
    kept: list[str] = []
    position = 0
    while True:
        found = _COMMENT_OR_STRING.search(text, position)
        if found is None:
            kept.append(text[position:])
            return "".join(kept)
        mark = found[0]
        if mark == '"':
            end = _string_end(text, found.end())
            kept.append(text[position:end])
        elif mark == "//":
            kept.append(text[position : found.start()])
            end = text.find("\n", found.end())
            end = len(text) if end < 0 else end
        else:
            kept.append(text[position : found.start()] + " ")
            end = text.find("*/", found.end()) + 2
            if end < 2:
                fail("a comment is never closed")
        position = end


def _string_end(text: str, position: int) -> int:
    end = text.find('"', position)
    if end < 0:
        fail("a string is never closed")
    return end + 1


def statements(code: str, position: int) -> Iterator[tuple[str, str]]:
    """Yield (text, end): the end is `;`, `{` if a block begins, or `}` if a block ends.

    Braces within a statement (vectors, initializers) stay part of it.
    """
    start = position
    inner = 0
    has_braces = False
    while True:
        found = _BREAK.search(code, position)
        if found is None:
            break
        position = found.end()
        mark = found[0]
        if mark == '"':
            position = _string_end(code, position)
            continue
        if mark == "{" and not has_braces:
            has_braces = not _opens_block(code[start : found.start()])
        if inner or (mark == "{" and has_braces):
            inner += {"{": 1, "}": -1}.get(mark, 0)
            continue
        yield code[start : found.start()].strip(), mark
        start = position
        has_braces = False
    if inner or code[start:].strip():
        fail("it breaks off in the middle of a statement")


def _opens_block(before: str) -> bool:
    """Say whether a `{` after this text begins a block: after nothing, a label or a head."""
    head = before.strip()
    if not head or head.endswith(":"):
        return True
    return head.startswith(".section") or _FUNCTION.search(head) is not None


def fail(problem: str) -> NoReturn:
    """Refuse the text. Raises `InvalidImageError`."""
    raise InvalidImageError(f"this PTX cannot be read: {problem}")
