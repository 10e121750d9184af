"""Decodes LZ4 blocks, the compression of NVIDIA's fatbins under `--compress-mode=speed`.

The format is LZ4's block format: sequences of a token, literals, and a match of earlier output.
"""

from __future__ import annotations

from typing import NoReturn

from uhal.errors import InvalidImageError

MIN_MATCH = 4
LONG = 15
"""A length field of this value goes on in further bytes."""


def decompress(block: bytes, size: int) -> bytes:
    """Decode a block that holds exactly `size` bytes.

    Takes time in proportion to `block` and `size` and never makes more than `size` bytes. Raises
    `InvalidImageError` when the block is damaged or holds another number of bytes.
    """
    output = bytearray()
    position = 0
    while True:
        if position >= len(block):
            _fail("it breaks off")
        token = block[position]
        position += 1
        literals, position = _length(block, position, token >> 4)
        if position + literals > len(block) or len(output) + literals > size:
            _fail("literals reach beyond its end")
        output += block[position : position + literals]
        position += literals
        if position == len(block):
            # The last sequence has no match.
            break
        if position + 2 > len(block):
            _fail("it breaks off")
        distance = block[position] | block[position + 1] << 8
        length, position = _length(block, position + 2, token & LONG)
        length += MIN_MATCH
        if not 0 < distance <= len(output) or len(output) + length > size:
            _fail("a match reaches beyond the output")
        start = len(output) - distance
        if distance >= length:
            output += output[start : start + length]
        else:
            # The match overlaps what it makes: its first `distance` bytes over and over.
            pattern = bytes(output[start:])
            output += (pattern * (length // distance + 1))[:length]
    if len(output) != size:
        _fail(f"it holds {len(output)} bytes instead of {size}")
    return bytes(output)


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
