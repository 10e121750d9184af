"""Reads the file of an image, which gzip may have compressed."""

from __future__ import annotations

import zlib

from uhal.errors import InvalidImageError

MAGIC = b"\x1f\x8b"
MAX_BYTES = 1 << 28
"""Bytes of an image once decompressed."""
_WINDOW = 16 + zlib.MAX_WBITS


def is_gzipped(file: bytes) -> bool:
    """Say whether the bytes begin like a gzip file."""
    return file.startswith(MAGIC)


def unpacked(file: bytes, what: str) -> bytes:
    """Return the image in a file: the file itself, or its contents decompressed.

    `what` names the image in messages. Raises `InvalidImageError` if the compressed data are
    damaged, do not end at the end of the file, or hold more than `MAX_BYTES`.
    """
    if not is_gzipped(file):
        return file
    decoder = zlib.decompressobj(_WINDOW)
    try:
        # Decoding one byte more than the limit detects a longer image.
        image = decoder.decompress(file, MAX_BYTES + 1)
    except zlib.error as error:
        raise InvalidImageError(f"{what} is damaged: {error}") from error
    if len(image) > MAX_BYTES:
        raise InvalidImageError(f"{what} is damaged: it holds more than {MAX_BYTES:,} bytes")
    if not decoder.eof or decoder.unused_data:
        raise InvalidImageError(f"{what} is damaged: its compressed data end elsewhere")
    return image
