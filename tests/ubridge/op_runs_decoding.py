"""Runs of the families a decoder's step adds: appends to caches and weights of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ubridge as ub
from tests.ubridge.op_runs import Outcome, Trial, run, wide
from tests.ubridge.operands import operand
from ubridge.quantized import FORMATS


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
def quantized_product(t: Trial) -> Iterator[Outcome]:
    name = t.op.name.removeprefix("matvec_")
    columns = FORMATS[name].elements * t.length(3)
    x = t.x((*t.shape(t.length(2)), columns))
    drawn = t.rng.standard_normal((t.length(), columns), np.float32)
    weight = ub.QuantizedWeight.from_numpy(drawn, name, device=t.device)
    values = wide(weight.to_numpy())
    got = ub.quantized_matmul(x.tensor, weight).to_numpy()
    yield Outcome(got, wide(x) @ values.T, abs(wide(x)) @ abs(values).T, columns)
