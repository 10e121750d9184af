"""Hostile containers: each is read or refused, with little work and little memory.

Work is counted in calls of Python functions, so a slow machine cannot fail the test.
"""

from __future__ import annotations

import random
import struct
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from simulators.topsfb.ubridge import assemble, modules
from simulators.topsfb.writer import Gcu, bundle, topsfb
from tests.sampling import rounds
from tops_backend.images import select
from uhal.errors import InvalidImageError

TARGET = "tops-dtu-enflame-tops--gcu300"
KERNELS = {"affine_f16": ["size_t", "__fp16*", "__fp16*", "float", "float"], "nothing": []}
ORIGINAL = topsfb(Gcu(KERNELS), Gcu(KERNELS, "gcu200", variables={"table": 64}))
EXTREMES = (0, 1, 7, 24, 63, 64, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 48)
EXTREMES += ((1 << 63) - 1, 1 << 63, (1 << 64) - 1)

Damage = Callable[[random.Random, bytes], bytes]


def truncated(generator: random.Random, image: bytes) -> bytes:
    return image[: generator.randrange(len(image))]


def damaged(generator: random.Random, image: bytes) -> bytes:
    changed = bytearray(image)
    for _ in range(generator.randrange(1, 12)):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def misled(generator: random.Random, image: bytes) -> bytes:
    """Overwrite words where offsets, sizes and counts may be."""
    changed = bytearray(image)
    for _ in range(generator.randrange(1, 4)):
        at = generator.randrange(len(changed) // 4 - 2) * 4
        form, mask = generator.choice((("<I", 32), ("<Q", 64), (">I", 32)))
        number = generator.choice((*EXTREMES, at, len(image), len(image) - at))
        struct.pack_into(form, changed, at, number % (1 << mask))
    return bytes(changed)


def spliced(generator: random.Random, image: bytes) -> bytes:
    """Replace a part of the file by another part."""
    size = generator.randrange(1, 200)
    to, source = (generator.randrange(len(image) - size) for _ in range(2))
    return image[:to] + image[source : source + size] + image[to + size :]


def made_up(generator: random.Random, image: bytes) -> bytes:
    """Return a valid bundle and a valid ELF file around a note of any bytes."""
    starts = (
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91",
        b"\x81\xa0",
    )
    packed = generator.choice(starts) * generator.choice((1, 3, 2000))
    packed += generator.randbytes(generator.randrange(40))
    note = Gcu(KERNELS).elf()
    at = note.index(b"TOPSDTU\0") + 8
    return bundle((TARGET, note[:at] + packed[: len(note) - at] + note[at + len(packed) :]))


DAMAGES: tuple[Damage, ...] = (truncated, damaged, misled, spliced, made_up)


def work_of(act: Callable[[], object]) -> int:
    """Return the number of Python calls that `act` makes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        act()
    except InvalidImageError:
        pass
    finally:
        sys.setprofile(None)
    return calls


def peak_of(act: Callable[[], object]) -> int:
    """Return the peak of bytes that `act` allocated."""
    tracemalloc.start()
    try:
        act()
    except InvalidImageError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def cost_of(image: bytes) -> tuple[int, int]:
    """Return the calls and bytes that it takes to choose an image of the file."""

    def act() -> object:
        return select(image, "tops:0", "gcu300")

    return work_of(act), peak_of(act)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_hostile_containers_cost_little(damage: Damage, seed: int) -> None:
    generator = random.Random(seed)
    select(ORIGINAL, "tops:0", "gcu300")  # fill the caches, so that they do not count
    refused = 0
    count = rounds(300, 100_000 // len(DAMAGES))
    for number in range(count):
        image = damage(generator, ORIGINAL)
        try:
            select(image, "tops:0", "gcu300")
        except InvalidImageError:
            refused += 1
        if number % 10 == 0:
            work, peak = cost_of(image)
            assert work < 3 * len(ORIGINAL)
            assert peak < 30 * len(ORIGINAL)
    assert 0 < refused <= count


def test_the_cost_of_a_file_grows_no_faster_than_the_file() -> None:
    for module in modules():
        image = assemble(module)
        select(image, "tops:0", "gcu300")
        work, peak = cost_of(image)
        assert work < 2 * len(image)
        assert peak < 15 * len(image)
