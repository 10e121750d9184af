"""Convolutions, pooling and resizing, and products, by dtype and layout against numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.op_rows import OP_ROWS, OpRow, row_of
from tests.ubridge.operands import LAYOUTS, Array, Operand, operand
from ubridge import OPS, Layout
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError

DEVICES = tuple(row.name for row in OP_ROWS)
STEP = {"f64": 2e-16, "f32": 1.2e-7, "f16": 9.8e-4, "bf16": 7.8e-3}
DENSE = tuple(layout for layout in LAYOUTS if layout not in ("empty", "scalar", "one"))


@pytest.fixture(autouse=True)
def op_row(device: Device) -> OpRow:
    """Operations of the device under test."""
    row = row_of(device.backend)
    row.require_images()
    return row


def dtypes_of(row: OpRow, name: str) -> list[str]:
    found = [dtype for dtype in OPS[name].dtypes if row.has(OPS[name], dtype, None)]
    if not found:
        pytest.skip(f"{row.backend} has no kernel of {name}")
    return found


def drawn(rng: np.random.Generator, device: Device, dtype: str, shape: tuple[int, ...]) -> Operand:
    return operand(rng, device, str(rng.choice(DENSE)), dtype, shape, special=False)


def assert_sums(got: Array, exact: Array, magnitudes: Array, dtype: str, told: str) -> None:
    """Check sums of products within a rounding to the dtype and f32's rounding of the magnitudes.

    For values below f16's normal numbers, half the smallest step of f16 is more than a rounding.
    """
    assert got.shape == exact.shape, told
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, exact.astype(np.int64).astype(got.dtype), told)
        return
    bound = 2 * STEP[dtype] * np.abs(exact) + (2.0**-25 if dtype == "f16" else 1e-12)
    bound = bound + (1e-6 if dtype != "f64" else 1e-14) * magnitudes
    difference = np.abs(got.astype(np.float64) - exact)
    assert (difference <= bound).all(), (told, difference.max(initial=0))


def convolution(x: Array, weight: Array, stride: int, padding: int, dilation: int) -> Array:
    axes = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * axes])
    reach = [dilation * (size - 1) + 1 for size in weight.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, x.ndim)))
    steps = (slice(None), slice(None), *[slice(None, None, stride)] * axes)
    windows = windows[(*steps, *[slice(None, None, dilation)] * axes)]
    letters = "xyz"[:axes], "uvw"[:axes]
    return np.einsum(f"bc{letters[0]}{letters[1]},oc{letters[1]}->bo{letters[0]}", windows, weight)


def transposed(
    x: Array, weight: Array, stride: int, padding: int, dilation: int, out_padding: int
) -> Array:
    axes = x.ndim - 2
    whole = [
        (length - 1) * stride + dilation * (size - 1) + out_padding + 1
        for length, size in zip(x.shape[2:], weight.shape[2:], strict=True)
    ]
    result = np.zeros((x.shape[0], weight.shape[1], *whole))
    for position in np.ndindex(*x.shape[2:]):
        for tap in np.ndindex(*weight.shape[2:]):
            at = tuple(stride * p + dilation * t for p, t in zip(position, tap, strict=True))
            result[(slice(None), slice(None), *at)] += (
                x[(slice(None), slice(None), *position)] @ weight[(slice(None), slice(None), *tap)]
            )
    cut = [slice(padding, length - padding) for length in whole]
    return result[(slice(None), slice(None), *cut)] if axes else result


@pytest.mark.parametrize("name", ["conv1d", "conv2d"])
def test_convolutions(name: str, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    axes = int(name[4])
    for dtype in dtypes_of(op_row, name):
        for _ in range(rounds(2, 20)):
            batch, channels, results = (int(one) for one in rng.integers(1, 4, 3))
            sizes = tuple(int(one) for one in rng.integers(1, 4, axes))
            lengths = tuple(int(one) for one in rng.integers(7, 12, axes))
            x = drawn(rng, device, dtype, (batch, channels, *lengths))
            weight = drawn(rng, device, dtype, (results, channels, *sizes))
            stride, padding = int(rng.integers(1, 4)), int(rng.integers(0, 3))
            dilation = 1 if op_row.backend == "tops" and axes == 1 else int(rng.integers(1, 4))
            got = getattr(ubridge, name)(
                x.tensor, weight.tensor, stride=stride, padding=padding, dilation=dilation
            )
            wide = [one.array.astype(np.float64) for one in (x, weight)]
            window = (stride, padding, dilation)
            told = f"{name} {dtype} {x.array.shape} {weight.array.shape} {window}"
            expected = convolution(*wide, *window)
            magnitudes = convolution(*map(np.abs, wide), *window)
            assert_sums(got.to_numpy(), expected, magnitudes, dtype, told)


@pytest.mark.parametrize("name", ["conv_transpose1d", "conv_transpose2d"])
def test_transposed_convolutions(
    name: str, op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    axes = int(name[-2])
    for dtype in dtypes_of(op_row, name):
        batch, channels, results = (int(one) for one in rng.integers(1, 4, 3))
        x = drawn(
            rng, device, dtype, (batch, channels, *(int(n) for n in rng.integers(2, 6, axes)))
        )
        sizes = tuple(int(one) for one in rng.integers(2, 4, axes))
        weight = drawn(rng, device, dtype, (channels, results, *sizes))
        stride, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        padding, out_padding = int(rng.integers(0, 2)), int(rng.integers(0, 2))
        got = getattr(ubridge, name)(
            x.tensor,
            weight.tensor,
            stride=stride,
            padding=padding,
            dilation=dilation,
            out_padding=out_padding,
        )
        wide = [one.array.astype(np.float64) for one in (x, weight)]
        window = (stride, padding, dilation, out_padding)
        told = f"{name} {dtype} {x.array.shape} {weight.array.shape} {window}"
        expected = transposed(*wide, *window)
        magnitudes = transposed(*map(np.abs, wide), *window)
        assert_sums(got.to_numpy(), expected, magnitudes, dtype, told)


def test_groups_of_an_empty_batch_are_empty(device: Device) -> None:
    for groups in (1, 2):
        kernel = ubridge.ones((2, 4 // groups, 3), device=device)
        got = ubridge.conv1d(ubridge.ones((0, 4, 5), device=device), kernel, groups=groups)
        assert got.shape == (0, 2, 3)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"])
def test_groups_of_channels(
    name: str, batch: int, op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    """Each group is a separate convolution; the extreme case has a group for each channel."""
    axes = int(name[-2])
    for dtype in dtypes_of(op_row, name):
        for groups in (2, 3, 6):
            per_group = int(rng.integers(1, 3))
            x = drawn(rng, device, dtype, (batch, 6, *(int(n) for n in rng.integers(4, 7, axes))))
            of_group = (6, per_group) if "transpose" in name else (per_group * groups, 6 // groups)
            weight = drawn(rng, device, dtype, (*of_group, *[2] * axes))
            got = getattr(ubridge, name)(x.tensor, weight.tensor, stride=2, groups=groups)
            wide = [one.array.astype(np.float64) for one in (x, weight)]

            def whole(x: Array, weight: Array, groups: int = groups) -> Array:
                parts = zip(np.split(x, groups, 1), np.split(weight, groups, 0), strict=True)
                one = transposed if "transpose" in name else convolution
                window = (2, 0, 1, 0) if "transpose" in name else (2, 0, 1)
                return np.concatenate([one(*part, *window) for part in parts], 1)

            told = f"{name} {dtype} {x.array.shape} {weight.array.shape} in {groups} groups"
            magnitudes = whole(*map(np.abs, wide))
            assert_sums(got.to_numpy(), whole(*wide), magnitudes, dtype, told)


@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
def test_pooling(name: str, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype in dtypes_of(op_row, name):
        x = drawn(rng, device, dtype, (2, 3, 9, 11))
        window, stride = (2, 3), (2, 1)
        got = getattr(ubridge, name)(x.tensor, window, stride).to_numpy()
        wide = x.array.astype(np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(wide, window, (2, 3))[:, :, ::2, ::1]
        if name == "max_pool2d":
            np.testing.assert_array_equal(got.astype(np.float64), windows.max((-1, -2)), dtype)
        elif got.dtype.kind not in "iu":
            magnitudes = np.abs(windows).sum((-1, -2))
            assert_sums(got, windows.mean((-1, -2)), magnitudes, dtype, f"{name} {dtype}")


def test_resizing(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype in dtypes_of(op_row, "upsample_nearest2d"):
        x = drawn(rng, device, dtype, (2, 3, 4, 5))
        rows, columns = (int(one) for one in rng.integers(1, 13, 2))
        got = ubridge.upsample_nearest2d(x.tensor, rows, columns).to_numpy()
        at = [
            np.minimum((np.arange(to) * (length / to)).astype(int), length - 1)
            for to, length in ((rows, 4), (columns, 5))
        ]
        assert got.tobytes() == np.ascontiguousarray(x.array[:, :, at[0]][..., at[1]]).tobytes()
        if got.dtype.kind in "iu":
            continue
        smooth = ubridge.upsample_bilinear2d(x.tensor, 8, 10).to_numpy()
        expected = x.array.astype(np.float64)
        for axis, (length, to) in ((2, (4, 8)), (3, (5, 10))):
            position = np.maximum((np.arange(to) + 0.5) * length / to - 0.5, 0)
            low = position.astype(int)
            share = (position - low).reshape([-1 if one == axis else 1 for one in range(4)])
            high = np.minimum(low + 1, length - 1)
            expected = (
                np.take(expected, low, axis) * (1 - share) + np.take(expected, high, axis) * share
            )
        assert_sums(smooth, expected, np.full_like(expected, 16), dtype, f"bilinear {dtype}")


def test_a_weight_of_0_counts_beside_an_infinity(op_row: OpRow, device: Device) -> None:
    if not op_row.special_values:
        pytest.skip("the device's kernels promise nothing for infinities")
    for dtype in ("f64", "f32", "f16", "bf16"):
        array = np.array([[1, np.inf], [1, 1]])[None, None]
        x = ubridge.asarray(array, device=device).astype(dtype)
        got = ubridge.upsample_bilinear2d(x, 2, 3, align_corners=True).astype("f32").to_numpy()
        assert not np.isfinite(got[0, 0, 0]).any()
        assert (got[0, 0, 1] == 1).all()


def test_windows_as_rows(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype in dtypes_of(op_row, "im2col"):
        x = drawn(rng, device, dtype, (2, 3, 7, 8))
        buffer, shape = ubridge.launch_im2col(
            x.tensor.buffer, x.tensor.layout, (2, 3), stride=2, padding=1
        )
        padded = np.pad(x.array, [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))
        expected = windows[:, :, ::2, ::2].transpose(0, 2, 3, 1, 4, 5)
        assert shape == expected.shape
        assert buffer.to_numpy().tobytes() == np.ascontiguousarray(expected).tobytes()
        line = drawn(rng, device, dtype, (2, 3, 9))
        buffer, shape = ubridge.launch_im2col(line.tensor.buffer, line.tensor.layout, (4,))
        expected = np.lib.stride_tricks.sliding_window_view(line.array, 4, 2).transpose(0, 2, 1, 3)
        assert shape == expected.shape
        assert buffer.to_numpy().tobytes() == np.ascontiguousarray(expected).tobytes()
        windows = drawn(rng, device, dtype, (2, 5, 3, 4))
        buffer, shape = ubridge.launch_col2im1d(
            windows.tensor.buffer, windows.tensor.layout, stride=3
        )
        whole = np.zeros((2, 3, 4 * 3 + 4))
        for start in range(5):
            whole[:, :, 3 * start : 3 * start + 4] += windows.array[:, start].astype(np.float64)
        assert shape == whole.shape
        told = f"col2im1d {dtype}"
        assert_sums(buffer.to_numpy().reshape(shape), whole, np.full_like(whole, 8), dtype, told)


PRODUCTS = (
    ((3, 4), (4, 5)),
    ((1, 1), (1, 1)),
    ((65, 17), (17, 67)),
    ((2, 3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((7,), (7,)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
)


def product_dtypes(row: OpRow) -> list[str]:
    return dtypes_of(row, "matmul") if row.backend != "tops" else ["f32", "f16", "bf16"]


@pytest.mark.parametrize(("left", "right"), PRODUCTS)
def test_matrix_products(
    left: tuple[int, ...],
    right: tuple[int, ...],
    op_row: OpRow,
    device: Device,
    rng: np.random.Generator,
) -> None:
    for dtype in product_dtypes(op_row):
        x, y = drawn(rng, device, dtype, left), drawn(rng, device, dtype, right)
        got = (x.tensor @ y.tensor).to_numpy()
        wide = [one.array.astype(np.float64) for one in (x, y)]
        told = f"{dtype} {x.layout} {left} @ {y.layout} {right}"
        assert_sums(got, np.matmul(*wide), np.matmul(*map(np.abs, wide)), dtype, told)


def test_products_into_views(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    x, y = drawn(rng, device, "f32", (6, 4)), drawn(rng, device, "f32", (4, 5))
    whole = ubridge.full((6, 10), 77, device=device)
    ubridge.matmul(x.tensor, y.tensor, out=whole[:, ::2])
    np.testing.assert_allclose(whole.to_numpy()[:, ::2], x.array @ y.array, 1e-4, 1e-5)
    assert (whole.to_numpy()[:, 1::2] == 77).all()
    square = ubridge.ones((4, 4), device=device)
    assert ubridge.matmul(square, square, out=square) is square
    assert square.tolist() == [[4] * 4] * 4


# Use 23 rows, more than the best number of blocks on a CPU. Blocks share a single query's 300 keys.
@pytest.mark.parametrize(("queries", "keys"), [(5, 9), (23, 27), (1, 300)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(
    causal: bool, queries: int, keys: int, op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    for dtype in dtypes_of(op_row, "attention"):
        q = drawn(rng, device, dtype, (2, 6, queries, 8))
        k, v = (drawn(rng, device, dtype, (2, 3, keys, 8)) for _ in range(2))
        mask = drawn(rng, device, dtype, (2, 1, queries, keys)) if not causal else None
        got = ubridge.attention(
            q.tensor, k.tensor, v.tensor, causal=causal, mask=mask and mask.tensor
        ).to_numpy()
        wide = [one.array.astype(np.float64) for one in (q, k, v)]
        every_key, values = (np.repeat(one, 2, 1) for one in wide[1:])
        scores = wide[0] @ every_key.swapaxes(-1, -2) / np.sqrt(8)
        if mask is not None:
            scores = scores + mask.array.astype(np.float64)
        if causal:
            seen = np.arange(queries)[:, None] + keys - queries
            scores = np.where(np.arange(keys) <= seen, scores, -np.inf)
        expected = OPS["softmax"].reference(scores) @ values  # type: ignore[misc]
        # Scores are sums in the wider type; a weight's relative error is its score's error. A sum
        # over the keys has at most half a step's error for each, and there are two such sums.
        inner = STEP["f64" if dtype == "f64" else "f32"]
        sizes = np.abs(wide[0]) @ np.abs(every_key).swapaxes(-1, -2) / np.sqrt(8)
        slip = inner * (12 * sizes + (0 if mask is None else np.abs(mask.array.astype(np.float64))))
        bound = (2 * slip.max() + (20 + keys) * inner + STEP[dtype]) * np.abs(values).max()
        assert np.abs(got.astype(np.float64) - expected).max() <= bound, dtype


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_joins(axis: int, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype in dtypes_of(op_row, "kv_concat"):
        shapes = [[2, 3, 4, 5], [2, 3, 4, 5]]
        shapes[1][axis] = 7
        x, y = (drawn(rng, device, dtype, tuple(shape)) for shape in shapes)
        got = ubridge.kv_concat(x.tensor, y.tensor, axis).to_numpy()
        expected = np.concatenate((x.array, y.array), axis)
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes(), dtype


def test_what_does_not_fit_is_refused(device: Device) -> None:
    x = ubridge.zeros((2, 3, 4), device=device)
    with pytest.raises(ArgumentValueError, match=r"mismatch in its core dimension 0.*size 3 is"):
        x @ x
    with pytest.raises(ArgumentValueError, match="conv1d: expected as many channels in both"):
        ubridge.conv1d(x, x.swapaxes(1, 2))
    with pytest.raises(ArgumentValueError, match="conv1d: expected a window of 1 to 4 elements"):
        ubridge.conv1d(x, ubridge.zeros((1, 3, 5), device=device))
    with pytest.raises(ArgumentValueError, match="conv1d, stride: expected 1 to"):
        ubridge.conv1d(x, x, stride=0)
    weight = ubridge.zeros((3, 1, 2), device=device)
    with pytest.raises(ArgumentValueError, match=r"many channels .*\(3, 1, 2\) in 2 groups"):
        ubridge.conv1d(x, weight, groups=2)
    with pytest.raises(ArgumentValueError, match=r"conv1d, groups: expected 1 to .*, got 0"):
        ubridge.conv1d(x, weight, groups=0)
    with pytest.raises(ArgumentValueError, match="expected a multiple of the 3 groups in the fir"):
        ubridge.conv1d(x, ubridge.zeros((4, 1, 2), device=device), groups=3)
    with pytest.raises(ArgumentTypeError, match="conv2d: expected operands of one dtype"):
        four = ubridge.zeros((1, 1, 3, 3), device=device)
        ubridge.conv2d(four, four.astype("f16"))
    with pytest.raises(ArgumentValueError, match="attention: expected four axes"):
        ubridge.attention(x, x, x)
    with pytest.raises(ArgumentValueError, match="the layout reaches"):
        ubridge.launch_matmul(
            x.buffer, Layout.contiguous((5, 5)), x.buffer, Layout.contiguous((5, 5))
        )
