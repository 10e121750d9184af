"""Mathematical functions of AMD's kernels, which are plain arithmetic, run on this CPU."""

from __future__ import annotations

import ctypes
import math
import subprocess
from typing import Any

import numpy as np
import pytest

from tests.host_kernels import INCLUDE, compiler, has_compiler
from tests.requirements import needed
from tests.sampling import rounds

pytestmark = [
    needed(has_compiler(), "no C++ compiler"),
    pytest.mark.skipif(
        np.finfo(np.longdouble).nmant <= np.finfo(np.float64).nmant,
        reason="nothing here is more exact than f64",
    ),
]

SOURCE = """
#define UHAL_MATH static inline
namespace device {
#include <uhal/hip/functions.h>
#include <uhal/hip/error_function.h>
#include <uhal/hip/power.h>
#include <uhal/hip/trigonometry.h>
#include <uhal/hip/inverse_functions.h>
}
#define EACH(name, type, call)                                                    \\
    extern "C" void name(long count, const type *x, const type *y, type *out) {  \\
        (void)y;                                                                  \\
        for (long i = 0; i < count; ++i)                                          \\
            out[i] = device::call;                                                \\
    }
EACH(exp_f64, double, exp(x[i]))
EACH(log_f64, double, log(x[i]))
EACH(tanh_f64, double, tanh(x[i]))
EACH(tanh_f32, float, tanhf(x[i]))
EACH(pow_f32, float, powf(x[i], y[i]))
EACH(pow_f64, double, pow(x[i], y[i]))
EACH(expm1_f64, double, expm1(x[i]))
EACH(expm1_f32, float, expm1f(x[i]))
EACH(log1p_f64, double, log1p(x[i]))
EACH(log1p_f32, float, log1pf(x[i]))
EACH(atan2_f64, double, atan2(x[i], y[i]))
EACH(atan2_f32, float, atan2f(x[i], y[i]))
EACH(sin_f64, double, sin(x[i]))
EACH(cos_f64, double, cos(x[i]))
EACH(sin_f32, float, sinf(x[i]))
EACH(cos_f32, float, cosf(x[i]))
EACH(tan_f64, double, tan(x[i]))
EACH(tan_f32, float, tanf(x[i]))
EACH(asin_f64, double, asin(x[i]))
EACH(asin_f32, float, asinf(x[i]))
EACH(acos_f64, double, acos(x[i]))
EACH(acos_f32, float, acosf(x[i]))
EACH(atan_f64, double, atan(x[i]))
EACH(atan_f32, float, atanf(x[i]))
EACH(sinh_f64, double, sinh(x[i]))
EACH(sinh_f32, float, sinhf(x[i]))
EACH(cosh_f64, double, cosh(x[i]))
EACH(cosh_f32, float, coshf(x[i]))
EACH(log2_f64, double, log2(x[i]))
EACH(log10_f64, double, log10(x[i]))
EACH(fmod_f64, double, fmod(x[i], y[i]))
EACH(fmod_f32, float, fmodf(x[i], y[i]))
EACH(erf_f64, double, erf(x[i]))
EACH(erfc_f64, double, erfc(x[i]))
EACH(erf_f32, float, erff(x[i]))
EACH(erfc_f32, float, erfcf(x[i]))
"""
COUNT = rounds(200_000, 20_000_000)
SPECIAL = [0.0, 1.0, 2.0, 3.0, 0.5, np.inf, np.nan, 1e-45, 3e38, 16777217.0, 1e30]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("mathematics")
    source, made = folder / "k.cpp", folder / "k.so"
    source.write_text(SOURCE)
    # The functions have names of the C library: without -fno-builtin the compiler uses built-ins.
    flags = ["-std=c++17", "-O2", "-fno-builtin", "-shared", "-fPIC", f"-I{INCLUDE}"]
    subprocess.run([*compiler(), *flags, str(source), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def run(library: ctypes.CDLL, name: str, x: Any, y: Any = None) -> Any:
    second = x if y is None else y
    out = np.full_like(x, np.nan)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (x, second, out)]
    getattr(library, name)(ctypes.c_long(x.size), *pointers)
    return out


def inputs(seed: int, reach: float, dtype: type[Any] = np.float64) -> Any:
    """Return random bit patterns, and numbers from the range where the function varies."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 256, COUNT * np.dtype(dtype).itemsize, np.uint8)
    parts = [bits.view(dtype), *(generator.uniform(-r, r, COUNT) for r in (reach, 1.0))]
    special = [*SPECIAL, *(-one for one in SPECIAL)]
    with np.errstate(invalid="ignore"):
        return np.concatenate([*parts, special]).astype(dtype)


def worst(got: Any, exact: Any) -> float:
    """Return the greatest error in ulp; infinities, NaN and the sign of zeros must agree."""
    expected = exact.astype(got.dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(got[infinite], expected[infinite])
    zero = (expected == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))
    finite = np.isfinite(expected)
    errors = np.abs(got[finite] - exact[finite]) / np.spacing(np.abs(expected[finite]))
    return float(errors.max())


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize(
    ("name", "exact", "reach", "bound"),
    [
        ("exp_f64", np.exp, 750.0, 3.0),
        ("log_f64", np.log, 20.0, 3.0),
        ("tanh_f64", np.tanh, 25.0, 3.0),
        ("tanh_f32", np.tanh, 12.0, 0.501),
        ("expm1_f64", np.expm1, 750.0, 3.0),
        ("expm1_f32", np.expm1, 90.0, 0.501),
        ("log1p_f64", np.log1p, 20.0, 3.0),
        ("log1p_f32", np.log1p, 20.0, 0.501),
        ("sin_f64", np.sin, 1e6, 2.0),
        ("cos_f64", np.cos, 1e6, 2.0),
        ("sin_f32", np.sin, 1e4, 0.501),
        ("cos_f32", np.cos, 1e4, 0.501),
        ("tan_f64", np.tan, 1e6, 5.0),
        ("tan_f32", np.tan, 1e4, 0.501),
        ("asin_f64", np.arcsin, 1.0, 4.0),
        ("asin_f32", np.arcsin, 1.0, 0.501),
        ("acos_f64", np.arccos, 1.0, 4.0),
        ("acos_f32", np.arccos, 1.0, 0.501),
        ("atan_f64", np.arctan, 1e3, 3.0),
        ("atan_f32", np.arctan, 1e3, 0.501),
        ("sinh_f64", np.sinh, 711.0, 5.0),
        ("sinh_f32", np.sinh, 90.0, 0.501),
        ("cosh_f64", np.cosh, 711.0, 5.0),
        ("cosh_f32", np.cosh, 90.0, 0.501),
        ("log2_f64", np.log2, 20.0, 4.0),
        ("log10_f64", np.log10, 20.0, 4.0),
    ],
)
def test_one_argument(
    library: ctypes.CDLL, seed: int, name: str, exact: Any, reach: float, bound: float
) -> None:
    x = inputs(seed, reach, np.float64 if name.endswith("f64") else np.float32)
    with np.errstate(all="ignore"):
        assert worst(run(library, name, x), exact(x.astype(np.longdouble))) < bound


@pytest.mark.parametrize(
    ("name", "exact", "reach", "bound"),
    [
        ("erf_f64", math.erf, 6.0, 3.0),
        ("erfc_f64", math.erfc, 27.0, 5.0),
        ("erf_f32", math.erf, 4.0, 0.501),
        ("erfc_f32", math.erfc, 10.0, 0.501),
    ],
)
def test_error_function(
    library: ctypes.CDLL, seed: int, name: str, exact: Any, reach: float, bound: float
) -> None:
    """Compare with the C library, whose f64 functions are within an ulp."""
    x = inputs(seed, reach, np.float64 if name.endswith("f64") else np.float32)
    x = np.concatenate([x[:: COUNT // 10_000], x[-2 * len(SPECIAL) :]])
    expected = np.array([exact(one) for one in x.tolist()])
    assert worst(run(library, name, x), expected) <= bound


@pytest.mark.parametrize(
    ("name", "function", "bound"),
    [
        ("pow_f32", np.power, 0.501),
        ("pow_f64", np.power, 3.0),
        ("atan2_f32", np.arctan2, 0.501),
        ("atan2_f64", np.arctan2, 3.0),
        ("fmod_f32", np.fmod, 1e-9),
        ("fmod_f64", np.fmod, 1e-9),
    ],
)
def test_two_arguments(
    library: ctypes.CDLL, seed: int, name: str, function: Any, bound: float
) -> None:
    dtype = np.float32 if name.endswith("f32") else np.float64
    x = inputs(seed, 40.0, dtype)
    y = inputs(seed + 1, 20.0, dtype)
    y[::5] = np.rint(y[::5])
    special = np.array([*SPECIAL, *(-one for one in SPECIAL)], dtype)
    grid = np.meshgrid(special, special)
    x, y = np.concatenate([x, grid[0].ravel()]), np.concatenate([y, grid[1].ravel()])
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.longdouble), y.astype(np.longdouble))
        assert worst(run(library, name, x, y), exact) < bound
