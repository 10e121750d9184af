"""Reductions, softmax, norms, rope and sorts by dtype and layout against numpy in f64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

import ubridge
from tests.children import check_child
from tests.sampling import SOAK
from tests.ubridge.op_rows import OP_ROWS, OpRow, row_of
from tests.ubridge.operands import LAYOUTS, Array, operand, shape_of
from ubridge import OPS
from ubridge.definitions import composing
from uhal import Device, as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError

DEVICES = tuple(row.name for row in OP_ROWS)
STEP = {"f64": 2e-16, "f32": 1.2e-7, "f16": 9.8e-4, "bf16": 7.8e-3, "f8e4m3": 0.125}


@pytest.fixture(autouse=True)
def op_row(device: Device) -> OpRow:
    """Operations of the device under test."""
    row = row_of(device.backend)
    row.require_images()
    return row


def cases(row: OpRow, rng: np.random.Generator, name: str) -> Iterator[tuple[str, str]]:
    dtypes = [dtype for dtype in OPS[name].dtypes if row.has(OPS[name], dtype, None)]
    if not dtypes:
        pytest.skip(f"{row.backend} has no kernel of {name}")
    for dtype in row.sample(rng, dtypes):
        for layout in LAYOUTS if SOAK else rng.choice(LAYOUTS, 4, replace=False):
            yield dtype, str(layout)


def some_axes(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    count = int(rng.integers(1, rank + 1))
    return tuple(int(axis) for axis in rng.choice(rank, count, replace=False))


def test_sums(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    """Errors are within one rounding to the dtype, and f32's error relative to the sum of
    magnitudes."""
    for dtype, layout in cases(op_row, rng, "sum"):
        for _ in range(3):
            x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
            axes = some_axes(rng, x.array.ndim) if x.array.ndim else ()
            keep = bool(rng.integers(0, 2))
            got = x.tensor.sum(axes, keepdims=keep)
            told = f"sum {dtype} {layout} {x.array.shape} over {axes}"
            assert got.dtype.name == dtype
            if x.array.dtype.kind in "iu":
                expected = x.array.sum(axes, keepdims=keep, dtype=x.array.dtype)
                np.testing.assert_array_equal(got.to_numpy(), expected, told)
                continue
            exact = x.array.astype(np.longdouble)
            total = exact.sum(axes, keepdims=keep)
            bound = STEP[dtype] * np.abs(total) * op_row.ulps
            terms = exact.size // max(total.size, 1)
            step = 2**-24 * terms if op_row.adds_in_order else 1e-7
            step = 2**-49 if dtype == "f64" else step
            bound = bound + step * np.abs(exact).sum(axes, keepdims=keep)
            bound = bound + (2**-6 if dtype == "f8e4m3" else 0)
            difference = np.abs(got.to_numpy().astype(np.longdouble) - total)
            assert (difference <= bound).all(), (told, difference.max(), bound)


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes(name: str, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    """As in numpy, the result is NaN if an element is NaN."""
    for dtype, layout in cases(op_row, rng, name):
        shape = shape_of(rng, layout)
        x = operand(rng, device, layout, dtype, shape, special=op_row.special_values)
        axes = some_axes(rng, x.array.ndim) if x.array.ndim else ()
        told = f"{name} {dtype} {layout} {x.array.shape} over {axes}"
        if np.prod([x.array.shape[axis] for axis in axes]) == 0:
            with pytest.raises(ArgumentValueError, match="zero-size array to reduction operation"):
                getattr(x.tensor, name)(axes)
            continue
        got = getattr(x.tensor, name)(axes).to_numpy()
        exact = x.array.astype(np.float64) if x.array.dtype.kind not in "iu" else x.array
        expected = getattr(np, name)(exact, axis=axes)
        np.testing.assert_array_equal(got.astype(expected.dtype), expected, told)


@pytest.mark.parametrize("name", ["min", "max", "argmin", "argmax"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 0)])
def test_nothing_has_no_extreme(name: str, shape: tuple[int, ...], device: Device) -> None:
    """As in numpy, an axis of length 0 raises an error for all other lengths."""
    array = np.zeros(shape, "f4")
    x = ubridge.from_numpy(array, device=device)
    for axis in (None, *range(len(shape))):
        if axis is None or shape[axis] == 0:
            with pytest.raises(ValueError, match=r"empty|zero-size"):
                getattr(np, name)(array, axis)
            with pytest.raises(
                ArgumentValueError, match=f"^{name}: zero-size array to reduction operation {name}"
            ):
                getattr(x, name)(axis)
        else:
            assert getattr(x, name)(axis).shape == getattr(np, name)(array, axis).shape


def test_logsumexp_of_infinities(device: Device, op_row: OpRow) -> None:
    rows = [[-np.inf] * 3, [np.inf, 0, 1], [-np.inf, 0, 1], [88, 1000, 1000], [np.nan, 1, np.inf]]
    x = ubridge.asarray(np.array(rows, np.float32), device=device)
    got = ubridge.logsumexp(x, 1).to_numpy()[: 5 if op_row.special_values else 4]
    expected = [-np.inf, np.inf, np.logaddexp(0, 1), 1000 + np.log(2), np.nan][: len(got)]
    np.testing.assert_allclose(got, expected, 1e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 0)])
def test_nothing_has_no_average(shape: tuple[int, ...], device: Device) -> None:
    """The mean over an axis of length 0 raises; a mean over other axes is empty."""
    x = ubridge.zeros(shape, device=device)
    axes = [None, (), *range(len(shape)), *itertools.combinations(range(len(shape)), 2)]
    for axis in axes:
        over = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        if any(shape[one] == 0 for one in over):
            with pytest.raises(ArgumentValueError, match="mean: of an empty slice"):
                x.mean(axis)
        else:
            assert x.mean(axis).shape == np.zeros(shape).sum(axis).shape


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_places(name: str, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    """As in numpy, the first of equal elements is chosen."""
    for dtype, layout in cases(op_row, rng, name):
        if layout in ("empty", "scalar"):
            continue
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        exact = np.round(x.array.astype(np.float64))
        rounded = ubridge.from_numpy(exact.astype(x.array.dtype), device=device)
        told = f"{name} {dtype} {layout} {x.array.shape} along {axis}"
        got = getattr(rounded, name)(axis)
        assert got.dtype.name == "u32"
        np.testing.assert_array_equal(got.to_numpy(), getattr(np, name)(exact, axis), told)
        straight = getattr(x.tensor, name)(axis).to_numpy()
        exact = x.array.astype(np.float64)
        np.testing.assert_array_equal(straight, getattr(np, name)(exact, axis), told)


def test_without_an_axis_everything_is_reduced(device: Device, rng: np.random.Generator) -> None:
    x = operand(rng, device, "transposed", "f32", (5, 7, 3), special=False)
    assert x.tensor.max().item() == x.array.max()
    assert x.tensor.argmax().item() == x.array.argmax()
    assert x.tensor.sum(keepdims=True).shape == (1, 1, 1)
    np.testing.assert_allclose(x.tensor.mean().item(), x.array.mean(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(x.tensor.sum(()).to_numpy(), x.array)


def test_averages(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    op_row.require_promotions()
    for dtype in ("f16", "bf16", "f32", "f64", "u8", "i64", "bool"):
        x = operand(rng, device, "stepped", dtype, (6, 9), special=False)
        expected = x.array.astype(np.float64).mean(1)
        got = x.tensor.mean(1)
        assert got.dtype.name == (dtype if x.array.dtype.kind in "fV" else "f64")
        step = STEP.get(dtype, 1e-7)
        np.testing.assert_allclose(got.to_numpy().astype(np.float64), expected, step, step * 4)


def test_booleans_are_counted(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    op_row.require_promotions()
    x = operand(rng, device, "transposed", "bool", (30, 40))
    counted = x.tensor.sum(0)
    assert counted.dtype.name == "i64"
    np.testing.assert_array_equal(counted.to_numpy(), x.array.sum(0))


def test_long_and_many_rows(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for shape in ((2, 70001), (70001, 2), (1, 1024), (3, 1025)):
        x = operand(rng, device, "contiguous", "f32", shape, special=False)
        np.testing.assert_array_equal(x.tensor.max(1).to_numpy(), x.array.max(1))
        np.testing.assert_array_equal(x.tensor.argmin(1).to_numpy(), x.array.argmin(1))
        np.testing.assert_allclose(
            x.tensor.sum(1).to_numpy(), x.array.astype(np.float64).sum(1), 1e-4, 2e-2
        )


def short_rows(seed: int) -> None:
    """Reduce many short rows on the host, contiguous and strided."""
    rng = np.random.default_rng(seed)
    with Device(0, backend="host"):
        for columns in (1, 2, 7, 8, 9, 16, 31, 32, 33, 100, 1023, 1024, 1025):
            rows = int(rng.integers(1, 40_000 // columns + 2))
            x = rng.standard_normal((rows, 2 * columns)).astype(np.float32)
            x[rng.integers(rows)] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
            whole = ubridge.from_numpy(x)
            for array, tensor in (
                (x, whole),
                (x[:, ::2], whole[:, ::2]),
                (x[:, :columns], whole[:, :columns]),
                (x.T, whole.T),
            ):
                told = f"seed {seed}: {array.shape}"
                wide = array.astype(np.float64)
                magnitudes = np.abs(wide).sum(-1)
                usual = np.isfinite(magnitudes)
                total, exact = tensor.sum(-1).to_numpy(), wide.sum(-1)
                difference = np.abs(total[usual] - exact[usual])
                assert (difference <= 1e-6 * magnitudes[usual]).all(), told
                np.testing.assert_array_equal(total[~usual], exact[~usual], told)
                np.testing.assert_array_equal(tensor.max(-1).to_numpy(), array.max(-1), told)
                np.testing.assert_array_equal(tensor.argmin(-1).to_numpy(), array.argmin(-1), told)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_short_rows_on_any_number_of_threads(threads: int, seed: int, device: Device) -> None:
    if device.backend != "host":
        pytest.skip("a matter of the host's threads")
    check_child(short_rows, seed, environment={"UHAL_HOST_THREADS": str(threads)})


def assert_near(
    got: Array, expected: Array, dtype: str, told: str, ulps: float, terms: Array | float = 0
) -> None:
    """Compare in steps of the dtype, relative to the largest value, and to each value or its
    terms."""
    scale = np.abs(expected).max(initial=0)
    bound = STEP[dtype] * ulps * (np.maximum(np.abs(expected), terms) + 0.1 * scale) + 1e-30
    if dtype == "f8e4m3":
        bound = bound + 2**-9
    difference = np.abs(got.astype(np.float64) - expected)
    assert (difference <= bound).all(), (told, difference.max(initial=0))


def test_softmax(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, layout in cases(op_row, rng, "softmax"):
        if layout == "scalar":
            continue
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        told = f"softmax {dtype} {layout} {x.array.shape} along {axis}"
        exact = np.moveaxis(x.array.astype(np.float64), axis, -1)
        if exact.size:
            exact = OPS["softmax"].reference(exact)  # type: ignore[misc]
        got = ubridge.softmax(x.tensor, axis).to_numpy()
        # The exponential in f32 adds an error of its own.
        assert_near(got, np.moveaxis(exact, -1, axis), dtype, told, 12 * op_row.ulps)


def test_norms(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, layout in cases(op_row, rng, "rms_norm"):
        if layout in ("scalar", "empty"):
            continue
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        columns = x.array.shape[-1]
        weight = operand(rng, device, "stepped", dtype, (columns,), special=False)
        bias = operand(rng, device, "offset", dtype, (columns,), special=False)
        epsilon = 0.5
        wide = [one.array.astype(np.float64) for one in (x, weight, bias)]
        told = f"{dtype} {layout} {x.array.shape}"
        ulps = 24 * op_row.ulps
        # Both norms are computed in f32 or a wider type.
        got = ubridge.rms_norm(x.tensor, weight.tensor, epsilon).to_numpy()
        expected = OPS["rms_norm"].reference(*wide[:2], epsilon)  # type: ignore[misc]
        precision = "f32" if dtype == "f64" else dtype
        assert_near(got, expected, precision, f"rms_norm {told}", ulps)
        got = ubridge.layer_norm(x.tensor, weight.tensor, bias.tensor, epsilon).to_numpy()
        expected = OPS["layer_norm"].reference(*wide, epsilon)  # type: ignore[misc]
        # Digits cancel twice: when the mean is subtracted, and when the bias is added.
        spread = np.sqrt(wide[0].var(-1, keepdims=True) + epsilon)
        terms = abs(wide[0] / spread * wide[1]) + abs(wide[2])
        assert_near(got, expected, precision, f"layer_norm {told}", ulps, terms)


def rotated(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """(batch, heads, positions, width) by angles (batch or 1, 1, positions, width / 2)."""
    if interleaved:
        first, second = x[..., ::2], x[..., 1::2]
    else:
        first, second = np.split(x, 2, -1)
    one, other = first * cos - second * sin, first * sin + second * cos
    if interleaved:
        return np.stack((one, other), -1).reshape(x.shape)
    return np.concatenate((one, other), -1)


@pytest.mark.parametrize("kind", ["rope", "rope_i", "rope_thd"])
@pytest.mark.parametrize("per_batch", [False, True])
def test_rope(
    kind: str, per_batch: bool, op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    dtypes = ("f32", "f16", "bf16") if op_row.backend == "tops" else ("f32", "f16", "bf16", "f64")
    for dtype in dtypes:
        batch, heads, positions, width = 2, 3, 5, 8
        heads_last = kind == "rope_thd"
        shape = (batch, positions, heads, width) if heads_last else (batch, heads, positions, width)
        x = operand(rng, device, "transposed", dtype, shape, special=False)
        table = (batch, positions, width // 2) if per_batch else (positions, width // 2)
        cos = operand(rng, device, "contiguous", dtype, table, special=False)
        sin = operand(rng, device, "stepped", dtype, table, special=False)
        got = ubridge.rope(
            x.tensor, cos.tensor, sin.tensor, interleaved=kind == "rope_i", heads_last=heads_last
        ).to_numpy()
        exact = x.array.astype(np.float64)
        if heads_last:
            exact = exact.swapaxes(1, 2)
        angles = [one.array.astype(np.float64).reshape(-1, 1, *table[-2:]) for one in (cos, sin)]
        expected = rotated(exact, *angles, kind == "rope_i")
        if heads_last:
            expected = expected.swapaxes(1, 2)
        assert_near(got, expected, dtype, f"{kind} {dtype} {per_batch}", 4)


@pytest.mark.parametrize("descending", [False, True])
def test_sorts(descending: bool, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    name = "argsort_descending" if descending else "argsort"
    for dtype, layout in cases(op_row, rng, name):
        if layout == "scalar":
            continue
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        told = f"{name} {dtype} {layout} {x.array.shape} along {axis}"
        got = ubridge.argsort(x.tensor, axis, descending)
        assert got.dtype.name == "u32"
        indices = got.to_numpy().astype(np.int64)
        exact = x.array.astype(np.float64)
        ordered = np.sort(exact, axis)
        if descending:
            ordered = np.flip(ordered, axis)
        np.testing.assert_array_equal(np.take_along_axis(exact, indices, axis), ordered, told)
        np.testing.assert_array_equal(
            np.sort(indices, axis),
            np.moveaxis(
                np.broadcast_to(np.arange(x.array.shape[axis]), np.moveaxis(exact, axis, -1).shape),
                -1,
                axis,
            ),
            told,
        )


@pytest.mark.parametrize("descending", [False, True])
def test_sorts_are_stable_where_the_pages_say_so(
    descending: bool, op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    """CUDA, ROCm and the host: equal elements stay in order, NaN is the largest."""
    if op_row.backend == "tops":
        pytest.skip("nothing is said of GCUs, whose kernel is Ubridge's")
    dtypes = [one for one in OPS["argsort"].dtypes if op_row.has(OPS["argsort"], one, None)]
    for dtype in rng.permutation(dtypes)[:2]:
        values = rng.integers(0, 3, (3, int(rng.integers(2, 300))))
        array = values.astype(as_dtype(str(dtype)).dtype)
        if as_dtype(str(dtype)).kind == "float":
            array[:, ::7] = np.nan
        ranks = np.where(np.isnan(array.astype(np.float64)), 3, values)
        expected = np.argsort(-ranks if descending else ranks, -1, kind="stable")
        got = ubridge.argsort(ubridge.from_numpy(array, device=device), -1, descending)
        np.testing.assert_array_equal(got.to_numpy(), expected, str(dtype))


def test_wrong_axes_are_refused(device: Device) -> None:
    x = ubridge.zeros((2, 3), device=device)
    with pytest.raises(ArgumentValueError, match="axis 2 is out of bounds for array of dimension"):
        x.sum(2)
    with pytest.raises(ArgumentValueError, match="sum: duplicate value in 'axis'"):
        x.sum((0, -2))
    with pytest.raises(ArgumentTypeError, match="argmax: expected one axis"):
        ubridge.argmax(x, (0, 1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match=r"rms_norm: expected weights of shape \(3,\)"):
        ubridge.rms_norm(x, ubridge.zeros(2, device=device))


def test_results_go_where_they_are_wanted(device: Device, rng: np.random.Generator) -> None:
    x = operand(rng, device, "stepped", "f32", (4, 6), special=False)
    whole = ubridge.full((4, 12), 77, device=device)
    out = whole[:, ::2]
    assert ubridge.softmax(x.tensor, 0, out=out) is out
    expected = OPS["softmax"].reference(x.array.T.astype(np.float64)).T  # type: ignore[misc]
    assert_near(out.to_numpy(), expected, "f32", "softmax into a view", 12)
    assert (whole[:, 1::2].to_numpy() == 77).all()
    row = ubridge.full((8,), 77, device=device)
    ubridge.max(x.tensor, 1, out=row[1:8:2])
    np.testing.assert_array_equal(row.to_numpy()[1::2], x.array.max(1))
    assert (row.to_numpy()[::2] == 77).all()


@pytest.mark.parametrize("function", ["sum", "mean", "var", "std", "prod"])
def test_a_converted_operand_is_reduced_in_pieces(
    function: str,
    op_row: OpRow,
    device: Device,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reduction in several launches, along any axis, equals a single reduction."""
    if device.backend == "tops":
        pytest.skip("the device has no such casts")
    monkeypatch.setattr(composing, "PIECE_BYTES", int(rng.integers(64, 512)))
    for dtype in op_row.sample(rng, ("u1", "i4", "f2"), 1):
        shape = tuple(int(length) for length in rng.integers(1, 17, 3))
        array = rng.integers(1, 3, shape).astype(dtype)
        x = ubridge.from_numpy(array, device=device)
        axes, keep = some_axes(rng, 3), bool(rng.integers(0, 2))
        options = (
            {"dtype": "f64" if dtype == "f2" else "i64"} if function in ("sum", "prod") else {}
        )
        got = getattr(ubridge, function)(x, axes, keepdims=keep, **options)
        wide = array.astype("i8" if options.get("dtype") == "i64" else "f8")
        expected = getattr(np, function)(wide, axes, keepdims=keep)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.to_numpy(), expected, 2e-3 if dtype == "f2" else 1e-6, 1e-6)


@pytest.mark.parametrize("function", ["sum", "mean", "var"])
def test_a_converted_operand_is_never_whole_in_memory(
    function: str, host: Device, rng: np.random.Generator
) -> None:
    x = ubridge.zeros(1 << 25, "u8", device=host)
    x[::7] = 3
    host.synchronize()
    before = host.pool_statistics()["bytes_in_use"]
    host.reset_peak_memory_stats()
    getattr(ubridge, function)(x, **({"dtype": "i64"} if function == "sum" else {})).item()
    used = host.pool_statistics()["peak_bytes_in_use"] - before
    # Memory holds two converted pieces at a time; the whole operand has four.
    assert used < 2.5 * composing.PIECE_BYTES < x.size * 8


def test_a_converted_operand_is_scanned_in_pieces(
    op_row: OpRow, device: Device, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums continue from piece to piece, even where `out` is the operand."""
    if device.backend == "tops":
        pytest.skip("the device has no such casts")
    monkeypatch.setattr(composing, "PIECE_BYTES", int(rng.integers(64, 512)))
    for dtype, wide in (("u1", "i64"), ("i4", "f64"), ("f2", "f32"), ("f2", None), ("?", None)):
        shape = tuple(int(length) for length in rng.integers(1, 17, 3))
        array = rng.integers(0, 3, shape).astype(dtype)
        x = ubridge.from_numpy(array, device=device)
        for axis in (None, *range(3)):
            got = ubridge.cumsum(x, axis, wide)
            expected = np.cumsum(array.astype("f8"), axis)
            assert got.dtype == (wide or ("i64" if dtype == "?" else "f16"))
            np.testing.assert_array_equal(got.to_numpy(), expected.astype(got.dtype.dtype))
        if wide is None and dtype == "f2":
            axis = int(rng.integers(3))
            assert ubridge.cumsum(x, axis, out=x) is x
            np.testing.assert_array_equal(x.to_numpy(), np.cumsum(array.astype("f8"), axis))


def test_a_scanned_operand_is_never_whole_in_a_wider_type(
    host: Device, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the result and a few pieces are in memory."""
    monkeypatch.setattr(composing, "PIECE_BYTES", 1 << 16)
    size = 1 << 18
    for dtype, wide in (("u8", "i64"), ("f16", None)):
        x = ubridge.zeros(size, dtype, device=host)
        x[:: int(rng.integers(200, 300))] = 1
        host.synchronize()
        before = host.pool_statistics()["bytes_in_use"]
        host.reset_peak_memory_stats()
        got = ubridge.cumsum(x, dtype=wide)
        used = host.pool_statistics()["peak_bytes_in_use"] - before
        assert used < got.nbytes + 5 * composing.PIECE_BYTES < 2 * got.nbytes
        assert got.to_numpy()[-1] == x.to_numpy().astype("i8").sum()


@pytest.mark.parametrize("name", ["logsumexp", "group_norm"])
def test_a_composition_works_in_pieces(
    name: str,
    op_row: OpRow,
    device: Device,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pieces may end within a result, an axis or a group; `out` may be the operand."""
    for dtype, layout in cases(op_row, rng, name):
        monkeypatch.setattr(composing, "PIECE_BYTES", int(rng.integers(4, 256)))
        shape = tuple(int(length) for length in rng.integers(1, 9, 3))
        if layout in ("empty", "scalar"):
            continue
        x = operand(rng, device, "stepped", dtype, shape, special=False)
        wide, step = x.array.astype("f8"), 4 * STEP[dtype] + 1e-5 * (dtype != "f64")
        if name == "logsumexp":
            axes = some_axes(rng, 3)
            expected = np.log(np.exp(wide).sum(axes))
            np.testing.assert_allclose(
                ubridge.logsumexp(x.tensor, axes).to_numpy(), expected, step, step
            )
            continue
        groups = int(rng.choice([one for one in range(1, 9) if shape[1] % one == 0]))
        weight, bias = [
            operand(rng, device, "contiguous", dtype, shape[1:2], special=False) for _ in range(2)
        ]
        given = [one.array.astype("f8") for one in (weight, bias)]
        expected = OPS[name].reference(wide, *given, groups, 0.5)  # type: ignore[misc]
        y = x.tensor.copy()
        out = y if rng.integers(2) else None
        got = ubridge.group_norm(y, weight.tensor, bias.tensor, groups, 0.5, out=out)
        assert out is None or got is out
        bound = step * (1 + abs(given[1]).max() + abs(given[0]).max() * abs(expected).max())
        np.testing.assert_allclose(got.to_numpy().astype("f8"), expected, step, bound)


def test_a_composition_keeps_no_wider_copy_of_an_operand(
    host: Device, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the result, memory holds a piece and rows of one group."""
    monkeypatch.setattr(composing, "PIECE_BYTES", 1 << 16)
    for dtype in ("f16", "bf16", "f32"):
        x = ubridge.zeros((64, 64, 64), dtype, device=host)
        x[:: int(rng.integers(2, 9))] = 1
        weights = ubridge.zeros((2, x.shape[1]), dtype, device=host)
        for run in (
            partial(ubridge.logsumexp, x),
            partial(ubridge.logsumexp, x, (0, 2)),
            partial(ubridge.group_norm, x, weights[0], weights[1], 4, out=x),
        ):
            host.synchronize()
            before = host.pool_statistics()["bytes_in_use"]
            host.reset_peak_memory_stats()
            run()
            host.synchronize()
            used = host.pool_statistics()["peak_bytes_in_use"] - before
            assert used < 2 * composing.PIECE_BYTES < x.nbytes // 2
