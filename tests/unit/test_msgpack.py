"""The MessagePack reader: every form of every type, damage, and impossible sizes."""

from __future__ import annotations

import contextlib
import random
import struct
import time
from typing import Any

import pytest

from tests.sampling import rounds
from uhal.errors import InvalidImageError
from uhal.images import msgpack
from uhal.images.msgpack import unpack


def pack(value: Any, generator: random.Random | None = None) -> bytes:
    """An encoder; with a generator it picks a random form that can hold the value."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return _integer(value, generator)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return _headed(len(value), {}, {1: 0xC4, 2: 0xC5, 4: 0xC6}, generator) + value
    if isinstance(value, str):
        data = value.encode()
        return _headed(len(data), {32: 0xA0}, {1: 0xD9, 2: 0xDA, 4: 0xDB}, generator) + data
    if isinstance(value, list):
        head = _headed(len(value), {16: 0x90}, {2: 0xDC, 4: 0xDD}, generator)
        return head + b"".join(pack(one, generator) for one in value)
    head = _headed(len(value), {16: 0x80}, {2: 0xDE, 4: 0xDF}, generator)
    pairs = (pack(key, generator) + pack(one, generator) for key, one in value.items())
    return head + b"".join(pairs)


def _integer(value: int, generator: random.Random | None) -> bytes:
    forms = [bytes([value & 0xFF])] if -32 <= value < 128 else []
    for width, unsigned, signed in (
        (1, 0xCC, 0xD0),
        (2, 0xCD, 0xD1),
        (4, 0xCE, 0xD2),
        (8, 0xCF, 0xD3),
    ):
        if 0 <= value < 1 << 8 * width:
            forms.append(bytes([unsigned]) + value.to_bytes(width, "big"))
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            forms.append(bytes([signed]) + value.to_bytes(width, "big", signed=True))
    return forms[0] if generator is None else generator.choice(forms)


def _headed(
    size: int, short: dict[int, int], long: dict[int, int], generator: random.Random | None
) -> bytes:
    forms = [bytes([first | size]) for limit, first in short.items() if size < limit]
    forms += [
        bytes([first]) + size.to_bytes(width, "big")
        for width, first in long.items()
        if size < 1 << 8 * width
    ]
    return forms[0] if generator is None else generator.choice(forms)


def random_value(generator: random.Random, depth: int = 0) -> Any:
    kind = generator.randrange(9 if depth < 4 else 7)
    if kind == 0:
        return None
    if kind == 1:
        return generator.random() < 0.5
    if kind == 2:
        bits = generator.randrange(1, 65)
        return generator.randrange(-(1 << bits - 1), 1 << bits)
    if kind == 3:
        return generator.uniform(-1e9, 1e9)
    if kind == 4:
        return "".join(generator.choice("aé.→𝛼 ") for _ in range(generator.randrange(50)))
    if kind == 5:
        return generator.randbytes(generator.choice((0, 1, 200, 300)))
    if kind == 6:
        return generator.randrange(-40, 140)
    if kind == 7:
        return [random_value(generator, depth + 1) for _ in range(generator.randrange(20))]
    return {
        f"{generator.randrange(1000)}" if generator.random() < 0.8 else number: random_value(
            generator, depth + 1
        )
        for number in range(generator.randrange(20))
    }


def test_what_was_packed_is_read(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(rounds(300, 20_000)):
        value = random_value(generator)
        assert unpack(pack(value)) == value
        assert unpack(pack(value, generator)) == value


def test_floats_of_both_widths() -> None:
    assert unpack(b"\xca" + struct.pack(">f", 1.5)) == 1.5
    assert unpack(b"\xcb" + struct.pack(">d", -2.25)) == -2.25


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "breaks off"),
        (b"\xcd\x01", "breaks off"),
        (b"\xa5abc", "breaks off"),
        (b"\xdb\xff\xff\xff\xff", "breaks off"),
        (b"\x92\x01", "more members"),
        (b"\xdd\xff\xff\xff\xff", "more members"),
        (b"\xdf\xff\xff\xff\xff\x01", "more members"),
        (b"\x82\x01\x02\x01\x02", "comes twice"),
        (b"\x81\xc0\x02", "neither a string"),
        (b"\x81\xc3\x02", "neither a string"),
        (b"\x81\x90\x02", "neither a string"),
        (b"\xa1\xff", "not UTF-8"),
        (b"\xc1", "is not allowed"),
        (b"\xd4\x01\x00", "is not allowed"),
        (b"\x01\x02", "1 bytes follow"),
    ],
)
def test_refusals(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidImageError, match=problem) as caught:
        unpack(data, "the note")
    assert str(caught.value).startswith("the note cannot be read: ")


def test_depth_is_limited() -> None:
    assert unpack(b"\x91" * msgpack.MAX_DEPTH + b"\x01")
    with pytest.raises(InvalidImageError, match="too deeply"):
        unpack(b"\x91" * (msgpack.MAX_DEPTH + 1) + b"\x01")
    with pytest.raises(InvalidImageError, match="too deeply"):
        unpack(b"\x81" * 100_000)


def test_values_are_limited_in_number_and_in_time() -> None:
    many = b"\xdd" + (msgpack.MAX_VALUES + 1).to_bytes(4, "big") + bytes(msgpack.MAX_VALUES + 1)
    start = time.process_time()
    with pytest.raises(InvalidImageError, match="too many"):
        unpack(many)
    assert time.process_time() - start < 10


def test_random_bytes_and_damage_only_raise_invalid_image(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(rounds(500, 50_000)):
        data = bytearray(pack(random_value(generator), generator))
        for _ in range(generator.randrange(1, 5)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        if generator.random() < 0.3:
            del data[generator.randrange(len(data)) :]
        with contextlib.suppress(InvalidImageError):
            unpack(bytes(data))
        with contextlib.suppress(InvalidImageError):
            unpack(generator.randbytes(generator.randrange(80)))
