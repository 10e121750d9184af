"""Decodes LZ4 blocks, the compression of NVIDIA's fatbins under `--compress-mode=speed`.

The format is LZ4's block format: sequences of a token, literals, and a match of earlier output.
"""

from __future__ import annotations

from io import BytesIO
from typing import NoReturn

from uhal.errors import InvalidImageError

MIN_MATCH = 4
LONG = 15
"""A length field of this value continues in the next bytes."""
MOST_EXPANSION = 255
"""Most output bytes per byte of a block: a byte that continues a length."""
REACH = (1 << 16) - 1
"""Largest distance of a match, in bytes."""
RUN = 1 << 16
"""Least bytes of the pieces that repeat a pattern in the output."""
MOST_RECENT = 1 << 18
"""Most bytes that are collected before they are appended to the output."""


def decompress(block: bytes, size: int) -> bytes:
    """Decode a block that holds exactly `size` bytes.

    Time is proportional to `block` and `size`; memory is `size` bytes and little more than `block`
    takes. Raises `InvalidImageError` when the block is damaged or holds another number of bytes.
    """
    if size > MOST_EXPANSION * len(block):
        _fail(f"{len(block)} bytes cannot hold {size}")
    # The output's bytes become the result without a copy; matches lie in the recent bytes.
    output, recent = BytesIO(), bytearray()
    left = size
    position = 0
    # A module has tens of thousands of sequences, so common sequences are decoded without a call.
    while True:
        if position >= len(block):
            _fail("it breaks off")
        token = block[position]
        position += 1
        literals = token >> 4
        if literals:
            if literals == LONG:
                literals, position = _long(block, position)
            if position + literals > len(block) or literals > left:
                _fail("literals reach beyond its end")
            recent += block[position : position + literals]
            left -= literals
            position += literals
        if position == len(block):
            # The last sequence has no match.
            break
        if position + 2 > len(block):
            _fail("it breaks off")
        distance = block[position] | block[position + 1] << 8
        position += 2
        length = token & LONG
        if length == LONG:
            length, position = _long(block, position)
        length += MIN_MATCH
        start = len(recent) - distance
        if distance == 0 or start < 0 or length > left:
            _fail("a match reaches beyond the output")
        left -= length
        if length <= distance:
            recent += recent[start : start + length]
        else:
            _repeat(output, recent, recent[start:], length)
        if len(recent) > MOST_RECENT:
            _hand_over(output, recent)
    if left:
        _fail(f"it holds {size - left} bytes instead of {size}")
    output.write(recent)
    return output.getvalue()


def _repeat(output: BytesIO, recent: bytearray, pattern: bytearray, length: int) -> None:
    """Append `length` bytes of the repeated pattern."""
    pattern *= -(-min(RUN, length) // len(pattern))
    for done in range(0, length, len(pattern)):
        recent += pattern[: length - done]
        if len(recent) > MOST_RECENT:
            _hand_over(output, recent)


def _hand_over(output: BytesIO, recent: bytearray) -> None:
    """Move data beyond the reach of matches to the output."""
    output.write(recent[:-REACH])
    del recent[:-REACH]


def _long(block: bytes, position: int) -> tuple[int, int]:
    """Read a length that continues at `position`."""
    length = LONG
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
