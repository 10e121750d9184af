"""Decodes zstd frames if this Python can: its standard library supports zstd since 3.14."""

from __future__ import annotations

from io import BytesIO
from typing import NoReturn

from uhal.errors import InvalidImageError, NotSupportedError

MOST_EXPANSION = 1 << 15
"""Most output bytes per byte of a frame: a block of 2^17 takes at least 4 bytes (RFC 8878)."""
PART = 1 << 20
"""Bytes decoded at a time: decoders allocate the whole request."""


def decompress(frame: bytes, size: int, otherwise: str) -> bytes:
    """Decode a frame of exactly `size` bytes; decoding stops after `size` + 1 bytes.

    Uses the standard library (Python 3.14) or the `zstandard` package. Raises `InvalidImageError`
    if the frame is damaged or holds another number of bytes. Without either module it raises
    `NotSupportedError`; `otherwise` is the alternative for the user, such as "build with
    --no-compress".
    """
    if size > MOST_EXPANSION * len(frame):
        _fail(f"{len(frame)} bytes cannot hold {size}")
    try:
        output = _standard(frame, size)
    except ImportError:
        try:
            output = _packaged(frame, size)
        except ImportError:
            raise NotSupportedError(
                "this image is compressed with zstd, which this Python cannot read: "
                f"pip install zstandard, or {otherwise}"
            ) from None
    if len(output) != size:
        _fail(f"it holds {len(output)} bytes instead of {size}")
    return output


def _standard(frame: bytes, size: int) -> bytes:
    from compression import zstd

    decoder = zstd.ZstdDecompressor()
    output = BytesIO()
    try:
        # Decoding one byte more than expected detects a longer image.
        while output.tell() <= size and not decoder.eof:
            fresh = frame if output.tell() == 0 and decoder.needs_input else b""
            part = decoder.decompress(fresh, max_length=min(PART, size + 1 - output.tell()))
            if not part and decoder.needs_input:
                break
            output.write(part)
    except zstd.ZstdError as error:
        _fail(str(error))
    return output.getvalue()


def _packaged(frame: bytes, size: int) -> bytes:
    import zstandard

    output = BytesIO()
    try:
        # The decoder keeps a window in addition to its output.
        decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        with decoder.stream_reader(frame) as stream:
            while output.tell() <= size:
                part = stream.read(min(PART, size + 1 - output.tell()))
                if not part:
                    break
                output.write(part)
    except zstandard.ZstdError as error:
        _fail(str(error))
    return output.getvalue()


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"a compressed image is damaged: {problem}")
