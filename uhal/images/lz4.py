"""Decodes LZ4 blocks, the compression of NVIDIA's fatbins under `--compress-mode=speed`.

The format is LZ4's block format: sequences of a token, literals, and a match of earlier output.
"""

from __future__ import annotations

from io import SEEK_END, BytesIO
from typing import NoReturn

from uhal.errors import InvalidImageError

MIN_MATCH = 4
LONG = 15
"""A length field of this value goes on in further bytes."""
MOST_EXPANSION = 255
"""Bytes that one byte of a block can stand for: one more byte of a length."""
RUN = 1 << 16
"""Bytes at least that a repeated pattern is written in."""


def decompress(block: bytes, size: int) -> bytes:
    """Decode a block that holds exactly `size` bytes.

    Takes time in proportion to `block` and `size`, and little memory beside the `size` bytes.
    Raises `InvalidImageError` when the block is damaged or holds another number of bytes.
    """
    if size > MOST_EXPANSION * len(block):
        _fail(f"{len(block)} bytes cannot hold {size}")
    # Its bytes become the result without a copy.
    output = BytesIO()
    made = 0
    position = 0
    while True:
        if position >= len(block):
            _fail("it breaks off")
        token = block[position]
        position += 1
        literals, position = _length(block, position, token >> 4)
        if position + literals > len(block) or made + literals > size:
            _fail("literals reach beyond its end")
        made += output.write(memoryview(block)[position : position + literals])
        position += literals
        if position == len(block):
            # The last sequence has no match.
            break
        if position + 2 > len(block):
            _fail("it breaks off")
        distance = block[position] | block[position + 1] << 8
        length, position = _length(block, position + 2, token & LONG)
        length += MIN_MATCH
        if not 0 < distance <= made or made + length > size:
            _fail("a match reaches beyond the output")
        _repeat(output, made - distance, distance, length)
        made += length
    if made != size:
        _fail(f"it holds {made} bytes instead of {size}")
    return output.getvalue()


def _repeat(output: BytesIO, start: int, distance: int, length: int) -> None:
    """Append `length` bytes: those from `start` to the end, over and over."""
    output.seek(start)
    pattern = output.read(min(distance, length))
    output.seek(0, SEEK_END)
    if length > distance:
        pattern *= -(-min(RUN, length) // distance)
    for done in range(0, length, len(pattern)):
        output.write(pattern if len(pattern) <= length - done else pattern[: length - done])


def _length(block: bytes, position: int, length: int) -> tuple[int, int]:
    if length < LONG:
        return length, position
    while True:
        if position >= len(block):
            _fail("it breaks off")
        more = block[position]
        position += 1
        length += more
        if more != 255:
            return length, position


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this LZ4 block is damaged: {problem}")
