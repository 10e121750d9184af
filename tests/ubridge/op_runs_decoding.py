"""Runs of the families a decoder's step adds: appends to caches and weights of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ubridge as ub
from tests.ubridge.block_data import Array, elements, random_blocks
from tests.ubridge.op_runs import Outcome, Trial, run, wide
from tests.ubridge.operands import operand
from ubridge.quantized import FORMATS


@run("kv_append")
def append(t: Trial) -> Iterator[Outcome]:
    rows, tokens, width = t.shape(3)
    capacity = tokens + t.length()
    start = int(t.rng.integers(0, capacity - tokens + 1))
    whole = (rows, capacity, width)
    cache = operand(t.rng, t.device, "contiguous", t.dtype, whole, special=False)
    source = t.x((rows, tokens, width))
    position = ub.from_numpy(np.array([start], np.int64), device=t.device)
    exact = cache.array.copy()
    exact[:, start : start + tokens] = source.array
    yield Outcome(ub.kv_append(cache.tensor, source.tensor, position).to_numpy(), exact)


@run("quantized_matvec")
def quantized_product(t: Trial) -> Iterator[Outcome]:
    name = t.op.name.removeprefix("matvec_")
    columns = FORMATS[name].elements * t.length(3)
    x = t.x((*t.shape(t.length(2)), columns))
    weight, values = _weight(t, name, t.length(), columns)
    got = ub.quantized_matmul(x.tensor, weight).to_numpy()
    yield Outcome(got, wide(x) @ values.T, abs(wide(x)) @ abs(values).T, columns)


@run("block_elements")
def block_elements(t: Trial) -> Iterator[Outcome]:
    name = t.op.name.removeprefix("elements_")
    weight, values = _weight(t, name, t.length(), FORMATS[name].elements * t.length(3))
    yield Outcome(weight.dequantize(t.dtype).to_numpy(), values)


def _weight(t: Trial, name: str, rows: int, columns: int) -> tuple[ub.QuantizedWeight, Array]:
    blocks = random_blocks(t.rng, name, rows * columns // FORMATS[name].elements)
    weight = ub.QuantizedWeight.from_blocks(blocks.ravel(), name, rows, columns, device=t.device)
    return weight, elements(blocks, name).astype(np.float64).reshape(rows, columns)
