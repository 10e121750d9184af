"""Decodes zstd frames where this Python can: its standard library has them since 3.14."""

from __future__ import annotations

from typing import NoReturn

from uhal.errors import InvalidImageError, NotSupportedError


def decompress(frame: bytes, size: int, otherwise: str) -> bytes:
    """Decode a frame that holds exactly `size` bytes; never makes more than one byte more.

    Uses the standard library (Python 3.14) or the `zstandard` package. Raises `InvalidImageError`
    when the frame is damaged or holds another number of bytes, `NotSupportedError` when there is
    neither module: `otherwise` says what else the user can do, as in "build with --no-compress".
    """
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

    try:
        # One byte more than wanted, so that a longer image shows.
        return bytes(zstd.ZstdDecompressor().decompress(frame, max_length=size + 1))
    except zstd.ZstdError as error:
        _fail(str(error))


def _packaged(frame: bytes, size: int) -> bytes:
    import zstandard

    try:
        # decompress() makes as many bytes as the frame promises, whatever its limit.
        promised = zstandard.frame_content_size(frame)
        if promised > size:
            _fail(f"it holds {promised} bytes instead of {size}")
        return bytes(zstandard.ZstdDecompressor().decompress(frame, max_output_size=size))
    except zstandard.ZstdError as error:
        _fail(str(error))


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"a compressed image is damaged: {problem}")
