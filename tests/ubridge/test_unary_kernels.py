"""Every unary kernel against numpy in higher precision, in every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    HALVES,
    INTEGERS,
    LAYOUTS,
    Array,
    Output,
    assert_same,
    assert_within,
    numpy_dtype,
    random_geometry,
    random_values,
    run,
    scalar,
    strided,
    words,
)
from ubridge import OPS
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

Wide = np.longdouble


def each(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Apply an mpmath function of 100 bits to arrays; a result that is not real becomes NaN."""

    def call(x: Array) -> Array:
        with mpmath.workprec(100):
            values = [of_one(one) for one in x.astype(np.float64).ravel().tolist()]
        return np.array(values, Wide).reshape(x.shape)

    def of_one(x: float) -> np.longdouble:
        try:
            value = function(mpmath.mpf(x))
        except ValueError:  # outside the function's domain
            return Wide(np.nan)
        return Wide(np.nan if isinstance(value, mpmath.mpc) else mpmath.nstr(value, 24))

    return call


normal = each(mpmath.ncdf)


def rounded(x: Array) -> Array:
    away = np.trunc(x + np.copysign(Wide(0.5), x))
    return np.where(np.isfinite(x), away, x)


def gelu(x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        root = np.sqrt(1 / (2 * np.arctan(Wide(1))))
        return x / (1 + np.exp(-2 * root * (x + Wide("0.044715") * x**3)))


# operation: reference in extended precision, ulps for f32, ulps for f64
REFERENCES: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "ucopy": (lambda x: x, 0, 0),
    "uneg": (lambda x: -x, 0, 0),
    "urecip": (lambda x: 1 / x, 0.51, 0.51),
    "uexp": (np.exp, 4, 4),
    "ulog": (np.log, 4, 4),
    "usin": (np.sin, 4, 4),
    "ucos": (np.cos, 4, 4),
    "utanh": (np.tanh, 4, 4),
    "uerf": (each(mpmath.erf), 4, 5),
    # The last step of `uerfinv` calls erf and inherits its errors.
    "uerfinv": (each(mpmath.erfinv), 4, 5),
    "uceil": (np.ceil, 0, 0),
    "ufloor": (np.floor, 0, 0),
    "uround": (rounded, 0, 0),
    # The tail magnifies a rounding error of x / sqrt(2) by the square of x / sqrt(2): no such error
    # is allowed.
    "unormcdf": (normal, 16, 16),
    "uabs": (np.abs, 0, 0),
    "usqr": (lambda x: x * x, 0.51, 0.51),
    "usqrt": (np.sqrt, 0.51, 0.51),
    # The exponent reaches 708 and magnifies the rounding errors of its products.
    "ugelu": (gelu, 16, 16),
    "ugelu_erf": (lambda x: x * normal(x), 16, 16),
    "urelu": (lambda x: np.where(x <= 0, 0, x), 0, 0),
    "usilu": (lambda x: x / (1 + np.exp(-x)), 8, 8),
    "usign": (np.sign, 0, 0),
    "usigmoid": (lambda x: 1 / (1 + np.exp(-x)), 8, 8),
}
SLOW = {"uerf", "uerfinv", "unormcdf", "ugelu_erf"}
"""Slow references: mpmath takes a hundred times as long per number."""
# The other references are functions of numpy.
for op in OPS.values():
    if op.family.name == "unary" and op.dtypes and op.reference is not None:
        REFERENCES.setdefault(op.root, (op.reference, 4, 4))

DTYPES_OF = {op.root: op.dtypes for op in OPS.values() if op.family.name == "unary"}

OF_INTEGERS: dict[str, Callable[[Array], Array]] = {
    "ucopy": lambda x: x,
    "uneg": lambda x: np.negative(x),
    "uabs": np.abs,
    "usqr": lambda x: x * x,
    "urelu": lambda x: np.maximum(x, 0),
    "usign": np.sign,
    "uceil": lambda x: x,
    "ufloor": lambda x: x,
    "uround": lambda x: x,
    "utrunc": lambda x: x,
}


def computed(device: Device, entry: str, values: Array, dtype: str) -> Array:
    """Return a kernel's results on contiguous values."""
    output = Output(dtype, values.size)
    given = DeviceBuffer.from_numpy(values)
    run(device, "unary", entry, values.size, 1, None, given, output.buffer)
    return output.to_numpy()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("operation", REFERENCES)
def test_precision(device: Device, rng: np.random.Generator, operation: str, dtype: str) -> None:
    reference, of_f32, of_f64 = REFERENCES[operation]
    values = random_values(
        rng, dtype, rounds(*((503, 1 << 17) if operation in SLOW else (5003, 1 << 20)))
    )
    # Include values near 0, where other formulas cancel.
    values[::3] *= 10.0 ** rng.uniform(-30, 0, values[::3].size)
    with np.errstate(all="ignore"):
        expected = reference(values.astype(Wide))
    got = computed(device, f"{operation}_{dtype}", values, dtype)
    # The C library's vector functions do not support subnormal results.
    smallest = 4 * float(np.finfo(numpy_dtype(dtype)).tiny)
    assert_within(got, expected, dtype, of_f32 if dtype == "f32" else of_f64, floor=smallest)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("operation", ["usilu", "usigmoid", "ugelu", "uexp", "utanh"])
def test_where_exponentials_overflow(
    device: Device, rng: np.random.Generator, operation: str, dtype: str
) -> None:
    """Test to the last subnormal number; `silu(-89)` is -1.98e-37 and not 0."""
    ends = (60, 110) if dtype == "f32" else (690, 760)
    if operation == "ugelu":
        ends = (9, 12) if dtype == "f32" else (19, 23)
    drawn = -rng.uniform(*ends, 2001)
    values = np.concatenate([drawn, -drawn, [-1e5, -1e18, 1e5, 0.0, -0.0, np.inf, np.nan]])
    values = values.astype(numpy_dtype(dtype))
    reference, of_f32, of_f64 = REFERENCES[operation]
    with np.errstate(all="ignore"):
        expected = reference(values.astype(Wide))
        nearest = expected.astype(values.dtype)
    got = computed(device, f"{operation}_{dtype}", values, dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(nearest))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(nearest))
    plain = np.isfinite(nearest)
    # A subnormal result has fewer bits: allow two of its steps.
    steps = 2 * Wide(np.finfo(values.dtype).smallest_subnormal)
    if operation in ("uexp", "utanh"):
        # Subnormal results of the C library's vector functions are not checked.
        steps = Wide(np.finfo(values.dtype).tiny)
    ulps = of_f32 if dtype == "f32" else of_f64
    bound = ulps * np.finfo(values.dtype).eps * abs(expected[plain]) + steps
    off = abs(got[plain].astype(Wide) - expected[plain])
    worst = int(np.argmax(off / bound))
    assert (off <= bound).all(), (values[plain][worst], got[plain][worst], expected[plain][worst])


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [(one, dtype) for one in REFERENCES for dtype in HALVES if dtype in DTYPES_OF[one]],
)
def test_halves_are_the_f32_result_rounded_once(
    device: Device, rng: np.random.Generator, operation: str, dtype: str
) -> None:
    values = random_values(rng, dtype, rounds(5003, 1 << 20))
    in_f32 = computed(device, f"{operation}_f32", values.astype(np.float32), "f32")
    got = computed(device, f"{operation}_{dtype}", values, dtype)
    with np.errstate(all="ignore"):
        expected = in_f32.astype(numpy_dtype(dtype))
    if dtype == "f8e4m3":
        beyond = np.abs(in_f32) > 448
        expected[beyond] = np.copysign(448, in_f32[beyond]).astype(expected.dtype)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    # A GPU's fast functions may fall on the other side of the middle between two halves.
    middle = (got.astype(np.float64) + expected.astype(np.float64)) / 2
    with np.errstate(all="ignore"):
        same |= np.abs(in_f32 - middle) <= np.abs(middle) * 2.0**-19
    assert same.all(), (values[~same][:5], got[~same][:5], expected[~same][:5])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("operation", OF_INTEGERS)
def test_integers_wrap(
    device: Device, rng: np.random.Generator, operation: str, dtype: str
) -> None:
    values = random_values(rng, dtype, rounds(2003, 1 << 20))
    values[:2] = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
    with np.errstate(over="ignore"):
        expected = OF_INTEGERS[operation](values).astype(values.dtype)
    assert_same(computed(device, f"{operation}_{dtype}", values, dtype), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f8e4m3", "u8", "i64"])
@pytest.mark.parametrize("operation", ["ucopy", "uneg"])
def test_layouts(
    device: Device, rng: np.random.Generator, operation: str, dtype: str, layout: str
) -> None:
    for _ in range(rounds(4, 200)):
        given = strided(rng, dtype, layout)
        output = Output(dtype, given.numel)
        info = None if given.is_contiguous() else words(given.shape, given.strides)
        run(
            device,
            "unary",
            f"{operation}_{dtype}",
            given.numel,
            len(given.shape),
            info,
            given.buffer(),
            output.buffer,
            **random_geometry(rng),
        )
        expected = given.values if operation == "ucopy" else -given.values
        assert_same(output.to_numpy(), expected.ravel())


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_an_info_that_is_contiguous(device: Device, rng: np.random.Generator, dtype: str) -> None:
    given = strided(rng, dtype, "contiguous", (3, 1, 41))
    output = Output(dtype, given.numel)
    info = words(given.shape, (41, 9, 1))
    run(device, "unary", f"ucopy_{dtype}", given.numel, 3, info, given.buffer(), output.buffer)
    assert_same(output.to_numpy(), given.values.ravel())


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i16"])
def test_in_place(device: Device, rng: np.random.Generator, dtype: str, layout: str) -> None:
    """With a null input, the kernel reads the result's own elements, in row-major order."""
    given = strided(rng, dtype, layout, (7, 211))
    output = Output.holding(dtype, given.values)
    info = words(given.shape, given.strides) if layout == "transposed" else None
    run(device, "unary", f"usqr_{dtype}", given.numel, 2, info, None, output.buffer)
    with np.errstate(all="ignore"):
        expected = (given.values * given.values).ravel()
    assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("dtype", ["f32", "f64", *HALVES])
def test_elu(device: Device, rng: np.random.Generator, dtype: str) -> None:
    values = random_values(rng, dtype, 1009)
    alpha = scalar(dtype, 0.75)
    output = Output(dtype, values.size)
    given = DeviceBuffer.from_numpy(values)
    run(device, "unary", f"uelu_{dtype}", values.size, 1, None, alpha, given, output.buffer)
    wide = values.astype(np.float64)
    with np.errstate(over="ignore"):
        expected = np.where(wide > 0, wide, 0.75 * np.expm1(wide))
    expected = np.where(np.isinf(expected) & (dtype == "f8e4m3"), 448, expected)
    if dtype == "f8e4m3":
        expected = np.clip(expected, -448, 448)
    assert_within(output.to_numpy(), expected, dtype, 5 if dtype in ("f32", "f64") else 0.51)


@pytest.mark.parametrize("exponent", [2.0, -1.5, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("dtype", ["f32", "f64", *HALVES])
def test_powers(device: Device, rng: np.random.Generator, dtype: str, exponent: float) -> None:
    values = random_values(rng, dtype, 1009)
    output = Output(dtype, values.size)
    given = DeviceBuffer.from_numpy(values)
    power = scalar(dtype, exponent)
    run(device, "unary", f"upowf_{dtype}", values.size, 1, None, power, given, output.buffer)
    with np.errstate(all="ignore"):
        expected = np.power(values.astype(Wide), Wide(exponent))
    if dtype == "f8e4m3":
        expected = np.clip(expected, -448, 448)
    smallest = float(ulp_floor(dtype))
    bound = 4 if dtype in ("f32", "f64") else 0.51
    assert_within(output.to_numpy(), expected, dtype, bound, floor=smallest)


def ulp_floor(dtype: str) -> float:
    return {"f32": 2.0**-126, "f64": 2.0**-1022, "f16": 0, "bf16": 2.0**-126, "f8e4m3": 0}[dtype]
