"""The array API's functions of creation, manipulation, searching and sets, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.op_rows import row_of
from tests.ubridge.operands import Array
from ubridge import DeviceTensor
from uhal import Device, as_dtype
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError, ArgumentValueError

DTYPES = ("f32", "f64", "f16", "bf16", "bool", "u8", "i16", "u32", "i64", "i8", "u16", "u64")


@pytest.fixture(autouse=True)
def images(device: Device) -> None:
    row_of(device.backend).require_images()


def drawn(
    device: Device, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> tuple[DeviceTensor, Array]:
    """Return a tensor of small integers, strided half of the time, and its elements."""
    array = rng.integers(0, 5, shape).astype(as_dtype(dtype).dtype)
    if shape and rng.random() < 0.5:
        return ub.from_numpy(np.repeat(array, 2, -1), device=device)[..., ::2], array
    return ub.from_numpy(array, device=device), array


def shape_of(rng: np.random.Generator, least: int = 1) -> tuple[int, ...]:
    return tuple(int(one) for one in rng.integers(1, 6, rng.integers(least, 4)))


def require_same(found: DeviceTensor, expected: Array) -> None:
    assert found.shape == expected.shape
    assert found.dtype is as_dtype(expected.dtype)
    np.testing.assert_array_equal(found.to_numpy(), expected)


def axis_of(rng: np.random.Generator, array: Array) -> int:
    return int(rng.integers(-array.ndim, array.ndim))


Check = Callable[[np.random.Generator, DeviceTensor, Array], None]


def repeat(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    axis, count = axis_of(rng, array), int(rng.integers(0, 4))
    counts = rng.integers(0, 3, array.shape[axis])
    require_same(ub.repeat(x, count, axis), np.repeat(array, count, axis))
    require_same(ub.repeat(x, count), np.repeat(array, count))
    if x.dtype.name not in ("i8", "u16", "u64"):
        require_same(ub.repeat(x, counts.tolist(), axis), np.repeat(array, counts, axis))


def tile(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    times = [int(one) for one in rng.integers(0, 3, rng.integers(0, 4))]
    require_same(ub.tile(x, times), np.tile(array, times))
    require_same(ub.tile(x, 2), np.tile(array, 2))


def roll(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    axis, shift = axis_of(rng, array), int(rng.integers(-9, 9))
    require_same(ub.roll(x, shift, axis), np.roll(array, shift, axis))
    require_same(ub.roll(x, shift), np.roll(array, shift))
    axes = tuple(range(array.ndim))
    require_same(ub.roll(x, [shift] * len(axes), axes), np.roll(array, [shift] * len(axes), axes))
    kept = ub.roll(x, 0, axis)
    kept.fill(0)
    require_same(x, array)


def pad(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    widths = [tuple(int(one) for one in rng.integers(0, 5, 2)) for _ in array.shape]
    value = int(rng.integers(0, 9))
    expected = np.pad(array, widths, constant_values=value)
    require_same(ub.pad(x, widths, constant_values=value), expected)
    require_same(ub.pad(x, 2), np.pad(array, 2))
    require_same(ub.pad(x, (1, 0)), np.pad(array, (1, 0)))
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        require_same(ub.pad(x, widths, mode), np.pad(array, widths, mode))
    kept = ub.pad(x, 0, "edge")
    kept.fill(0)
    require_same(x, array)


def views(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    order = [int(one) for one in rng.permutation(array.ndim)]
    require_same(ub.permute_dims(x, order), np.transpose(array, order))
    places = [int(one) for one in rng.permutation(array.ndim)]
    require_same(ub.moveaxis(x, order, places), np.moveaxis(array, order, places))
    axis = axis_of(rng, array)
    require_same(ub.moveaxis(x, axis, 0), np.moveaxis(array, axis, 0))
    require_same(ub.expand_dims(x, axis), np.expand_dims(array, axis))
    spread = (2, *array.shape)
    require_same(ub.broadcast_to(x, spread), np.broadcast_to(array, spread))
    require_same(ub.squeeze(ub.expand_dims(x, (0))), array.reshape(array.shape).squeeze())
    require_same(ub.squeeze(x[None, ..., None], (0, -1)), array)
    require_same(ub.reshape(x, -1), array.reshape(-1))
    for found, expected in zip(ub.unstack(x, axis), np.moveaxis(array, axis, 0), strict=True):
        require_same(found, expected)
    if array.ndim > 1:
        require_same(ub.matrix_transpose(x), np.swapaxes(array, -1, -2))


def joins(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    axis = axis_of(rng, array)
    require_same(ub.concat([x, x], axis), np.concatenate([array, array], axis))
    cut = [int(rng.integers(array.shape[axis] + 1))]
    turned = ub.concat(ub.split(x, cut, axis)[::-1], axis)
    require_same(turned, np.concatenate(np.split(array, cut, axis)[::-1], axis))
    row = ub.from_numpy(np.zeros(1, array.dtype), device=x.device)
    for found, expected in zip(
        ub.broadcast_arrays(x, row),
        np.broadcast_arrays(array, np.zeros(1, array.dtype)),
        strict=True,
    ):
        require_same(found, expected)


def diff(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    if x.dtype.name in ("i8", "u16", "u64"):
        return
    axis, n = axis_of(rng, array), int(rng.integers(0, 4))
    require_same(ub.diff(x, axis, n), np.diff(array, n, axis).astype(array.dtype))
    found = ub.diff(x, axis, 1, x, x)
    require_same(found, np.diff(np.concatenate([array] * 3, axis), 1, axis).astype(array.dtype))


def sets(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    found = ub.unique_all(x)
    plain = array.astype(np.float64) if array.dtype.kind not in "biu" else array
    values, indices, inverse, counts = np.unique(
        plain, return_index=True, return_inverse=True, return_counts=True
    )
    require_same(found.values, values.astype(array.dtype))
    require_same(found.indices, indices.astype(np.int64))
    require_same(found.inverse_indices, inverse.reshape(array.shape).astype(np.int64))
    require_same(found.counts, counts.astype(np.int64))
    require_same(ub.unique_values(x), values.astype(array.dtype))
    require_same(ub.unique_counts(x).counts, counts.astype(np.int64))
    require_same(ub.unique_inverse(x).values, values.astype(array.dtype))


def searches(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    for found, expected in zip(ub.nonzero(x), np.nonzero(array), strict=True):
        require_same(found, expected.astype(np.int64))
    if x.dtype.name not in ("i8", "u16", "u64"):
        axis = axis_of(rng, array)
        require_same(ub.count_nonzero(x), np.asarray(np.count_nonzero(array), np.int64))
        expected = np.count_nonzero(array, axis, keepdims=True)
        require_same(ub.count_nonzero(x, axis, True), np.asarray(expected, np.int64))
    plain = array.astype(np.float64).ravel()
    order = np.argsort(plain, kind="stable")
    row = ub.from_numpy(array.ravel()[order], device=x.device)
    for side in ("left", "right"):
        expected = np.searchsorted(plain[order], array.astype(np.float64), side)  # type: ignore[call-overload]
        require_same(ub.searchsorted(row, x, side=side), expected.astype(np.int64))  # type: ignore[arg-type]
        told = ub.from_numpy(order, device=x.device)
        found = ub.searchsorted(x.ravel(), x, side=side, sorter=told)  # type: ignore[arg-type]
        require_same(found, expected.astype(np.int64))


def triangles(rng: np.random.Generator, x: DeviceTensor, array: Array) -> None:
    if array.ndim > 1:
        k = int(rng.integers(-4, 5))
        require_same(ub.tril(x, k), np.tril(array, k))
        require_same(ub.triu(x, k), np.triu(array, k))


CHECKS = (repeat, tile, roll, pad, views, joins, diff, sets, searches, triangles)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_functions_of_shapes_and_sets(
    check: Check, device: Device, rng: np.random.Generator
) -> None:
    some = DTYPES if device.backend == "host" else (str(rng.choice(["f32", "u32", "u8"])),)
    for dtype in some:
        check(rng, *drawn(device, rng, shape_of(rng), dtype))


def test_made_of_numbers(device: Device, rng: np.random.Generator) -> None:
    rows, columns, k = (int(one) for one in rng.integers(0, 6, 3))
    require_same(ub.eye(rows, device=device), np.eye(rows, dtype=np.float32))
    found = ub.eye(rows, columns, k - 3, "i64", device=device)
    require_same(found, np.eye(rows, columns, k - 3, np.int64))
    start, stop = (float(one) for one in rng.standard_normal(2))
    for endpoint in (False, True):
        expected = np.linspace(start, stop, rows, endpoint=endpoint).astype(np.float32)
        require_same(ub.linspace(start, stop, rows, endpoint=endpoint, device=device), expected)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_a_grid(device: Device, rng: np.random.Generator, indexing: Any) -> None:
    arrays = [rng.integers(0, 9, int(one)) for one in rng.integers(1, 5, rng.integers(0, 4))]
    tensors = [ub.from_numpy(one, device=device) for one in arrays]
    found = ub.meshgrid(*tensors, indexing=indexing)
    for one, expected in zip(found, np.meshgrid(*arrays, indexing=indexing), strict=True):
        require_same(one, expected)


def test_mistakes_of_shapes(device: Device) -> None:
    x = ub.zeros((2, 3), device=device)
    for call, message in (
        (
            lambda: ub.moveaxis(x, (0, 1), 0),
            "moveaxis: expected as many positions as axes, got 1 for 2",
        ),
        (lambda: ub.repeat(x, [1, 2], 1), "repeat, repeats: expected 3 numbers"),
        (lambda: ub.repeat(x, -1), "repeat, repeats: expected 0 to"),
        (lambda: ub.roll(x, (1, 2, 3), (0, 1)), "roll: expected a shift for each axis"),
        (lambda: ub.reshape(x.mT, -1, copy=False), "reshape: expected a view of shape -1"),
        (lambda: ub.nonzero(ub.zeros((), device=device)), "nonzero: expected at least one axis"),
        (lambda: ub.searchsorted(x, x), "searchsorted, x1: expected one axis"),
        (lambda: ub.searchsorted(x[0], x, side="up"), "searchsorted, side: expected 'left'"),  # type: ignore[arg-type]
        (lambda: ub.tril(x[0]), "tril: expected at least two axes, got shape"),
        (lambda: ub.meshgrid(x), "meshgrid: expected rows, got shapes"),
    ):
        with pytest.raises(ArgumentValueError) as caught:
            call()
        assert str(caught.value).startswith(message)
    with pytest.raises(ArgumentTypeError, match="unique_all: expected a DeviceTensor"):
        ub.unique_all(np.zeros(3))  # type: ignore[arg-type]


def test_every_nan_is_a_value_of_its_own(device: Device) -> None:
    x = ub.from_numpy(np.array([np.nan, 1, np.nan, 1], np.float32), device=device)
    assert ub.unique_counts(x).counts.tolist() == [2, 1, 1]
    assert ub.count_nonzero(x).item() == 4
    assert ub.zeros(3, bool_, device=device).dtype is bool_
