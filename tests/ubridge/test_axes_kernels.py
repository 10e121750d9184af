"""Host kernels along one axis, for copies of rows, and for f16: all lengths, all values."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ubridge as ub
from tests import host_kernels
from tests.sampling import rounds
from ubridge import OPS
from ubridge.device.images import KERNELS
from uhal import Device, Module, as_dtype
from uhal.images import cpu_level

NEAR = {"f64": 2e-16, "f32": 1.2e-7, "f16": 9.8e-4, "bf16": 7.8e-3}
DTYPES = OPS["cumsum"].dtypes


@pytest.mark.parametrize("dtype", DTYPES)
def test_axes_of_every_length(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """There are more or fewer rows and columns than lanes; errors do not grow with the length."""
    for _ in range(rounds(6, 100)):
        lengths = [1, 7, 8, 9, 60, 300, int(rng.integers(1, 3000))]
        shape = [3000] * 3
        while math.prod(shape) > 1 << 18:
            shape = [int(rng.choice(lengths[:count])) for count in (5, 7, 6)]
        kind = as_dtype(dtype).dtype
        drawn = rng.standard_normal(shape) if dtype in NEAR else rng.integers(-9, 9, shape)
        array = np.asarray(drawn).astype(kind)
        wide = array.astype(np.longdouble) if dtype in NEAR else array
        x = ub.asarray(array, device=host)
        out = ub.full(shape, np.nan if dtype in NEAR else 77, dtype=dtype, device=host)
        assert ub.cumsum(x, 1, out=out) is out
        sums = np.cumsum(wide, 1, dtype=wide.dtype)
        # Factors are near 1: products of other values would overflow.
        factors = (1 + wide / 64).astype(kind) if dtype in NEAR else array
        products = ub.prod(ub.asarray(factors, device=host), 1).to_numpy()
        exact = np.prod(factors.astype(wide.dtype), 1, dtype=wide.dtype)
        if dtype not in NEAR:
            np.testing.assert_array_equal(out.to_numpy(), sums)
            np.testing.assert_array_equal(products, exact)
            continue
        slip = 2.0**-50 * np.cumsum(abs(wide), 1)
        if dtype in ("f16", "bf16"):
            # Large tensors are summed in pieces: f32 rounds a piece, its start and their sum.
            slip += 3 * 2.0**-24 * np.maximum.accumulate(abs(sums), 1)
        bound = NEAR[dtype] * abs(sums) + (slip / shape[1] if dtype == "f64" else slip)
        assert (abs(out.to_numpy().astype(np.longdouble) - sums) <= bound + 2.0**-26).all(), shape
        computed = 2.0**-52 if dtype == "f64" else 2.0**-24
        bound = (NEAR[dtype] + computed * shape[1]) * abs(exact) + 2.0**-24
        with np.errstate(over="ignore"):
            limit = abs(exact) < 6e4
        assert (abs(products.astype(np.longdouble) - exact) <= bound)[limit].all(), shape


def test_infinities_and_zeros_of_running_sums(host: Device) -> None:
    for dtype in NEAR:
        row = np.array([-0.0, -0.0, 1, np.inf, 2, -np.inf, 3]).astype(as_dtype(dtype).dtype)
        with np.errstate(invalid="ignore"):
            exact = np.cumsum(row.astype(np.float64))
        got = ub.cumsum(ub.asarray(row, device=host)).to_numpy().astype(np.float64)
        np.testing.assert_array_equal(got, exact)
        assert np.signbit(got[:2]).all()


@pytest.mark.parametrize("ids_dtype", ["u8", "u32", "i64"])
@pytest.mark.parametrize("dtype", OPS["index_select"].dtypes)
def test_choices_along_the_last_axis(
    host: Device, rng: np.random.Generator, dtype: str, ids_dtype: str
) -> None:
    """Ids are ascending, descending or random, for few and many rows, in several blocks."""
    for _ in range(rounds(4, 60)):
        left, length = (int(one) for one in rng.integers(1, (70, 200)))
        array = rng.integers(0, 100, (left, length)).astype(as_dtype(dtype).dtype)
        start, stop = sorted(int(one) for one in rng.integers(0, length, 2))
        for ids in (
            np.arange(start, stop + 1),
            np.arange(start, stop + 1)[::-1],
            rng.integers(0, length, int(rng.integers(1, 300))),
        ):
            chosen = ub.asarray(ids.astype(as_dtype(ids_dtype).dtype), device=host)
            got = ub.take(ub.asarray(array, device=host), chosen, 1).to_numpy()
            assert got.tobytes() == np.take(array, ids, 1).tobytes(), (left, length, ids)
        assert (
            ub.flip(ub.asarray(array, device=host)).to_numpy().tobytes()
            == array[::-1, ::-1].tobytes()
        )


@pytest.mark.parametrize("dtype", OPS["clip"].dtypes)
def test_bounds_of_elements(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """The bounds have any order, and NaN and infinities are among elements and bounds."""
    kind = as_dtype(dtype).dtype
    for count in (1, 17, 5000, int(rng.integers(1, 100_000))):
        array = (3 * rng.standard_normal(count)).astype(kind)
        array[rng.integers(0, count, 3)] = [np.nan, np.inf, -np.inf]
        for bounds in ((-1.5, 2), (2, -1.5), (np.nan, 1), (0, np.nan), (-np.inf, np.inf)):
            got = ub.clip(ub.asarray(array, device=host), *bounds).to_numpy()
            low, high = (np.array(one).astype(kind).astype(np.float64) for one in bounds)
            exact = np.minimum(np.maximum(array.astype(np.float64), low), high)
            np.testing.assert_array_equal(got.astype(np.float64), exact, f"{count} {bounds}")


def test_rows_copied_a_little_ahead(host: Device, rng: np.random.Generator) -> None:
    """Rows move by 1 to 700 bytes modulo a page: some are copied from their end."""
    for _ in range(rounds(40, 400)):
        columns = int(rng.choice([9, 255, 256, 257, 1000, 4096, 8192]))
        array = rng.integers(0, 256, (3, columns), np.uint8)
        shift = int(rng.integers(1, 700))
        got = ub.roll(ub.asarray(array, device=host), shift, 1).to_numpy()
        np.testing.assert_array_equal(got, np.roll(array, shift, 1), f"{columns} by {shift}")


@pytest.mark.parametrize("dtype", OPS["isnan"].dtypes)
def test_kinds_of_floats(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """All bits of f16 and bf16, and random bits of others, in every layout."""
    kind = as_dtype(dtype).dtype
    bits = np.dtype(f"u{kind.itemsize}")
    drawn = rng.integers(0, 2 ** (8 * kind.itemsize), 2**16, bits)
    if kind.itemsize == 2:
        drawn = rng.permutation(2**16).astype(bits)
    else:
        mantissa = np.finfo(kind).nmant
        edges = np.array([0, 1, 2**mantissa - 1], bits)
        ones = bits.type((1 << 8 * kind.itemsize - 1 - mantissa) - 1) << bits.type(mantissa)
        sign = bits.type(1 << 8 * kind.itemsize - 1)
        special = np.concatenate([edges, edges | ones, edges | sign, edges | ones | sign])
        drawn[rng.permutation(2**16)[:4096]] = rng.choice(special, 4096)
    array = drawn.view(kind).reshape(256, 256)
    x = ub.asarray(array, device=host)
    for name in ("isfinite", "isinf", "isnan", "signbit"):
        for own, exact in ((x, array), (x.T, array.T), (x[1:, ::2], array[1:, ::2])):
            got = getattr(ub, name)(own).to_numpy()
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(got, getattr(np, name)(exact), name)


@pytest.mark.parametrize("dtype", OPS["argsort"].dtypes)
def test_orders_of_rows_of_every_length(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """Equal elements keep their order in both directions; all NaN are equal and the largest."""
    is_float = as_dtype(dtype).kind == "float"
    low = 0 if dtype[0] == "u" else -100
    for length in (1, 2, 40, 41, int(rng.integers(42, 3000))):
        shape = (int(rng.integers(1, 9)), length)
        drawn = rng.integers(low, 100, shape).astype(np.float64)
        if is_float:
            special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 0.5], shape)
            drawn = np.where(rng.random(shape) < 0.5, special, drawn)
        x = ub.asarray(drawn, device=host).astype(dtype)
        numbers = np.where(np.isnan(drawn), np.finfo(np.float64).max, drawn)
        numbers = np.where(drawn == np.inf, 1e300, numbers)
        out = ub.full(shape, 2**32 - 1, "u32", device=host)
        for descending, keys in ((False, numbers), (True, -numbers)):
            ub.argsort(x, -1, descending, out=out)
            np.testing.assert_array_equal(out.to_numpy(), np.argsort(keys, -1, kind="stable"))


def unordered(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    """Return random elements, many of them equal, zeros with signs, infinities or NaN."""
    kind = as_dtype(dtype).dtype
    if as_dtype(dtype).kind != "float":
        return rng.integers(0 if dtype[0] == "u" else -100, 100, shape).astype(kind)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 0.5], shape)
    drawn = np.where(rng.random(shape) < 0.3, special, rng.integers(-50, 50, shape))
    array = drawn.astype(kind)
    if dtype in ("f32", "f64"):
        # A NaN keeps its digits, too.
        words = array.view(f"u{kind.itemsize}")
        words[np.isnan(array)] += rng.integers(0, 9, int(np.isnan(array).sum())).astype(words.dtype)
    return array


def stable_order(array: np.ndarray, descending: bool) -> np.ndarray:
    """Return numpy's stable order of rows, in which NaN is the largest."""
    wide = array.astype(np.float64)
    keys = np.where(np.isnan(wide), np.inf, wide)
    ranks = np.unique(keys, return_inverse=True)[1].reshape(array.shape) + np.isnan(wide)
    return np.argsort(-ranks if descending else ranks, -1, kind="stable")


@pytest.mark.parametrize("dtype", OPS["sort"].dtypes)
def test_sorted_rows_have_the_bits_of_their_elements(
    host: Device, rng: np.random.Generator, dtype: str
) -> None:
    """Equal elements keep their order: rows are sorted side by side, alone, and by insertion."""
    for length in (1, 7, 8, 9, 40, 41, 64, int(rng.integers(65, 600)), 4099):
        rows = int(rng.integers(1, 9 if length > 600 else 150))
        array = unordered(rng, (rows, length), dtype)
        x = ub.asarray(array, device=host)
        for descending in (False, True):
            order = stable_order(array, descending)
            found = ub.argsort(x, -1, descending).to_numpy()
            np.testing.assert_array_equal(found, order, str(array.shape))
            got = ub.sort(x, -1, descending).to_numpy()
            exact = np.take_along_axis(array, order, -1)
            assert got.tobytes() == exact.tobytes(), (array.shape, descending)
            across = ub.sort(ub.asarray(array.T.copy(), device=host), 0, descending).to_numpy()
            assert across.T.tobytes() == exact.tobytes(), (array.shape, descending)


SORTS = r"""
#include "number.h"
#include "ordering.h"
#define SORTS(T) \
    KERNEL(sorts_##T, (const T *x, T *dst, u32 *order, u64 rows, u64 length)) \
    { \
        sort_rows<false>(x, dst, rows, length); \
        order_rows<true>(x, order, rows, length); \
    }
SORTS(f32)
SORTS(bf16)
SORTS(i64)
"""


@pytest.mark.parametrize("level", cpu_level.usable_levels("axes"), ids=lambda one: one.name)
def test_sorts_at_every_level(
    host: Device, rng: np.random.Generator, level: cpu_level.Level
) -> None:
    march = [f"-march={level.march}"] if level.march else []
    image = host_kernels.build(SORTS, *march, "-O1", f"-I{KERNELS}")
    module = Module.from_bytes(image, device=host)
    for dtype in ("f32", "bf16", "i64"):
        for length in (1, 8, 9, 100, int(rng.integers(10, 1200))):
            array = unordered(rng, (int(rng.integers(1, 80)), length), dtype)
            sorted_rows = ub.full(array.shape, 77, dtype, device=host)
            order = ub.full(array.shape, 2**32 - 1, "u32", device=host)
            given = ub.asarray(array, device=host).buffer
            kernel = module.get_function(f"sorts_{dtype}")
            kernel[1, 1](given, sorted_rows.buffer, order.buffer, *array.shape)
            np.testing.assert_array_equal(order.to_numpy(), stable_order(array, False))
            exact = np.take_along_axis(array, stable_order(array, True), -1)
            assert sorted_rows.to_numpy().tobytes() == exact.tobytes(), array.shape


@pytest.mark.parametrize("dtype", OPS["copy2d"].dtypes)
def test_parts_of_rows_of_every_width(host: Device, rng: np.random.Generator, dtype: str) -> None:
    for columns in (*range(1, 11), int(rng.integers(11, 300))):
        rows = int(rng.integers(1, 500))
        parts = [
            ub.asarray(rng.integers(0, 9, (rows, width)), device=host).astype(dtype)
            for width in (columns, int(rng.integers(1, 9)))
        ]
        joined = ub.concatenate(parts, 1).astype("f64").to_numpy()
        exact = np.concatenate([one.astype("f64").to_numpy() for one in parts], 1)
        np.testing.assert_array_equal(joined, exact)


def test_every_f16_is_converted_as_by_numpy(host: Device, rng: np.random.Generator) -> None:
    """Conversions also match in runs shorter than a vector."""
    every = rng.permutation(np.arange(2**16, dtype=np.uint16)).view(np.float16)
    numbers = rng.integers(0, 2**32, 2**16 + 5, np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        wide, halves = every.astype(np.float32), numbers.astype(np.float16)
    np.testing.assert_array_equal(ub.asarray(every, device=host).astype("f32").to_numpy(), wide)
    np.testing.assert_array_equal(ub.asarray(numbers, device=host).astype("f16").to_numpy(), halves)
    for count in range(1, 20):
        found = ub.asarray(numbers[-count:], device=host).astype("f16").to_numpy()
        np.testing.assert_array_equal(found, halves[-count:])
