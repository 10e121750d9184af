"""Standard streams, which a program may lack, and which may lack characters."""

from __future__ import annotations

from typing import TextIO


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
