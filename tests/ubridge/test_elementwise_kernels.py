"""The affine, binary and ternary kernels against numpy, in every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    FLOATS,
    HALVES,
    INTEGERS,
    LAYOUTS,
    Array,
    Output,
    Strided,
    assert_same,
    assert_within,
    numpy_dtype,
    random_geometry,
    random_shape,
    random_values,
    run,
    scalar,
    strided,
    words,
)
from ubridge import OPS
from uhal import Device, DeviceBuffer
from uhal.dtypes import f64

pytestmark = pytest.mark.entries


def quotient(a: Array, b: Array) -> Array:
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    wide_a, wide_b = a.astype(object), b.astype(object)
    pairs = zip(wide_a.ravel().tolist(), wide_b.ravel().tolist(), strict=True)
    cut = [0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    modulus = 1 << 8 * a.itemsize
    return np.array([one % modulus for one in cut], np.uint64).astype(a.dtype).reshape(a.shape)


ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "badd": np.add,
    "bsub": np.subtract,
    "bmul": np.multiply,
    "bdiv": quotient,
    "bmaximum": np.maximum,
    "bminimum": np.minimum,
}
CASES = [(operation, dtype) for operation in ARITHMETIC for dtype in (*FLOATS, *INTEGERS, "u64")]
for op in OPS.values():
    if op.family.name == "binary" and op.has_integers and op.root not in ARITHMETIC:
        assert op.reference is not None
        ARITHMETIC[op.root] = op.reference
        # A power of floats is not exact.
        CASES += [(op.root, one) for one in op.dtypes if op.name != "pow" or one[0] in "iu"]
FUNCTIONS = {
    op.root: op.reference
    for op in OPS.values()
    if op.family.name == "binary" and op.is_of_floats and op.reference is not None
}
"""Operations that only support floats and that numpy has, too."""
OF_FLOATS = {**FUNCTIONS, "bpow": np.power}
"""Functions of floats whose results are not exact."""
MAGNITUDES = {"blogaddexp": lambda x, y: np.maximum(abs(x), abs(y))}
"""Functions whose error grows with their operands, because the result may be their difference."""
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def in_f32(function: Callable[[Array, Array], Array], a: Array, b: Array, dtype: str) -> Array:
    """Return the result of floats; small floats are computed in f32, rounded once, f8 saturates."""
    if dtype not in HALVES:
        return function(a, b)
    result = function(a.astype(np.float32), b.astype(np.float32))
    if dtype == "f8e4m3":
        result = np.where(np.isnan(result), result, np.clip(result, -448, 448))
    return result.astype(numpy_dtype(dtype))


def info_of(*operands: Strided) -> DeviceBuffer | None:
    if all(operand.is_contiguous() for operand in operands):
        return None
    return words(operands[0].shape, *(operand.strides for operand in operands))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("operation", "dtype"), CASES)
def test_arithmetic(
    device: Device, rng: np.random.Generator, operation: str, dtype: str, layout: str
) -> None:
    for _ in range(rounds(1, 50)):
        lhs = strided(rng, dtype, layout)
        rhs = strided(rng, dtype, str(rng.choice(["contiguous", layout])), lhs.shape)
        output = Output(dtype, lhs.numel)
        run(
            device,
            "binary",
            f"{operation}_{dtype}",
            lhs.numel,
            len(lhs.shape),
            info_of(lhs, rhs),
            lhs.buffer(),
            rhs.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        with np.errstate(all="ignore"):
            expected = in_f32(ARITHMETIC[operation], lhs.values, rhs.values, dtype)
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("dtype", [one for one in FLOATS if not one.startswith("f8")])
@pytest.mark.parametrize("function", OF_FLOATS)
def test_functions(device: Device, rng: np.random.Generator, function: str, dtype: str) -> None:
    ends = [0.0, 1.0, 3e38, 1e-40, np.inf, np.nan]
    grid = np.meshgrid(*2 * [[*ends, *(-one for one in ends)]])
    drawn = [random_values(rng, dtype, rounds(3001, 1 << 20)) for _ in grid]
    with np.errstate(over="ignore"):  # 3e38 overflows in f16
        given = [
            np.concatenate([one.ravel().astype(x.dtype), x])
            for one, x in zip(grid, drawn, strict=True)
        ]
    output = Output(dtype, given[0].size)
    buffers = [DeviceBuffer.from_numpy(one) for one in given]
    entry = f"{function}_{dtype}"
    run(device, "binary", entry, given[0].size, 1, None, *buffers, output.buffer)
    with np.errstate(all="ignore"):
        expected = OF_FLOATS[function](*(one.astype(np.longdouble) for one in given))
    got = output.to_numpy()
    floor = 4 * float(ml_dtypes.finfo(got.dtype).tiny)
    if function in MAGNITUDES:
        sizes = MAGNITUDES[function](*(one.astype(np.longdouble) for one in given))
        finite = np.isfinite(sizes) & (sizes < 1e4)
        got, expected = got[finite], expected[finite]
        floor = 8 * float(sizes[finite].max() * ml_dtypes.finfo(got.dtype).eps)
    assert_within(got, expected, dtype, 4, floor=floor)
    zero = (got == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_integers_are_f64(
    device: Device, rng: np.random.Generator, function: str
) -> None:
    name = next(op.name for op in OPS.values() if op.root == function)
    left, right = (rng.integers(-9, 10, 100).astype("i4") for _ in range(2))
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[function](left, right)
    for y, exact in (
        (ubridge.array(right, device=device), expected),
        (3, FUNCTIONS[function](left, 3)),
    ):
        got = getattr(ubridge, name)(ubridge.array(left, device=device), y)
        assert got.dtype is f64
        np.testing.assert_allclose(got.to_numpy(), exact, 1e-15)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "u64"])
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_comparisons(device: Device, rng: np.random.Generator, comparison: str, dtype: str) -> None:
    for layout in LAYOUTS:
        lhs = strided(rng, dtype, layout)
        rhs = strided(rng, dtype, "transposed", lhs.shape)
        output = Output("u8", lhs.numel)
        run(
            device,
            "binary",
            f"{comparison}_{dtype}",
            lhs.numel,
            len(lhs.shape),
            info_of(lhs, rhs),
            lhs.buffer(),
            rhs.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        expected = COMPARISONS[comparison](lhs.values, rhs.values).astype(np.uint8)
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("dtype", [*INTEGERS, "u64"])
@pytest.mark.parametrize("root", ["bdiv", "mod", "bremainder", "bfloor_divide"])
def test_the_divisions_a_cpu_cannot_do(device: Device, root: str, dtype: str) -> None:
    numbers = np.iinfo(numpy_dtype(dtype))
    lhs = np.array([5, 0, numbers.min, numbers.max, numbers.min], numbers.dtype)
    rhs = np.array([0, 0, 0, 0, 0], numbers.dtype)
    rhs[4] -= numbers.dtype.type(1) if numbers.min < 0 else rhs[4]
    output = Output(dtype, 5)
    given = DeviceBuffer.from_numpy(lhs), DeviceBuffer.from_numpy(rhs)
    run(device, "binary", f"{root}_{dtype}", 5, 1, None, *given, output.buffer)
    is_quotient = root in ("bdiv", "bfloor_divide")
    expected = [0, 0, 0, 0, numbers.min if numbers.min < 0 and is_quotient else 0]
    assert output.to_numpy().tolist() == expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_affine(device: Device, rng: np.random.Generator, dtype: str, layout: str) -> None:
    for _ in range(rounds(2, 100)):
        given = strided(rng, dtype, layout)
        mul, add = random_values(rng, dtype, 2, special=False)
        output = Output(dtype, given.numel)
        run(
            device,
            "affine",
            f"affine_{dtype}",
            given.numel,
            len(given.shape),
            info_of(given),
            given.buffer(),
            output.buffer,
            mul,
            add,
            **random_geometry(rng),
        )
        with np.errstate(all="ignore"):
            if dtype in INTEGERS:
                assert_same(output.to_numpy(), given.values * mul + add)
                continue
            factors = np.longdouble(mul), np.longdouble(add)
            values = given.values.astype(np.longdouble)
            expected = values * factors[0] + factors[1]
            if dtype == "f8e4m3":
                expected = np.where(np.isnan(expected), expected, np.clip(expected, -448, 448))
            # Without fusion, the product is rounded, too.
            largest = np.abs(values * factors[0]) + abs(factors[1])
            finite = largest[np.isfinite(largest)]
        floor = float(np.finfo(np.float64 if dtype == "f64" else np.float32).eps)
        floor *= float(finite.max()) if finite.size else 0.0
        assert_within(output.to_numpy(), expected, dtype, 0.51, floor=max(floor, 1e-300))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
def test_affine_in_place(device: Device, rng: np.random.Generator, dtype: str) -> None:
    given = strided(rng, dtype, "transposed", (5, 401), special=False)
    output = Output.holding(dtype, given.values)
    info = words(given.shape, given.strides)
    two, zero = scalar(dtype, 2), scalar(dtype, 0)
    run(device, "affine", f"affine_{dtype}", given.numel, 2, info, None, output.buffer, two, zero)
    assert_same(output.to_numpy(), given.values + given.values)


CHOICES = [(ids, dtype) for ids in ("u8", "u32", "i64") for dtype in (*FLOATS, *INTEGERS)]
"""Dtypes of the conditions and of the values."""
CHOICES += [("i16", "f8e4m3"), ("i32", "f8e4m3")]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("ids", "dtype"), CHOICES)
def test_where(device: Device, rng: np.random.Generator, ids: str, dtype: str, layout: str) -> None:
    shape = random_shape(rng, layout)
    condition = strided(rng, ids, "transposed", shape)
    yes = strided(rng, dtype, layout, shape)
    no = strided(rng, dtype, "contiguous", shape)
    output = Output(dtype, yes.numel)
    info = words(shape, condition.strides, yes.strides, no.strides)
    if layout in ("one", "empty", "prime", "contiguous") and rng.random() < 0.5:
        condition = strided(rng, ids, "contiguous", shape)
        yes = strided(rng, dtype, "contiguous", shape)
        info = None
    # Candle has kernels for i16 and i32 conditions with f8 alone, named `fp8_e4m3`.
    spelled = dtype.replace("f8e4m3", "fp8_e4m3") if ids in ("i16", "i32") else dtype
    run(
        device,
        "ternary",
        f"where_{ids}_{spelled}",
        yes.numel,
        len(shape),
        info,
        condition.buffer(),
        yes.buffer(),
        no.buffer(),
        output.buffer,
        **random_geometry(rng),
    )
    assert_same(output.to_numpy(), np.where(condition.values != 0, yes.values, no.values))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_beside_multiples_of_the_divisor(
    host: Device, rng: np.random.Generator, dtype: type[np.floating[Any]]
) -> None:
    """Quotients are next to integers, small or too large for vectors; remainders are exact."""
    for bits in (3, 10, 21, 23, 40, 52):
        count = int(rng.integers(1, 2000))
        divisor = (rng.standard_normal(count) * 10.0 ** rng.integers(-30, 9)).astype(dtype)
        quotient = rng.integers(0, 1 << bits, count) * rng.choice([-1, 1], count)
        value = (divisor.astype(np.longdouble) * quotient).astype(dtype)
        for _ in range(int(rng.integers(0, 3))):
            value = np.nextafter(value, rng.choice([-np.inf, np.inf], count).astype(dtype))
        if bits % 2:
            special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45]
            for array in (value, divisor):
                array[rng.integers(0, count, 3)] = rng.choice(special, 3)
        x, y = ubridge.asarray(value, device=host), ubridge.asarray(divisor, device=host)
        with np.errstate(all="ignore"):
            whole = np.floor_divide(value, divisor)
            exact = [np.fmod(value, divisor), np.remainder(value, divisor)]
        for got, rest in zip((ubridge.mod(x, y), ubridge.remainder(x, y)), exact, strict=True):
            found = got.to_numpy()
            np.testing.assert_array_equal(found, rest)
            are_numbers = ~np.isnan(rest)
            np.testing.assert_array_equal(
                np.signbit(found[are_numbers]), np.signbit(rest[are_numbers])
            )
        # numpy's quotients by 0 and of infinities differ.
        finite = np.isfinite(value) & np.isfinite(divisor) & (divisor != 0)
        np.testing.assert_array_equal(ubridge.floor_divide(x, y).to_numpy()[finite], whole[finite])
