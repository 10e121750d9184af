"""Bugs of shader drivers that the translator works around."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
from opencl_backend import compile as opencl_compile
from tests.children import run_program
from tests.requirements import missing
from ubridge.definitions.table import OPS
from uhal import Device, DeviceBuffer, Module, as_dtype
from uhal._float_checks import lost_floats
from uhal.errors import LibraryNotFoundError

Array = npt.NDArray[np.float64]

SOURCE = """
#include <uhal/kernel.h>
KERNEL(two_sum, (const f32 *a, const f32 *b, f32 *high, f32 *low, u64 n)) {
    GRID_STRIDE(i, n) {
        const f32 sum = a[i] + b[i];
        const f32 taken = sum - a[i];
        high[i] = sum;
        low[i] = (a[i] - (sum - taken)) + (b[i] - taken);
    }
}
KERNEL(longer, (const i32 *x, i64 bound, u8 *out, f64 *real, u64 n)) {
    GRID_STRIDE(i, n) {
        const i64 wide = x[i];
        out[i] = (wide >= 0) | (wide < bound) << 1 | ((u64)wide >> 63 == 0) << 2;
        out[i] |= (wide == -7) << 3;
        real[i] = (f64)wide;
    }
}
KERNEL(through, (const f32 *x, f32 *negative, u8 *facts, u64 n)) {
    GRID_STRIDE(i, n) {
        negative[i] = -x[i];
        facts[i] = (x[i] != x[i]) | (x[i] < 0) << 1 | (x[i] > 3.0e38f) << 2 | (x[i] == 0) << 3;
    }
}
KERNEL(rounded, (const f32 *x, const f32 *y, f32 *lost, f32 *root, f32 *quotient, u64 n)) {
    GRID_STRIDE(i, n) {
        const f32 product = x[i] * y[i];
        lost[i] = i % 2 == 0 ? fmaf(x[i], y[i], -product) : fmaf(-y[i], x[i], product);
        root[i] = sqrtf(y[i]);
        quotient[i] = x[i] / y[i];
    }
}
"""


@pytest.fixture(scope="module")
def image() -> bytes:
    try:
        return opencl_compile.kernels(SOURCE)
    except LibraryNotFoundError as reason:
        missing(str(reason))


@pytest.fixture
def kernel(device: Device, image: bytes) -> Callable[..., object]:
    module = Module.from_bytes(image)

    def launch(name: str, *arguments: object) -> None:
        module.get_function(name)[4, 64](*arguments)

    return launch


def test_the_rest_of_a_sum_is_exact(
    kernel: Callable[..., object], rng: np.random.Generator
) -> None:
    # Exponents are at most 21 apart, so that f64 holds the sum of two numbers of 24 bits.
    scales = np.ldexp(rng.choice([-1.0, 1.0], (2, 1000)), rng.integers(-10, 11, (2, 1000)))
    a, b = (rng.uniform(1, 2, (2, 1000)) * scales).astype("f4")
    high, low = (DeviceBuffer.from_numpy(np.full(1000, np.nan, "f4")) for _ in range(2))
    kernel("two_sum", DeviceBuffer.from_numpy(a), DeviceBuffer.from_numpy(b), high, low, 1000)
    assert (high.to_numpy() == a + b).all()
    exact = a.astype("f8") + b.astype("f8") - (a + b).astype("f8")
    assert (low.to_numpy() == exact).all()


def test_sign_extended_numbers_compare_as_they_are(
    kernel: Callable[..., object], rng: np.random.Generator
) -> None:
    x = rng.integers(-(1 << 31), 1 << 31, 500).astype("i4")
    x[:6] = -7, 0, -1, 1, -(1 << 31), (1 << 31) - 1
    for bound in (0, -7, 5, -(1 << 40), 1 << 40, int(rng.integers(-(1 << 33), 1 << 33))):
        out = DeviceBuffer.from_numpy(np.full(500, 0xA5, "u1"))
        real = DeviceBuffer.from_numpy(np.full(500, np.nan, "f8"))
        kernel("longer", DeviceBuffer.from_numpy(x), bound, out, real, 500)
        wide = x.astype("i8")
        expected = (wide >= 0) | (wide < bound) << 1 | (wide >= 0) << 2 | (wide == -7) << 3
        assert (out.to_numpy() == expected).all()
        assert (real.to_numpy() == wide.astype("f8")).all()


def test_nan_infinities_and_signs_of_zero_pass(
    kernel: Callable[..., object], rng: np.random.Generator
) -> None:
    x = rng.standard_normal(300).astype("f4")
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38]
    x[rng.permutation(300)[:70]] = np.tile(np.array(special, "f4"), 10)
    negative = DeviceBuffer.from_numpy(np.full(300, 7, "f4"))
    facts = DeviceBuffer.from_numpy(np.full(300, 0xA5, "u1"))
    kernel("through", DeviceBuffer.from_numpy(x), negative, facts, 300)
    assert (negative.to_numpy().view("u4") == (-x).view("u4")).all()
    expected = (x != x) | (x < 0) << 1 | (x > np.float32(3.0e38)) << 2 | (x == 0) << 3
    assert (facts.to_numpy() == expected).all()


def test_roots_quotients_and_rests_of_products_are_correctly_rounded(
    kernel: Callable[..., object], rng: np.random.Generator
) -> None:
    """Mesa's driver rounds twice in fma."""
    count = 500
    x, y = (
        (rng.uniform(1, 2, count) * 2.0 ** rng.integers(-30, 30, count)).astype("f4")
        for _ in range(2)
    )
    x *= rng.choice(np.array([-1, 1], "f4"), count)
    given = [DeviceBuffer.from_numpy(one) for one in (x, y)]
    got = [DeviceBuffer.from_numpy(np.full(count, np.nan, "f4")) for _ in range(3)]
    kernel("rounded", *given, *got, count)
    lost, root, quotient = (one.to_numpy() for one in got)
    exact = x.astype("f8") * y.astype("f8") - (x * y).astype("f8")
    assert (lost == np.where(np.arange(count) % 2 == 0, exact, -exact)).all()
    # A root or quotient rounded to f64 and then to f32 is correctly rounded.
    assert (root == np.sqrt(y.astype("f8")).astype("f4")).all()
    assert (quotient == (x.astype("f8") / y.astype("f8")).astype("f4")).all()


def powers(x: Array) -> Array:
    return np.asarray(x**7.25)


def shares(x: Array) -> Array:
    return np.array([math.erfc(-one / math.sqrt(2)) / 2 for one in x.ravel()])


@pytest.mark.parametrize(
    ("name", "expected", "least", "most"),
    [
        ("exp", np.exp, -87, 88),
        ("pow", powers, 1e-5, 1e5),
        ("normcdf", shares, -12.5, 12.5),
        ("asinh", np.arcsinh, -2, 2),
    ],
)
def test_large_arguments_keep_the_promise(
    name: str,
    expected: Callable[[Array], Array],
    least: float,
    most: float,
    device: Device,
    rng: np.random.Generator,
) -> None:
    """Rounding errors that the argument magnifies are taken into account."""
    x = rng.uniform(least, most, 4000).astype("f4")
    more = (np.full_like(x, 7.25),) if name == "pow" else ()
    given = [ubridge.from_numpy(one, device=device) for one in (x, *more)]
    found = getattr(ubridge, name)(*given).to_numpy().astype("f8")
    right = expected(x.astype("f8"))
    bound = OPS[name].accuracy.relative * 2.0**-24 * abs(right)
    assert (abs(found - right) <= bound).all()


def test_the_doctor_finds_nothing_lost(device: Device) -> None:
    assert lost_floats(ubridge, device) == ()


FLUSHING = """
import ctypes
libm = ctypes.CDLL("libm.so.6")
state = (ctypes.c_uint32 * 8)()
libm.fegetenv(state)
state[7] |= 0x8040  # MXCSR: results and operands that are subnormal become 0
libm.fesetenv(state)
import numpy as np
import ubridge
from uhal import Device, as_dtype
bits = np.arange(256, dtype="u1")
names = "sqrt", "negative", "abs"
with Device(0, "webgpu"):
    x = ubridge.from_numpy(bits.view(as_dtype("f8e4m3").dtype))
    for name in names:
        print(*getattr(ubridge, name)(x).to_numpy().view("u1"))
"""
"""Threads of Mesa's driver inherit the mode of the thread that opens the device."""


def test_small_numbers_of_f8_are_kept_where_subnormals_are_not(
    software: Mapping[str, str],
) -> None:
    """f8e4m3 is read through subnormal numbers of f32, which drivers may take for 0."""
    done = run_program(FLUSHING)
    assert done.returncode == 0, done.stderr
    got = [np.array(line.split(), "u1") for line in done.stdout.splitlines()]
    bits = np.arange(256, dtype="u1")
    x = bits.view(as_dtype("f8e4m3").dtype).astype("f4")
    with np.errstate(invalid="ignore"):
        expected = [np.sqrt(x), -x, abs(x)]
    for found, exact in zip(got, expected, strict=True):
        numbers = found.view(as_dtype("f8e4m3").dtype).astype("f4")
        np.testing.assert_array_equal(numbers, exact.astype(as_dtype("f8e4m3").dtype).astype("f4"))
