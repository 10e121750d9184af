"""Every entry of Ubridge on the simulated GCU against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulators.topsfb.ubridge import modules
from tests.simulated.gcu.launcher import SIPS, Gcu
from tests.simulated.gcu.reference import (
    BINARY,
    NUMPY,
    REDUCE,
    UNARY,
    Array,
    check,
    conv1d,
    conv2d,
    decoded,
    encoded,
    rotated,
    sample,
    softmax,
)
from ubridge.prepare.gcu.gemm_tuner import AtenGemmInfo, DataType, Multicore, tune


def size_of(gcu: Gcu) -> int:
    return int(gcu.rng.choice([1, 5, SIPS, SIPS + 1, 1000, int(gcu.rng.integers(1, 4000))]))


def careless(size: int) -> int | None:
    """Return the number of elements that an entry writes if it ignores the given number."""
    return SIPS if size < SIPS else None


# -- elementwise ---------------------------------------------------------------------------------


def unary(gcu: Gcu, entry: str) -> None:
    root, dtype = entry.rsplit("_", 1)
    size = size_of(gcu)
    x = sample(gcu.rng, size, dtype)
    if root in ("ulog", "usqrt", "ursqrt", "urecip"):
        x = decoded(encoded(np.abs(x) + 0.1, dtype), dtype)
    out = gcu.out(size, dtype)
    if root == "uelu":
        x = np.concatenate([x, np.zeros(SIPS)])
        gcu.run("unary", entry, size, gcu.put(x, dtype), out, 0.75)
        expected = np.where(x > 0, x, 0.75 * np.expm1(x))[:size]
        check(gcu.got(out, size, dtype, careless(size)), expected, dtype)
    else:
        gcu.run("unary", entry, size, gcu.put(x, dtype), out)
        check(gcu.got(out, size, dtype), UNARY[root](x), dtype)


def binary(gcu: Gcu, entry: str) -> None:
    root, dtype = entry.rsplit("_", 1)
    result = dtype if root.startswith(("b", "mod")) else "u8"
    shape = (3, size_of(gcu))
    size = shape[0] * shape[1]
    x, y = (sample(gcu.rng, shape, dtype) for _ in range(2))
    if root in ("mod", "bdiv"):
        y = decoded(encoded(np.abs(y) + 1, dtype), dtype)
    if root == "bsub" and dtype == "u32":
        x = x + np.uint32(50)
    for strides, other in (((shape[1], 1), y), ((0, 0), np.full(shape, y[0, 0]))):
        info = gcu.put(np.array([*shape, shape[1], 1, *strides]), "i64").view("u64")
        out = gcu.out(size, result)
        gcu.run("binary", entry, size, 2, info, gcu.put(x, dtype), gcu.put(y, dtype), out)
        expected = BINARY[root](x, other).ravel()
        check(gcu.got(out, size, result), expected.astype(NUMPY.get(result, float)), result)


def affine(gcu: Gcu, entry: str) -> None:
    dtype = entry.rsplit("_", 1)[1]
    size = size_of(gcu)
    x = sample(gcu.rng, size, dtype)
    mul, add = (float(np.float32(v)) for v in gcu.rng.standard_normal(2))
    out = gcu.out(size, dtype)
    gcu.run("affine", entry, size, gcu.put(x, dtype), out, mul, add)
    check(gcu.got(out, size, dtype), x * mul + add, dtype, 3)


def cast(gcu: Gcu, entry: str) -> None:
    _, source, target = entry.split("_")
    size = size_of(gcu)
    x = sample(gcu.rng, size + SIPS, source)
    out = gcu.out(size, target)
    gcu.run("cast", entry, size, gcu.put(x, source), out)
    expected = decoded(encoded(np.trunc(x) if target[0] in "iu" else x, target), target)
    check(gcu.got(out, size, target, careless(size)), expected[:size], target)


def ternary(gcu: Gcu, entry: str) -> None:
    _, condition, dtype = entry.split("_")
    size = size_of(gcu)
    ids = gcu.rng.integers(0, 2, size + SIPS)
    yes, no = (sample(gcu.rng, size + SIPS, dtype) for _ in range(2))
    out = gcu.out(size, dtype)
    operands = (gcu.put(ids, condition), gcu.put(yes, dtype), gcu.put(no, dtype))
    gcu.run("ternary", entry, *operands, out, size)
    check(gcu.got(out, size, dtype, careless(size)), np.where(ids, yes, no)[:size], dtype)


def fill(gcu: Gcu, entry: str) -> None:
    dtype = entry.rsplit("_", 1)[1]
    size = size_of(gcu)
    value = sample(gcu.rng, 1, dtype)[0]
    out = gcu.out(size, dtype)
    gcu.run("fill", entry, out, size, value.item())
    check(gcu.got(out, size, dtype), np.full(size, value), dtype)


# -- moved ---------------------------------------------------------------------------------------


def copy(gcu: Gcu, entry: str) -> None:
    dtype = entry.rsplit("_", 1)[1]
    x = sample(gcu.rng, (3, 4, 50), dtype)

    def moved(expected: Array, operation: int, strides: Any, order: Any, operand: Array) -> None:
        words = [*expected.shape, *strides, *order, *operand.shape]
        info = gcu.put(np.array(words), "i64").view("u64")
        out = gcu.out(expected.size, dtype)
        counts = (operand.size, expected.size, expected.ndim, operand.ndim)
        gcu.run("copy", entry, *counts, info, gcu.put(operand, dtype), out, operation)
        check(gcu.got(out, expected.size, dtype), expected.ravel(), dtype)

    moved(x.transpose(2, 0, 1), 1, (0, 0, 0), (2, 0, 1), x)
    moved(np.broadcast_to(x[0, 0], (2, 3, 50)), 2, (0, 0, 0), (0, 0, 0), x[0, 0])
    moved(np.broadcast_to(x[:, :1], (3, 7, 50)), 2, (0, 0, 0), (0, 0, 0), x[:, :1])
    moved(x[:2, :3, :40], 4, (0, 0, 0), (0, 0, 0), x)
    moved(x[:, ::2, ::5], 0, (200, 100, 5), (0, 0, 0), x)


def kvconcat(gcu: Gcu, entry: str) -> None:
    dtype = entry.rsplit("_", 1)[1]
    for axis, shapes in (
        (2, ((2, 3, 4, 5), (2, 3, 1, 5))),
        (0, ((2, 3, 4, 5), (1, 3, 4, 5))),
        (0, ((6, 4, 5), (1, 4, 5))),
    ):
        left, right = (sample(gcu.rng, shape, dtype) for shape in shapes)
        dims = gcu.put(np.array([*shapes[0], *shapes[1]]), "i64").view("u64")
        expected = np.concatenate([left, right], axis)
        out = gcu.out(expected.size, dtype)
        operands = (gcu.put(left, dtype), gcu.put(right, dtype), out, dims)
        gcu.run("kvconcat", entry, *operands, left.ndim, axis)
        check(gcu.got(out, expected.size, dtype), expected.ravel(), dtype)


def indexing(gcu: Gcu, entry: str) -> None:
    root, id_dtype, dtype = entry.split("_")
    x = sample(gcu.rng, (3, 20, 7), dtype)
    ids = gcu.rng.integers(0, 20, 11)
    if root == "is":
        out = gcu.out(3 * 11 * 7, dtype)
        operands = (gcu.put(ids, id_dtype), gcu.put(x, dtype), out)
        gcu.run("indexing", entry, 11, *operands, 3, 20, 7)
        check(gcu.got(out, 3 * 11 * 7, dtype), x[:, ids].ravel(), dtype)
    elif root == "gather":
        x, ids = x[:, :, 0], gcu.rng.integers(0, 20, (3, 11))
        out = gcu.out(33, dtype)
        operands = (gcu.put(ids, id_dtype), gcu.put(x, dtype), out)
        gcu.run("indexing", entry, 33, *operands, 3, 20, 11, 1)
        check(gcu.got(out, 33, dtype), np.take_along_axis(x, ids, 1).ravel(), dtype)
    else:
        ids = gcu.rng.permutation(30)[:20]  # a third of them out of bounds
        before = sample(gcu.rng, (20, 7), dtype)
        out = gcu.put(before, dtype)
        operands = (gcu.put(ids, id_dtype), 20, gcu.put(x[0], dtype), out)
        gcu.run("indexing", entry, *operands, 1, 20, 20, 7)
        expected = before.copy()
        expected[ids[ids < 20]] += x[0][ids < 20]
        found = decoded(out.view("u16" if dtype == "bf16" else dtype).to_numpy(), dtype)
        check(found, expected.ravel(), dtype)


def sort(gcu: Gcu, entry: str) -> None:
    _, way, dtype = entry.split("_")
    # u8 and u32 cannot hold the padding of 10000 or -10000, so their rows have no padding.
    columns, padded = (64, 64) if dtype.startswith("u") else (50, 64)
    x = gcu.rng.permuted(np.tile(np.arange(columns), (5, 1)), axis=1)
    values, out = gcu.put(x, dtype), gcu.out(x.size, "u32")
    gcu.run("sort", entry, values, out, 5, columns, padded, True, shared=64 * 12)
    order = np.argsort(x if way == "asc" else -x, axis=1)
    check(gcu.got(out, x.size, "u32"), order.ravel(), "u32")
    found = decoded(values.view("u16" if dtype == "bf16" else dtype).to_numpy(), dtype)
    assert np.array_equal(found, np.take_along_axis(x, order, 1).ravel())


# -- rows ----------------------------------------------------------------------------------------


def reduce(gcu: Gcu, entry: str) -> None:
    root, dtype = entry.rsplit("_", 1)
    rows, columns = int(gcu.rng.integers(1, 60)), int(gcu.rng.integers(1, 200))
    x = sample(gcu.rng, (rows, columns), dtype)
    if root == "softmax":
        out = gcu.out(x.size, dtype)
        gcu.run("reduce", entry, gcu.put(x, dtype), out, 1, rows, columns)
        check(gcu.got(out, x.size, dtype), softmax(x).ravel(), dtype)
        return
    if root == "layernorm":
        layer_norm(gcu, entry, x, dtype)
        return
    if dtype == "i8":
        x = np.clip(x, -1, 1)[:, :100]
        columns = x.shape[1]
    result = "u32" if "arg" in root else dtype
    out = gcu.out(rows, result)
    gcu.run("reduce", entry, gcu.put(x, dtype), out, x.size, columns)
    expected = REDUCE[root](x)
    check(gcu.got(out, rows, result), expected.astype(NUMPY.get(result, float)), result, 5)


def layer_norm(gcu: Gcu, entry: str, x: Array, dtype: str) -> None:
    rows, columns = x.shape
    weight, bias = (sample(gcu.rng, columns, dtype) for _ in range(2))
    for mean_removed in (False, True):
        centered = x - x.mean(1, keepdims=True) * mean_removed
        normal = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-2)
        out = gcu.out(x.size, dtype)
        operands = (gcu.put(x, dtype), out, gcu.put(weight, dtype), gcu.put(bias, dtype))
        flags = (int(mean_removed), int(mean_removed))
        gcu.run("reduce", entry, *operands, 1, rows, columns, 1e-2, *flags)
        expected = normal * weight + bias * mean_removed
        check(gcu.got(out, x.size, dtype), expected.ravel(), dtype, 5)


# -- networks ------------------------------------------------------------------------------------


def conv(gcu: Gcu, entry: str) -> None:
    root, dtype = entry.split("_")
    stride, padding = (int(n) for n in gcu.rng.integers(1, 3, 2))
    flat = root == "conv1d"
    dilation = 1 if flat else int(gcu.rng.integers(1, 3))
    x = sample(gcu.rng, (2, 3, 20) if flat else (2, 3, 12, 10), dtype)
    kernel = sample(gcu.rng, (4, 3, 3) if flat else (4, 3, 3, 2), dtype)
    if dtype == "u8":
        x, kernel = x % 3, kernel % 3
    if flat:
        length = (20 + 2 * padding - 3) // stride + 1
        expected = conv1d(x.astype(float), kernel.astype(float), stride, padding, dilation, length)
        sizes: tuple[int, ...] = (length,)
    else:
        expected = conv2d(x, kernel, stride, padding, dilation)
        sizes = (expected.shape[3], expected.shape[2])
    words = [*x.shape, *strides_of(x), *kernel.shape, *strides_of(kernel)]
    info = gcu.put(np.array(words), "i64").view("u64")
    out = gcu.out(expected.size, dtype)
    operands = (info, gcu.put(x, dtype), gcu.put(kernel, dtype), out)
    gcu.run("conv", entry, x.size, *sizes, stride, padding, dilation, *operands, blocks=1)
    found = gcu.got(out, expected.size, dtype)
    check(found, expected.ravel().astype(NUMPY.get(dtype, float)), dtype, 20)


def strides_of(x: Array) -> list[int]:
    return [step // x.itemsize for step in np.ascontiguousarray(x).strides]


def embedding(gcu: Gcu, entry: str) -> None:
    parts = entry.split("_")
    table, dtype = (parts[1], parts[-1])
    tokens, heads, kv_heads, size, turned, length = 30, 4, 2, 16, 12, 64
    query, key = (sample(gcu.rng, (tokens, n, size), dtype) for n in (heads, kv_heads))
    angles = gcu.rng.uniform(0, 6, (length, turned // 2))
    cos_sin = decoded(encoded(np.hstack([np.cos(angles), np.sin(angles)]), table), table)
    positions = gcu.rng.integers(0, length, tokens)
    for halves in (False, True):
        buffers = gcu.put(query, dtype), gcu.put(key, dtype)
        arguments = (gcu.put(cos_sin, table), length, turned, gcu.put(positions, "i64"), tokens)
        sizes = (heads, kv_heads, size, turned, int(halves))
        gcu.run("embedding", entry, *buffers, *arguments, *sizes)
        rows = cos_sin[positions]
        for buffer, operand in zip(buffers, (query, key), strict=True):
            half = turned // 2
            expected = rotated(operand, rows[:, :half], rows[:, half:], halves)
            found = decoded(buffer.view("u16" if dtype == "bf16" else dtype).to_numpy(), dtype)
            check(found, expected.ravel(), dtype, 3)


def cache(gcu: Gcu, entry: str) -> None:
    dtype = entry.rsplit("_", 1)[1]
    tokens, heads, size, blocks, block = 10, 3, 8, 5, 4
    key, value = (sample(gcu.rng, (tokens, heads, size), dtype) for _ in range(2))
    slots = gcu.rng.permutation(blocks * block)[:tokens]
    slots[3] = -1
    caches = [gcu.put(np.zeros((blocks, heads, block, size)), dtype) for _ in range(2)]
    numbers = (tokens, heads, size, blocks, block, 8, heads * size, heads * size)
    operands = (gcu.put(key, dtype), gcu.put(value, dtype), *caches, gcu.put(slots, "i64"))
    gcu.run("cache", entry, *operands, *numbers)
    for buffer, operand in zip(caches, (key, value), strict=True):
        expected = np.zeros((blocks, heads, block, size))
        for token, slot in enumerate(slots):
            if slot >= 0:
                expected[slot // block, :, slot % block] = operand[token]
        found = decoded(buffer.view("u16" if dtype == "bf16" else dtype).to_numpy(), dtype)
        check(found, expected.ravel(), dtype)


def attention(gcu: Gcu, entry: str) -> None:
    dtype = entry.rsplit("_", 1)[1]
    sequences, heads, kv_heads, size, block, blocks = 3, 4, 2, 16, 8, 12
    query = sample(gcu.rng, (sequences, heads, size), dtype)
    keys, values = (sample(gcu.rng, (blocks, kv_heads, block, size), dtype) for _ in range(2))
    tables = gcu.rng.permutation(blocks).reshape(sequences, 4)
    lengths = np.array([1, 20, 32])
    for cap in (0.0, 5.0):
        out = gcu.out(query.size, dtype)
        buffers = (out, *(gcu.put(one, dtype) for one in (query, keys, values)))
        numbers = (block, 32, sequences, heads, size, 4, heads * size)
        strides = (kv_heads * block * size, block * size, blocks)
        lists = (gcu.put(tables, "i32"), gcu.put(lengths, "i32"))
        gcu.run("attention", entry, *buffers, kv_heads, 0.25, *lists, *numbers, *strides, cap)
        expected = np.zeros_like(query)
        for sequence, head in np.ndindex(sequences, heads):
            rows = [
                cached[tables[sequence], head // 2].reshape(-1, size)[: lengths[sequence]]
                for cached in (keys, values)
            ]
            weights = rows[0] @ query[sequence, head] * 0.25
            weights = cap * np.tanh(weights / cap) if cap else weights
            expected[sequence, head] = softmax(weights) @ rows[1]
        check(gcu.got(out, query.size, dtype), expected.ravel(), dtype, 3)


def matmul(gcu: Gcu, entry: str) -> None:
    parts = entry.split("_")
    dtype, bits = parts[1], parts[2] if len(parts) > 2 else ""
    codes = {"f32": DataType.F32, "f16": DataType.F16, "bf16": DataType.BF16}
    weights = {"4bit": DataType.I4, "8bit": DataType.I8, "": codes[dtype]}
    for batch, m, k, n in ((1, 1, 64, 48), (3, 33, 130, 70), (1, 130, 32, 200)):
        for turned in (False, True):
            info = AtenGemmInfo(codes[dtype], weights[bits], batch, m, k, n)
            tuned = tune(info)
            axes = (Multicore.LHS, Multicore.RHS, Multicore.BATCH)
            numbers = (
                *(int(info.data_type), batch, m, k, n),
                *(int(tuned.multicore is axis) for axis in axes),
                *(0, int(turned), 1.0, 0.0, 0.0, tuned.sip_m, tuned.sip_k, tuned.sip_n, 0),
            )
            x = sample(gcu.rng, (batch, m, k), dtype)
            out = gcu.out(batch * m * n, dtype)
            if bits:
                y, operands, last = quantized(gcu, dtype, bits, (batch, k, n), turned)
            else:
                y = sample(gcu.rng, (batch, k, n), dtype)
                operands, last = (gcu.put(y.swapaxes(1, 2) if turned else y, dtype),), ()
            gcu.run(
                "matmul", entry, gcu.put(x, dtype), operands[0], out, *operands[1:], *numbers, *last
            )
            check(gcu.got(out, batch * m * n, dtype), (x @ y).ravel(), dtype, 20)


def quantized(gcu: Gcu, dtype: str, bits: str, shape: Any, turned: bool) -> Any:
    _, k, n = shape
    group = 32
    codes = gcu.rng.integers(*((0, 16) if bits == "4bit" else (-128, 128)), shape)
    groups = -(-k // group)
    scales = decoded(encoded(gcu.rng.uniform(0.001, 0.01, (groups, n)), dtype), dtype)
    zeros = decoded(encoded(gcu.rng.integers(0, 16, (groups, n)), dtype), dtype)
    spread = [np.repeat(one, group, 0)[:k] for one in (scales, zeros)]
    stored = codes[:, ::2] | codes[:, 1::2] << 4 if bits == "4bit" else codes
    stored = stored.swapaxes(1, 2) if turned else stored
    operands = (
        gcu.put(stored, "u8" if bits == "4bit" else "i8"),
        gcu.put(scales, dtype),
        gcu.put(zeros, dtype),
    )
    return (codes - spread[1]) * spread[0], operands, (group,)


def quant(gcu: Gcu, entry: str) -> None:
    way, _, name, _, dtype = entry.split("_")
    if name == "q8":
        blocks = int(gcu.rng.integers(1, 100))
        x = sample(gcu.rng, blocks * 32, dtype)
        largest = np.abs(x.reshape(blocks, 32)).max(1)
        scales = (largest / 127).astype("f2")
        codes = np.rint(x.reshape(blocks, 32) / (largest / 127)[:, None])
        stored = np.frombuffer(scales.tobytes() + codes.astype("i1").tobytes(), "i1")
        if way == "quantize":
            out = gcu.out(stored.size, "i8")
            width = 4 if dtype == "f32" else 2
            gcu.run("quant", entry, gcu.put(x, dtype), out, width * x.size, stored.size)
            found = gcu.got(out, stored.size, "i8")
            assert np.abs(found[2 * blocks :].astype(int) - stored[2 * blocks :]).max() <= 1
            assert np.array_equal(found[: 2 * blocks], stored[: 2 * blocks])
        else:
            out = gcu.out(x.size, dtype)
            gcu.run("quant", entry, gcu.put(stored, "i8"), out, x.size)
            expected = (codes * scales.astype("f8")[:, None]).ravel()
            check(gcu.got(out, x.size, dtype), expected, dtype, 3)
    elif way == "dequantize":
        dequantized_4k(gcu, entry, dtype)
    else:
        out = gcu.out(288, "i8")
        gcu.run("quant", entry, gcu.put(np.ones(512), dtype), out, 512, 288)
        assert (gcu.got(out, 288, "i8") == -1).all()  # the entry never computes these elements


def dequantized_4k(gcu: Gcu, entry: str, dtype: str) -> None:
    blocks = 3
    factors = gcu.rng.uniform(0.01, 0.1, (blocks, 2)).astype("f2")
    packed = gcu.rng.integers(0, 256, (blocks, 12)).astype("u1")
    halves = gcu.rng.integers(0, 256, (blocks, 128)).astype("u1")
    low, high = packed[:, :4], packed[:, 4:8]
    last = packed[:, 8:]
    scales = np.hstack([low & 63, last & 15 | low >> 6 << 4])
    minima = np.hstack([high & 63, last >> 4 | high >> 6 << 4])
    minima = np.repeat(minima[:, ::2], 2, 1)  # both groups of a pair use the first group's minimum
    codes = halves.reshape(blocks, 4, 32)
    codes = np.stack([codes & 15, codes >> 4], 2).reshape(blocks, 8, 32).astype(float)
    values = factors[:, :1, None] * scales[:, :, None].astype(float) * codes
    values = (values - factors[:, 1:, None].astype(float) * minima[:, :, None]).reshape(blocks, 256)
    if dtype == "f32":
        values = np.hstack([values[:, :128], values[:, :128]])
    headers = b"".join(factors[i].tobytes() + packed[i].tobytes() for i in range(blocks))
    stored = np.frombuffer(headers + halves.tobytes(), "i1")
    out = gcu.out(256 * blocks, dtype)
    gcu.run("quant", entry, gcu.put(stored, "i8"), out, 256 * blocks)
    check(gcu.got(out, 256 * blocks, dtype), values.ravel(), dtype, 30)


FAMILIES: dict[str, Callable[[Gcu, str], None]] = {
    "unary": unary,
    "binary": binary,
    "affine": affine,
    "cast": cast,
    "ternary": ternary,
    "fill": fill,
    "copy": copy,
    "kvconcat": kvconcat,
    "indexing": indexing,
    "sort": sort,
    "reduce": reduce,
    "conv": conv,
    "embedding": embedding,
    "cache": cache,
    "attention": attention,
    "matmul": matmul,
    "quant": quant,
}
ENTRIES = [(module, entry) for module, kernels in modules().items() for entry in kernels]


@pytest.mark.parametrize(("module", "entry"), ENTRIES, ids=[entry for _, entry in ENTRIES])
def test_every_entry_against_numpy(gcu: Gcu, module: str, entry: str) -> None:
    FAMILIES[module](gcu, entry)


def test_there_are_320() -> None:
    assert len(ENTRIES) == len(set(ENTRIES)) == 320
