"""Writes to standard streams, which may be missing or lack characters."""

from __future__ import annotations

from typing import TextIO


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


def write(stream: TextIO | None, text: str) -> None:
    """Write text; escape characters that the stream's encoding lacks. None writes nothing."""
    if stream is None or not text:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


__all__ = ["controlled", "one_line", "write"]
