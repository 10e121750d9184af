"""Convolutions, pooling and resizing against plain loops in higher precision."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    Array,
    Output,
    Strided,
    assert_same,
    numpy_dtype,
    random_geometry,
    run,
    strided,
    words,
)
from uhal import Device

pytestmark = pytest.mark.entries

TYPES = ("bf16", "f16", "f32", "f64", "u8", "u32")
# Rounding of a sum of 27 products, and of the stored result.
ROUNDING = {"f32": 2.0**-19, "f64": 2.0**-48, "f16": 2.0**-10, "bf16": 2.0**-7}
Wide = np.longdouble


def given(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Strided:
    layout = str(rng.choice(["contiguous", "transposed", "stepped"]))
    return strided(rng, dtype, layout, shape, special=False)


def info_of(*operands: Strided) -> Any:
    return words(*(part for operand in operands for part in (operand.shape, operand.strides)))


def check(got: Array, expected: Array, magnitude: Array, dtype: str) -> None:
    if dtype in ("u8", "u32"):
        modulus = 1 << 8 * numpy_dtype(dtype).itemsize
        wrapped = [int(one) % modulus for one in expected.ravel().tolist()]
        assert_same(got, np.array(wrapped, numpy_dtype(dtype)))
        return
    with np.errstate(over="ignore"):
        stored = expected.astype(numpy_dtype(dtype)).astype(Wide).ravel()
    wide = got.astype(Wide)
    same = (wide == stored) | (
        np.abs(wide - expected.ravel()) <= ROUNDING[dtype] * magnitude.ravel()
    )
    assert same.all(), (wide[~same][:4], stored[~same][:4])


def exact(values: Array) -> Array:
    return values.astype(object) if values.dtype.kind == "u" else values.astype(Wide)


def convolved(
    x: Array, k: Array, stride: int, padding: int, dilation: int, transposed: bool, extra: int
) -> tuple[Array, Array]:
    """Return the sums and the sums of magnitudes, for any number of dims."""
    x, k = exact(x), exact(k)
    rank = x.ndim - 2
    c_out = k.shape[1] if transposed else k.shape[0]
    spans = [dilation * (size - 1) for size in k.shape[2:]]
    lengths = [
        (size - 1) * stride - 2 * padding + span + 1 + extra
        if transposed
        else (size + 2 * padding - span - 1) // stride + 1
        for size, span in zip(x.shape[2:], spans, strict=True)
    ]
    out = np.zeros((x.shape[0], c_out, *lengths), x.dtype)
    magnitude = out.copy()
    for position in product(*(range(length) for length in lengths)):
        for taps in product(*(range(size) for size in k.shape[2:])):
            source = []
            for o, tap, size in zip(position, taps, x.shape[2:], strict=True):
                if transposed:
                    reached = o + padding - tap * dilation
                    at = reached // stride if reached % stride == 0 else -1
                else:
                    at = o * stride + tap * dilation - padding
                source.append(at if 0 <= at < size else -1)
            if min(source) < 0:
                continue
            values = x[(slice(None), slice(None), *source)]
            weights = k[(slice(None), slice(None), *taps)]
            weights = weights if transposed else weights.T
            out[(slice(None), slice(None), *position)] += values @ weights
            magnitude[(slice(None), slice(None), *position)] += np.abs(values) @ np.abs(weights)
    assert rank in (1, 2)
    return out, magnitude


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_convolution(
    device: Device, rng: np.random.Generator, rank: int, transposed: bool, dtype: str
) -> None:
    for _ in range(rounds(3, 60)):
        stride, dilation = (int(one) for one in rng.integers(1, 4, 2))
        padding = int(rng.integers(0, 3))
        batch, c_in, c_out = (int(one) for one in rng.integers(1, 4, 3))
        sizes = [int(one) for one in rng.integers(9, 13, rank)]
        taps = [int(one) for one in rng.integers(1, 4, rank)]
        x = given(rng, dtype, (batch, c_in, *sizes))
        channels = (c_in, c_out) if transposed else (c_out, c_in)
        k = given(rng, dtype, (*channels, *taps))
        extra = int(rng.integers(0, stride)) if transposed else 0
        expected, magnitude = convolved(
            x.values, k.values, stride, padding, dilation, transposed, extra
        )
        output = Output(dtype, expected.size)
        lengths = expected.shape[2:][::-1]
        middle = (extra,) if transposed else ()
        name = f"conv{'_transpose' if transposed else ''}{rank}d_{dtype}"
        run(
            device,
            "conv",
            name,
            x.numel,
            *lengths,
            stride,
            padding,
            *middle,
            dilation,
            info_of(x, k),
            x.buffer(),
            k.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        check(output.to_numpy(), expected, magnitude, dtype)


@pytest.mark.parametrize("stride", [1, 2])
def test_what_candle_gets_wrong_in_dilated_ones(
    device: Device, rng: np.random.Generator, stride: int
) -> None:
    """Each value encodes its position: Candle's positions differ from a convolution's."""
    length, taps, dilation = 20, 3, 2
    positions = (length - dilation * (taps - 1) - 1) // stride + 1
    x = strided(rng, "f32", "contiguous", (1, 1, length))
    k = strided(rng, "f32", "contiguous", (1, 1, taps))
    x.storage[:length], k.storage[:taps] = 2.0 ** np.arange(length), 1
    output = Output("f32", positions)
    run(
        device,
        "conv",
        "conv1d_f32",
        length,
        positions,
        stride,
        0,
        dilation,
        info_of(x, k),
        x.buffer(),
        k.buffer(),
        output.buffer,
    )
    at = np.arange(positions)[:, None]
    right = at * stride + np.arange(taps) * dilation
    candles = (at * stride + np.arange(taps)) * dilation
    assert_same(output.to_numpy(), (2.0**right).sum(1).astype(np.float32))
    assert (right != candles).any(1)[1:].all()


@pytest.mark.parametrize("dtype", TYPES)
def test_windows(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(3, 60)):
        stride, dilation = (int(one) for one in rng.integers(1, 4, 2))
        padding = int(rng.integers(0, 3))
        b, c, h, w = 2, int(rng.integers(1, 4)), int(rng.integers(7, 10)), int(rng.integers(7, 10))
        h_k, w_k = (int(one) for one in rng.integers(1, 4, 2))
        x = given(rng, dtype, (b, c, h, w))
        h_out = (h + 2 * padding - dilation * (h_k - 1) - 1) // stride + 1
        w_out = (w + 2 * padding - dilation * (w_k - 1) - 1) // stride + 1
        pad = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        padded = np.pad(x.values, pad)
        expected = np.zeros((b, h_out, w_out, c, h_k, w_k), x.values.dtype)
        for i, j, p, q in product(range(h_out), range(w_out), range(h_k), range(w_k)):
            expected[:, i, j, :, p, q] = padded[
                :, :, i * stride + p * dilation, j * stride + q * dilation
            ]
        output = Output(dtype, expected.size)
        run(
            device,
            "conv",
            f"im2col_{dtype}",
            expected.size,
            h_out,
            w_out,
            h_k,
            w_k,
            stride,
            padding,
            dilation,
            info_of(x),
            x.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), expected)
        line = given(rng, dtype, (b, c, w))
        padded = np.pad(line.values, [pad[0], pad[1], pad[3]])
        expected = np.zeros((b, w_out, c, w_k), line.values.dtype)
        for i, p in product(range(w_out), range(w_k)):
            expected[:, i, :, p] = padded[:, :, i * stride + p * dilation]
        output = Output(dtype, expected.size)
        run(
            device,
            "conv",
            f"im2col1d_{dtype}",
            b * w_out * c,
            w_out,
            w_k,
            stride,
            padding,
            dilation,
            info_of(line),
            line.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_windows_added_up(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(3, 60)):
        b, l_in, c, k, stride = (int(one) for one in rng.integers(1, 5, 5))
        x = strided(rng, dtype, "contiguous", (b, l_in, c, k), special=False)
        l_out = (l_in - 1) * stride + k
        values = exact(x.values)
        expected = np.zeros((b, c, l_out), values.dtype)
        magnitude = expected.copy()
        for i, tap in product(range(l_in), range(k)):
            expected[:, :, i * stride + tap] += values[:, i, :, tap]
            magnitude[:, :, i * stride + tap] += np.abs(values[:, i, :, tap])
        output = Output(dtype, expected.size)
        run(
            device,
            "conv",
            f"col2im1d_{dtype}",
            expected.size,
            l_out,
            l_in,
            c,
            k,
            stride,
            x.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        check(output.to_numpy(), expected, magnitude, dtype)


@pytest.fixture(params=["conv", "images"])
def module(request: pytest.FixtureRequest, device: Device) -> str:
    """Module of pooling and resizing: CPUs have another module that makes rows."""
    if request.param == "images" and device.backend != "host":
        pytest.skip("the module is for CPUs")
    return str(request.param)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_pooling(
    device: Device, module: str, rng: np.random.Generator, kind: str, dtype: str
) -> None:
    for _ in range(rounds(4, 60)):
        k = [int(one) for one in rng.integers(1, 4, 2)]
        stride = [int(one) for one in rng.integers(1, 4, 2)]
        is_wide = module == "images" and rng.random() < 0.5
        columns = int(rng.integers(*((500, 1100) if is_wide else (4, 9))))
        x = given(rng, dtype, (2, 3, int(rng.integers(4, 9)), columns))
        values = exact(x.values)
        outs = [(size - a) // s + 1 for size, a, s in zip(x.shape[2:], k, stride, strict=True)]
        expected = np.zeros((2, 3, *outs), values.dtype)
        for i, j in product(range(outs[0]), range(outs[1])):
            rows = slice(i * stride[0], i * stride[0] + k[0])
            columns = slice(j * stride[1], j * stride[1] + k[1])
            window = values[:, :, rows, columns]
            if kind == "max":
                expected[:, :, i, j] = window.max((2, 3))
            elif dtype in ("u8", "u32"):
                expected[:, :, i, j] = window.sum((2, 3)) // (k[0] * k[1])
            else:
                expected[:, :, i, j] = window.mean((2, 3))
        output = Output(dtype, expected.size)
        run(
            device,
            module,
            f"{kind}_pool2d_{dtype}",
            x.numel,
            *k,
            *stride,
            info_of(x),
            x.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        largest = np.broadcast_to(np.abs(values).max(), expected.shape)
        check(output.to_numpy(), expected, largest, dtype)


def test_the_largest_of_a_window_with_nan_is_nan(device: Device, module: str) -> None:
    x = np.array([1, np.nan, 3, 4], np.float32)
    given_x = Strided(x, 0, (1, 1, 2, 2), (4, 4, 2, 1))
    output = Output("f32", 1)
    run(
        device,
        module,
        "max_pool2d_f32",
        4,
        2,
        2,
        1,
        1,
        info_of(given_x),
        given_x.buffer(),
        output.buffer,
    )
    assert np.isnan(output.to_numpy()).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_nearest(device: Device, module: str, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(4, 60)):
        x = given(rng, dtype, (2, 2, int(rng.integers(1, 8)), int(rng.integers(1, 8))))
        outs = [int(one) for one in rng.integers(1, 17, 2)]
        scales = [size / out for size, out in zip(x.shape[2:], outs, strict=True)]
        positions = [
            np.minimum((np.arange(out) * scale).astype(int), size - 1)
            for out, scale, size in zip(outs, scales, x.shape[2:], strict=True)
        ]
        expected = x.values[:, :, positions[0]][:, :, :, positions[1]]
        output = Output(dtype, expected.size)
        run(
            device,
            module,
            f"upsample_nearest2d_{dtype}",
            *outs,
            *scales,
            info_of(x),
            x.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("align", [False, True])
def test_bilinear(
    device: Device, module: str, rng: np.random.Generator, align: bool, dtype: str
) -> None:
    for _ in range(rounds(4, 60)):
        x = given(rng, dtype, (2, 2, int(rng.integers(1, 8)), int(rng.integers(1, 8))))
        h_out, w_out = (int(one) for one in rng.integers(1, 17, 2))
        factors = [
            None if rng.random() < 0.5 else out / size + 0.01
            for out, size in zip((h_out, w_out), x.shape[2:], strict=True)
        ]
        values = x.values.astype(Wide)
        weights = []
        for out, size, factor in zip((h_out, w_out), x.shape[2:], factors, strict=True):
            if align:
                position = np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
            else:
                step = 1 / factor if factor else size / out
                position = np.maximum(step * (np.arange(out) + 0.5) - 0.5, 0)
            position = np.minimum(position, size - 1)
            below = np.floor(position).astype(int)
            matrix = np.zeros((out, size), Wide)
            for row, (first, at) in enumerate(zip(below, position, strict=True)):
                matrix[row, first] += 1 - (at - first)
                matrix[row, min(first + 1, size - 1)] += at - first
            weights.append(matrix)
        expected = np.einsum("ah,nchw,bw->ncab", weights[0], values, weights[1])
        output = Output(dtype, expected.size)
        arguments = [part for factor in factors for part in (factor is not None, factor or 0.0)]
        run(
            device,
            module,
            f"upsample_bilinear2d_{dtype}",
            w_out,
            h_out,
            align,
            *arguments,
            info_of(x),
            x.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        got = output.to_numpy()
        if dtype in ("u8", "u32"):
            # Results are truncated, except where the sum is within a rounding of a whole number.
            whole = np.abs(expected - np.rint(expected)) < 1e-4
            same = got.reshape(expected.shape) == np.trunc(expected)
            near = np.abs(got.reshape(expected.shape) - expected) <= 1.001
            assert np.where(whole, near, same).all()
        else:
            magnitude = np.broadcast_to(np.abs(values).max(), expected.shape)
            check(got, expected, magnitude, dtype)
