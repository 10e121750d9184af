"""GCU launch limits from a device's properties, and Ubridge's kernels from the sidecar."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from simulators.topsfb.writer import Gcu
from tests.sampling import rounds
from tops_backend import entries
from tops_backend.launch_rules import (
    SHARED_CAP,
    Told,
    architecture,
    device_limits,
)
from uhal.errors import ArgumentValueError
from uhal.images.topsfb import read_gcu

S60 = Told("gcu300", 2, 12, 12, shared_bytes=64 << 20)


def test_a_device_that_tells_everything() -> None:
    limits = device_limits(
        Told("gcu210", 2, 12, 12, (12, 1, 1), (65536, 256, 256), shared_bytes=24 << 20)
    )
    assert limits.max_grid == (65536, 256, 256)
    assert limits.max_block == (12, 1, 1)
    assert limits.max_shared_bytes_per_block == 24 << 20
    assert (limits.processors, limits.block_for_elements) == (2, 12)


@pytest.mark.parametrize(
    ("target", "whole", "shared"),
    [
        ("gcu200", (1, 6), SHARED_CAP),
        ("gcu210", (2, 12), 24 << 20),
        ("gcu300", (2, 12), SHARED_CAP),
        ("gcu400", (1, 6), SHARED_CAP),
        ("gcu999", (1, 6), SHARED_CAP),
        (None, (1, 6), SHARED_CAP),
    ],
)
def test_a_device_that_tells_nothing(
    target: str | None, whole: tuple[int, int], shared: int
) -> None:
    limits = device_limits(Told(target))
    assert (limits.processors, limits.block_for_elements) == whole
    assert limits.max_shared_bytes_per_block == shared
    sub_threads = 8 if target == "gcu400" else 1
    assert limits.max_block[2] == (8 if target == "gcu400" else whole[1])
    assert limits.max_threads_per_block == whole[1] * sub_threads
    assert architecture("gcu300").product == "S60"


def test_what_is_told_counts_more_than_what_is_known() -> None:
    limits = device_limits(Told("gcu210", clusters=4, sips=6, max_threads_per_block=6))
    assert (limits.processors, limits.block_for_elements) == (4, 6)
    assert limits.max_threads_per_block == 6


def test_threads_of_an_axis_stay_below_two_to_the_32(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(rounds(200, 20_000)):
        grid = tuple(generator.randrange(1 << 31) for _ in range(3))
        block = tuple(generator.randrange(1 << 10) for _ in range(3))
        limits = device_limits(Told("gcu300", max_block=block, max_grid=grid))  # type: ignore
        for blocks, threads in zip(limits.max_grid, limits.max_block, strict=True):
            assert blocks >= 1 and blocks * threads < 1 << 32


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (0, 4096),
        (1, 8192),
        (4096, 8192),
        (4097, 12288),
        (SHARED_CAP - 4096, SHARED_CAP),
        (SHARED_CAP, SHARED_CAP),
    ],
)
def test_shared_memory_is_rounded_as_ubridge_does(wanted: int, given: int) -> None:
    assert device_limits(S60).shared_bytes_for(wanted) == given


@pytest.mark.parametrize("wanted", [-1, SHARED_CAP + 1, 1 << 40])
def test_shared_memory_that_no_launch_gets(wanted: int) -> None:
    with pytest.raises(ArgumentValueError, match=f"expected 0…{SHARED_CAP} bytes.*, got {wanted}"):
        device_limits(S60).shared_bytes_for(wanted)


# -- Ubridge's kernels -----------------------------------------------------------------------------


def test_every_entry_of_ubridge_has_a_signature() -> None:
    assert len(entries.families()) == 17
    assert sum(len(names) for names in entries.families().values()) == 320
    found = entries.signatures()
    assert len(found) == 320
    assert all(parameter.name for signature in found.values() for parameter in signature)
    assert all(
        parameter.dtype is not None for signature in found.values() for parameter in signature
    )


@pytest.mark.parametrize(
    ("entry", "declaration"),
    [
        ("affine_f16", "u64 numel, f16* inp, f16* out, f32 mulv, f32 addv"),
        ("fill_bool", "bool* output, i32 total_size, bool value"),
        ("where_u8_bf16", "u8* ids, bf16* in1, bf16* in2, bf16* out, u64 element_num"),
    ],
)
def test_entries_with_names_and_types(entry: str, declaration: str) -> None:
    assert entries.signatures()[entry].declaration == declaration


def test_the_offsets_are_those_of_the_metadata() -> None:
    """An image with every entry, described by C types, agrees with the sidecar."""
    path = Path(entries.__file__).with_name("ubridge_entries.json")
    compared = 0
    for described in json.loads(path.read_text("utf-8")).values():
        types = {
            entry["name"]: [one["type"] for one in entry["params"]]
            for entry in described["entries"]
        }
        image = read_gcu(Gcu(types).elf()).signatures
        named = entries.named(image)
        for name, signature in named.items():
            assert signature != image[name], name
            declared = entries.signatures()[name]
            assert [one.offset for one in signature] == [one.offset for one in declared], name
            assert signature.declaration == declared.declaration
            compared += 1
    assert compared == 320
