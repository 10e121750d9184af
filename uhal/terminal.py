"""Writes to standard streams, which may be missing or lack characters."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TextIO

_SIMPLER = {
    **{"…": "...", "—": "-", "·": ".", "×": "x", "µ": "u", "±": "+-"},
    **{"→": "->", "←": "<-", "≤": "<=", "≥": ">="},
}
"""What replaces a character of our texts where an encoding lacks the character."""


def one_line(text: str) -> str:
    """Return text on one line: control characters, such as a newline or ESC, become escapes.

    Names in files, of devices and of ranges are untrusted: a terminal must not execute them.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def controlled(text: str) -> str:
    """Return text with its newlines, and other control characters as escapes."""
    return "\n".join(map(one_line, text.split("\n")))


def encodable(text: str, encoding: str) -> str:
    """Return text with simpler characters, or escapes, for those that an encoding lacks."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_encodable(one, encoding) for one in text)
    except LookupError:
        pass
    return text


def _encodable(one: str, encoding: str) -> str:
    try:
        one.encode(encoding)
    except UnicodeEncodeError:
        return _SIMPLER.get(one) or one.encode(encoding, "backslashreplace").decode(encoding)
    return one


def printable(text: str) -> str:
    """Return text that `print` can write: standard output may lack characters, and raise."""
    if text.isascii():
        return text
    encoding = getattr(sys.stdout, "encoding", None)
    return encodable(text, encoding) if isinstance(encoding, str) else text


def write(stream: TextIO | None, text: str) -> None:
    """Write text; replace characters that the stream's encoding lacks. None writes nothing."""
    if stream is None or not text:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(encodable(text, stream.encoding or "ascii"))
    stream.flush()


def accept_every_character() -> None:
    """Let standard output write escapes for the characters that its encoding lacks."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


__all__ = ["accept_every_character", "controlled", "encodable", "one_line", "printable", "write"]
