"""Runs of the families a decoder's step adds: appends to caches and weights of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ubridge as ub
from tests.ubridge.activation_data import exact_in_8_bits
from tests.ubridge.block_data import Array, elements, random_blocks
from tests.ubridge.op_runs import Outcome, Trial, run, wide
from tests.ubridge.operands import operand
from ubridge.quantized import FORMATS
from uhal.dtypes import as_dtype


@run("kv_append")
def append(t: Trial) -> Iterator[Outcome]:
    rows, tokens, width = t.shape(3)
    capacity = tokens + t.length()
    place = int(t.rng.integers(0, capacity - tokens + 1))
    whole = (rows, capacity, width)
    cache = operand(t.rng, t.device, "contiguous", t.dtype, whole, special=False)
    source = t.x((rows, tokens, width))
    position = ub.from_numpy(np.array([place], np.int64), device=t.device)
    exact = cache.array.copy()
    exact[:, place : place + tokens] = source.array
    yield Outcome(ub.kv_append(cache.tensor, source.tensor, position).to_numpy(), exact)


@run("quantized_matvec")
def product_in_f32(t: Trial) -> Iterator[Outcome]:
    name = t.op.name.removeprefix("matvec_")
    columns = FORMATS[name].elements * t.length(3)
    x = t.x((*t.shape(t.length(2)), columns))
    weight, values = _weight(t, name, t.length(), columns)
    got = ub.quantized_matmul(x.tensor, weight).to_numpy()
    yield Outcome(got, wide(x) @ values.T, abs(wide(x)) @ abs(values).T, columns)


@run("quantized_product")
def product_in_q8(t: Trial) -> Iterator[Outcome]:
    name = t.op.name.removeprefix("product_")
    columns = FORMATS[name].elements * t.length(3)
    # Vectors that are not rounded, of whatever kind of 8 bits the device has.
    x = exact_in_8_bits(t.rng, (*t.shape(2), columns)).astype(as_dtype(t.dtype).dtype)
    weight, values = _weight(t, name, t.length(), columns)
    given = ub.from_numpy(x, device=t.device)
    got = ub.quantized_matmul(given, weight, activations="q8").to_numpy()
    exact = x.astype(np.float64)
    magnitude = abs(exact) @ abs(values).T + 16 * abs(exact).sum(-1, keepdims=True)
    yield Outcome(got, exact @ values.T, magnitude, columns)


@run("activations")
def activations(t: Trial) -> Iterator[Outcome]:
    run_of = int(t.op.name.removeprefix("activations_"))
    x = t.x((*t.shape(2), run_of))
    # Times the identity it is what it was rounded to.
    name = "q8_0" if run_of == 32 else "q8_K"
    blocks = np.zeros((run_of, FORMATS[name].block_bytes), np.uint8)
    scale = np.ones(1, np.float16 if run_of == 32 else np.float32).view(np.uint8)
    blocks[:, : scale.size] = scale
    blocks[:, scale.size : scale.size + run_of] = np.eye(run_of, dtype=np.uint8)
    weight = ub.QuantizedWeight.from_blocks(blocks.ravel(), name, run_of, run_of, device=t.device)
    got = ub.quantized_matmul(x.tensor, weight, activations="q8").to_numpy()
    yield Outcome(got, wide(x), abs(wide(x)).max(-1, keepdims=True))


@run("block_elements")
def block_elements(t: Trial) -> Iterator[Outcome]:
    name = t.op.name.removeprefix("elements_")
    weight, values = _weight(t, name, t.length(), FORMATS[name].elements * t.length(3))
    yield Outcome(weight.dequantize(t.dtype).to_numpy(), values)


def _weight(t: Trial, name: str, rows: int, columns: int) -> tuple[ub.QuantizedWeight, Array]:
    blocks = random_blocks(t.rng, name, rows * columns // FORMATS[name].elements)
    weight = ub.QuantizedWeight.from_blocks(blocks.ravel(), name, rows, columns, device=t.device)
    return weight, elements(blocks, name).astype(np.float64).reshape(rows, columns)
