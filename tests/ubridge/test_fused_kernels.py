"""The kernels of transformers: log-softmax, gates, masks, concatenation, attention, products."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    INTEGERS,
    Array,
    Output,
    assert_same,
    numpy_dtype,
    random_geometry,
    random_values,
    row_block,
    run,
    scalar,
    strided,
    words,
)
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

TYPES = ("f32", "f64", "f16", "bf16")
TOLERANCE = {"f32": 2.0**-20, "f64": 2.0**-49, "f16": 2.0**-10.5, "bf16": 2.0**-7.5}
Wide = np.longdouble


def close(got: Array, expected: Array, magnitude: Array | float, dtype: str) -> None:
    # Half of the distance between subnormal values; for f32 it is too small to matter.
    least = 2.0**-25 if dtype == "f16" else 1e-30
    allowed = TOLERANCE[dtype] * (np.abs(expected) + magnitude) + least
    error = np.abs(got.astype(Wide).reshape(expected.shape) - expected)
    assert (error <= allowed).all(), float((error / allowed).max())


def normal(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def log_softmax(
    device: Device, values: Array, dtype: str, compensated: int, block: tuple[int, ...]
) -> Array:
    rows, cols = values.shape
    output = Output(dtype, values.size)
    given = DeviceBuffer.from_numpy(values.ravel())
    run(
        device,
        "fused",
        f"log_softmax_{dtype}",
        given,
        output.buffer,
        cols,
        compensated,
        grid=rows,
        block=block,
    )
    return output.to_numpy().reshape(values.shape)


def exact_log_softmax(values: Array) -> Array:
    wide = values.astype(Wide)
    base = wide.max(1, keepdims=True)
    return np.asarray(wide - base - np.log(np.exp(wide - base).sum(1, keepdims=True)))


@pytest.mark.parametrize("compensated", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
def test_log_softmax(
    device: Device, rng: np.random.Generator, dtype: str, compensated: int
) -> None:
    for cols in (1, 7, 1021, 4096):
        values = normal(rng, dtype, 3, cols) * scalar(dtype, 4)
        expected = exact_log_softmax(values)
        block = row_block(rng)
        got = log_softmax(device, values, dtype, compensated, block)
        # Each plain addition of a thread adds an error of at most one step.
        additions = 0 if compensated else cols / np.prod(block)
        step = 2.0 ** (-53 if dtype == "f64" else -24)
        close(got, expected, 1 + additions * step / TOLERANCE[dtype], dtype)


def test_log_softmax_of_a_million_columns(device: Device, rng: np.random.Generator) -> None:
    values = normal(rng, "f32", 1, 1_000_003)
    expected = exact_log_softmax(values)
    got = log_softmax(device, values, "f32", 1, (256,))
    # The difference, the logarithm and the result are each rounded once.
    assert np.abs(got - expected).max() <= 4 * np.spacing(np.float32(np.abs(expected).max()))


@pytest.mark.parametrize("dtype", TYPES)
def test_silu_mul(device: Device, rng: np.random.Generator, dtype: str) -> None:
    gate, up = normal(rng, dtype, 2053), normal(rng, dtype, 2053)
    output = Output(dtype, 2053)
    given = DeviceBuffer.from_numpy(gate), DeviceBuffer.from_numpy(up)
    run(device, "fused", f"silu_mul_{dtype}", 2053, *given, output.buffer, **random_geometry(rng))
    wide = gate.astype(Wide)
    close(output.to_numpy(), wide / (1 + np.exp(-wide)) * up.astype(Wide), 1e-4, dtype)


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_silu_mul_where_exponentials_overflow(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    """The product may be a normal number even if silu alone would round to 0."""
    far, most = (745, 300) if dtype == "f64" else (150, 37)
    gate = -rng.uniform(10, far, 2053)
    up = rng.choice([-1, 1], 2053) * 10.0 ** rng.uniform(-most, most, 2053)
    gate, up = gate.astype(numpy_dtype(dtype)), up.astype(numpy_dtype(dtype))
    output = Output(dtype, 2053)
    given = DeviceBuffer.from_numpy(gate), DeviceBuffer.from_numpy(up)
    run(device, "fused", f"silu_mul_{dtype}", 2053, *given, output.buffer, **random_geometry(rng))
    wide = gate.astype(Wide)
    expected = wide / (1 + np.exp(-wide)) * up.astype(Wide)
    eps = {"bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}[dtype]
    least = 2.0**-1074 if dtype == "f64" else 2.0**-133 if dtype == "bf16" else 2.0**-149
    off = abs(output.to_numpy().astype(Wide) - expected)
    bound = 8 * eps * abs(expected) + 2 * Wide(least)
    worst = int(np.argmax(off / bound))
    assert (off <= bound).all(), (gate[worst], up[worst], output.to_numpy()[worst], expected[worst])


@pytest.mark.parametrize("dtype", TYPES)
def test_maskfill(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for layout in ("contiguous", "transposed"):
        shape = (3, 4, 9, 9)
        values = strided(rng, dtype, layout, shape)
        mask = strided(rng, "u8", layout, shape)
        if layout == "transposed":
            mask = strided(rng, "u8", "broadcast", shape)
        mask.storage[...] = rng.integers(0, 2, mask.storage.size)
        output = Output(dtype, values.numel)
        contiguous = values.is_contiguous() and mask.is_contiguous()
        info = None if contiguous else words(shape, mask.strides, values.strides)
        run(
            device,
            "fused",
            f"maskfill_{dtype}",
            values.numel,
            4,
            info,
            mask.buffer(),
            values.buffer(),
            scalar(dtype, -np.inf),
            output.buffer,
            **random_geometry(rng),
        )
        expected = np.where(mask.values != 0, scalar(dtype, -np.inf), values.values)
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_kvconcat(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(4, 100)):
        b, h, left, right, d = (int(one) for one in rng.integers(0, 6, 5))
        old = random_values(rng, dtype, b * h * left * d).reshape(b, h, left, d)
        new = random_values(rng, dtype, b * h * right * d).reshape(b, h, right, d)
        expected = np.concatenate([old, new], 2)
        output = Output(dtype, expected.size)
        given = [
            DeviceBuffer.from_numpy(np.append(one.ravel(), one.dtype.type(0))) for one in (old, new)
        ]
        run(
            device,
            "fused",
            f"kvconcat_{dtype}",
            *given,
            output.buffer,
            b * h,
            left * d,
            right * d,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("ids", ["u8", "u32", "i64"])
@pytest.mark.parametrize("dtype", TYPES)
def test_embedding(device: Device, rng: np.random.Generator, dtype: str, ids: str) -> None:
    table = random_values(rng, dtype, 11 * 33).reshape(11, 33)
    wanted = rng.integers(0, 11, 20).astype(numpy_dtype(ids))
    output = Output(dtype, 20 * 33)
    given = DeviceBuffer.from_numpy(wanted), DeviceBuffer.from_numpy(table.ravel())
    run(device, "indexing", f"embedding_{ids}_{dtype}", *given, output.buffer, 20, 11, 33)
    assert_same(output.to_numpy(), table[wanted.astype(int)])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_attention(
    device: Device, rng: np.random.Generator, dtype: str, causal: bool, masked: bool
) -> None:
    for _ in range(rounds(4, 100)):
        batch, kv_heads, group, q_len = (int(one) for one in rng.integers(1, 5, 4))
        kv_len = q_len + int(rng.choice([0, 1, 90, 600]))
        dim = int(rng.choice([1, 8, 80, 128, 256]))
        heads = kv_heads * group
        q = normal(rng, dtype, batch, heads, q_len, dim)
        k, v = (normal(rng, dtype, batch, kv_heads, kv_len, dim) for _ in range(2))
        mask = normal(rng, dtype, batch, q_len, kv_len) if masked else None
        if mask is not None:
            mask[rng.random(mask.shape) < 0.3] = -np.inf
        output = Output(dtype, q.size)
        scale = 1 / np.sqrt(dim)
        given = [DeviceBuffer.from_numpy(one.ravel()) for one in (q, k, v)]
        given_mask = None if mask is None else DeviceBuffer.from_numpy(mask.ravel())
        run(
            device,
            "attention",
            f"sdpa_{dtype}",
            *given,
            given_mask,
            output.buffer,
            heads,
            kv_heads,
            q_len,
            kv_len,
            dim,
            q_len * kv_len,
            0,
            scale,
            causal,
            grid=batch * heads * q_len,
            block=int(rng.choice([32, 128, 200])),
        )
        k, v = (np.repeat(one.astype(Wide), group, 1) for one in (k, v))
        scores = np.einsum("bhqd,bhkd->bhqk", q.astype(Wide), k) * scale
        if mask is not None:
            scores = scores + mask.astype(Wide)[:, None]
        if causal:
            later = np.arange(kv_len)[None] > np.arange(q_len)[:, None] + kv_len - q_len
            scores = np.where(later, -np.inf, scores)
        base = np.maximum(scores.max(-1, keepdims=True), -1e30)
        raised = np.exp(scores - base)
        total = raised.sum(-1, keepdims=True)
        weights = raised / np.where(total == 0, 1, total)
        expected = np.einsum("bhqk,bhkd->bhqd", weights, v)
        close(output.to_numpy(), expected, 8 * float(np.abs(v).max()) / 8, dtype)


@pytest.mark.parametrize("dtype", [*TYPES, *INTEGERS])
def test_matmul(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(6, 200)):
        m, n, k = (int(one) for one in rng.choice([1, 3, 16, 17, 64, 65, 130], 3))
        k = 0 if rng.random() < 0.1 else k
        batch = int(rng.integers(1, 4))
        shapes = (batch, m, k), (batch, k, n)
        a, b = (
            random_values(rng, dtype, int(np.prod(shape))).reshape(shape)
            if dtype in INTEGERS
            else normal(rng, dtype, *shape)
            for shape in shapes
        )
        stored = [
            np.ascontiguousarray(one.swapaxes(1, 2)) if rng.random() < 0.5 else one
            for one in (a, b)
        ]
        steps = []
        for one, held in zip((a, b), stored, strict=True):
            row, column = held.shape[2], 1
            steps.append((held[0].size, *((row, column) if held is one else (column, row))))
        buffers = [
            DeviceBuffer.from_numpy(np.append(one.ravel(), one.dtype.type(0))) for one in stored
        ]
        output = Output(dtype, batch * m * n)
        run(
            device,
            "matmul",
            f"matmul_{dtype}",
            *buffers,
            output.buffer,
            m,
            n,
            k,
            *steps[0],
            *steps[1],
            m * n,
            grid=(-(-n // 64), -(-m // 64), batch),
            block=int(rng.choice([32, 100, 256])),
        )
        if dtype in INTEGERS:
            assert_same(output.to_numpy(), np.matmul(a, b))
            continue
        wide = a.astype(Wide), b.astype(Wide)
        magnitude = np.abs(wide[0]) @ np.abs(wide[1])
        factor = 1 if dtype in ("f32", "f64") else 2.0**-10
        close(output.to_numpy(), wide[0] @ wide[1], magnitude * factor * 8, dtype)
