"""Transposed and permuted operands, whose sizes are no multiples of a tile."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    Output,
    Strided,
    assert_same,
    random_geometry,
    random_values,
    run,
    strided,
    words,
)
from uhal import Device

pytestmark = pytest.mark.entries

LENGTHS = (1, 2, 3, 7, 16, 17, 31, 33, 64, 127, 129, 200, 515)
MOST = 300_000
"""Elements of one operand."""


def permuted(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], order: tuple[int, ...]
) -> Strided:
    """Return an array with its axes in this order in memory, last axis closest; rows may be
    padded."""
    strides = [0] * len(shape)
    extent = int(rng.integers(1, 3))
    for axis in reversed(order):
        strides[axis] = extent
        extent = extent * shape[axis] + int(rng.choice([0, 0, 5]))
    offset = int(rng.integers(0, 5))
    storage = random_values(rng, dtype, offset + extent + 1)
    return Strided(storage, offset, shape, tuple(strides))


def shape_of(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    while True:
        shape = tuple(int(length) for length in rng.choice(LENGTHS, rank))
        if np.prod(shape) <= MOST:
            return shape


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16", "f32", "f64", "i64", "f8e4m3"])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_copies(device: Device, rng: np.random.Generator, rank: int, dtype: str) -> None:
    orders = list(itertools.permutations(range(rank)))
    for _ in range(rounds(8, 400)):
        order = orders[int(rng.integers(len(orders)))]
        given = permuted(rng, dtype, shape_of(rng, rank), order)
        output = Output(dtype, given.numel)
        run(
            device,
            "unary",
            f"ucopy_{dtype}",
            given.numel,
            rank,
            words(given.shape, given.strides),
            given.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), given.values.ravel())


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "u8", "i64"])
def test_operands_that_cross_in_different_ways(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    orders = list(itertools.permutations(range(3)))
    for _ in range(rounds(8, 400)):
        shape = shape_of(rng, 3)
        lhs = permuted(rng, dtype, shape, orders[int(rng.integers(6))])
        rhs = strided(rng, dtype, "broadcast", shape)
        if rng.random() < 0.7:
            rhs = permuted(rng, dtype, shape, orders[int(rng.integers(6))])
        output = Output("u8", lhs.numel)
        run(
            device,
            "binary",
            f"lt_{dtype}",
            lhs.numel,
            3,
            words(shape, lhs.strides, rhs.strides),
            lhs.buffer(),
            rhs.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), (lhs.values < rhs.values).astype(np.uint8))


@pytest.mark.parametrize(("source", "target"), [("f16", "f64"), ("u8", "f32"), ("f64", "f32")])
def test_conversions(device: Device, rng: np.random.Generator, source: str, target: str) -> None:
    for _ in range(rounds(8, 400)):
        shape = shape_of(rng, 2)
        given = permuted(rng, source, shape, (1, 0))
        output = Output(target, given.numel)
        run(
            device,
            "cast",
            f"cast_{source}_{target}",
            given.numel,
            2,
            words(shape, given.strides),
            given.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), given.values.ravel().astype(output.dtype))


def test_selecting_among_crossing_operands(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(8, 400)):
        shape = shape_of(rng, 3)
        condition = permuted(rng, "u8", shape, (0, 2, 1))
        yes = permuted(rng, "f32", shape, (2, 1, 0))
        no = permuted(rng, "f32", shape, (0, 2, 1))
        output = Output("f32", yes.numel)
        run(
            device,
            "ternary",
            "where_u8_f32",
            yes.numel,
            3,
            words(shape, condition.strides, yes.strides, no.strides),
            condition.buffer(),
            yes.buffer(),
            no.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), np.where(condition.values != 0, yes.values, no.values))
