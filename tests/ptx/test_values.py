"""Operators, conversions and functions of every type, equal to numpy's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.conftest import Array, Launch
from uhal import Signature, ptx
from uhal.ptx import Kernel, Type, Value, kernel, thread_index

LANES = 64
INTEGERS = (ptx.i16, ptx.u16, ptx.i32, ptx.u32, ptx.i64, ptx.u64)
FLOATS = (ptx.f16, ptx.bf16, ptx.f32, ptx.f64)
ids = {"ids": lambda one: getattr(one, "name", str(one))}


def numpy_type(of: Type) -> np.dtype[Any]:
    if of is ptx.bf16:
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"i": "i", "u": "u", "f": "f"}[of.name[0]] + str(of.bits // 8))


def drawn(of: Type, rng: np.random.Generator) -> Array:
    """Return random integers and extremes, or finite floats and zeros of both signs."""
    kind = numpy_type(of)
    if of.is_float:
        values = (rng.standard_normal(LANES) * 8).astype(kind)
        values[:4] = np.array([0.0, -0.0, 1.0, -1.5]).astype(kind)
        return values
    values = rng.integers(0, 256, (LANES, of.bytes), "u1").view(kind).ravel()
    values[:4] = [0, 1, np.iinfo(kind).max, np.iinfo(kind).min]
    return values


def wrapped(numbers: Array, of: Type) -> Array:
    """Convert integers of any size to the bits of a type."""
    return np.array([int(one) & ((1 << of.bits) - 1) for one in numbers], "u8").astype(
        numpy_type(of)
    )


def equal(got: Array, expected: Array) -> None:
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), expected.view(f"u{got.itemsize}"))


def named(signature: str, body: Callable[..., None]) -> Kernel:
    """A kernel whose function takes any arguments."""
    names = ", ".join(one.name or "" for one in Signature.parse(signature))
    namespace: dict[str, Any] = {"body": body}
    exec(f"def computed({names}): body({names})", namespace)
    return kernel(signature)(namespace["computed"])


def results(
    launch: Launch,
    of: Type,
    to: Type,
    inputs: list[Array],
    computations: list[Callable[..., Value]],
) -> Array:
    """Results of the computations on the inputs, one row each."""
    names = [f"x{index}" for index in range(len(inputs))]

    def body(*given: Any) -> None:
        i = thread_index()
        *sources, out = given
        values = [one[i] for one in sources]
        for row, compute in enumerate(computations):
            out[i + row * LANES] = compute(*values)

    made = named(", ".join([*(f"const {of}* {name}" for name in names), f"{to}* out"]), body)
    out = np.full((len(computations), LANES), 119, numpy_type(to))
    *_, got = launch(made, *inputs, out.ravel(), block=LANES)
    return got.reshape(out.shape)


ARITHMETIC = (operator.add, operator.sub, operator.mul)
LOGIC = (operator.and_, operator.or_, operator.xor)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("of", INTEGERS, **ids)
def test_integer_operators(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    a, b = drawn(of, rng), drawn(of, rng)[::-1].copy()
    b[b == 0] = 3
    amounts = rng.integers(0, of.bits, LANES).astype(a.dtype)
    wide = a.astype(object)
    divisors = b.astype(object)
    quotients = np.array([abs(x) // abs(y) for x, y in zip(wide, divisors, strict=True)], object)
    truncated = quotients * np.where((a < 0) ^ (b < 0), -1, 1).astype(object)
    with np.errstate(all="ignore"):
        expected = [
            *(each(a, b) for each in (*ARITHMETIC, *LOGIC)),
            wrapped(truncated, of),
            wrapped(wide - truncated * divisors, of),
            np.minimum(a, b),
            np.maximum(a, b),
            ~a,
            a + 5,
            7 - a,
            np.where(a < b, a, b * 3),
        ]
    got = results(
        launch,
        of,
        of,
        [a, b],
        [
            *ARITHMETIC,
            *LOGIC,
            operator.floordiv,
            operator.mod,
            ptx.minimum,
            ptx.maximum,
            lambda x, y: ~x,
            lambda x, y: x + 5,
            lambda x, y: 7 - x,
            lambda x, y: ptx.select(x < y, x, y * 3),
        ],
    )
    for row, (one, wanted) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_array_equal(one, wanted.astype(one.dtype), err_msg=f"row {row}")
    shifts = results(
        launch,
        of,
        of,
        [a, amounts],
        [lambda x, n: x << ptx.u32(n), lambda x, n: x >> ptx.u32(n), lambda x, n: x << of.bits],
    )
    equal(shifts[0], a << amounts)
    equal(shifts[1], a >> amounts)
    assert not shifts[2].any()


COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "of", [ptx.i16, ptx.u32, ptx.i64, ptx.u64, ptx.f16, ptx.f32, ptx.f64], **ids
)
def test_comparisons(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    a, b = drawn(of, rng), drawn(of, rng)
    b[::3] = a[::3]
    if of.is_float:
        a[5], b[6] = np.nan, np.nan
    got = results(
        launch, of, ptx.u32, [a, b], [lambda x, y, c=c: ptx.u32(c(x, y)) for c in COMPARISONS]
    )
    for one, compare in zip(got, COMPARISONS, strict=True):
        np.testing.assert_array_equal(one, compare(a, b))
    joined = results(
        launch,
        of,
        ptx.u32,
        [a, b],
        [
            lambda x, y: ptx.u32((x < y) & (x == x)),
            lambda x, y: ptx.u32((x < y) | ~(x != y)),
            lambda x, y: ptx.u32((x < y) ^ (x == y)),
            lambda x, y: ptx.u32((x < y) == (y < x)),
            lambda x, y: ptx.u32(ptx.select(x < y, x == y, x != y)),
        ],
    )
    expected = [
        (a < b) & (a == a),
        (a < b) | (a == b),
        (a < b) ^ (a == b),
        (a < b) == (b < a),
        np.where(a < b, a == b, a != b),
    ]
    np.testing.assert_array_equal(joined, expected)


@pytest.mark.parametrize("of", [ptx.f16, ptx.f32, ptx.f64], **ids)
def test_float_operators(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    a, b = drawn(of, rng), drawn(of, rng)
    b[b == 0] = 2
    computed = [*ARITHMETIC, lambda x, y: -x, lambda x, y: x * 2 + y]
    got = results(launch, of, of, [a, b], computed)
    for one, wanted in zip(got, [a + b, a - b, a * b, -a, a * a.dtype.type(2) + b], strict=True):
        equal(one, wanted)
    whole = results(
        launch,
        of,
        of,
        [a, b],
        [
            lambda x, y, f=f: f(x)
            for f in (ptx.floor, ptx.ceil, ptx.trunc, ptx.round_even, ptx.absolute)
        ],
    )
    for one, f in zip(whole, (np.floor, np.ceil, np.trunc, np.rint, np.abs), strict=True):
        np.testing.assert_array_equal(one, f(a))


@pytest.mark.parametrize("of", [ptx.f32, ptx.f64], **ids)
def test_exact_functions(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    a, b = np.abs(drawn(of, rng)) + numpy_type(of).type(0.5), drawn(of, rng)
    c = drawn(of, rng)
    got = results(
        launch,
        of,
        of,
        [a, b, c],
        [
            lambda x, y, z: ptx.sqrt(x),
            lambda x, y, z: ptx.reciprocal(x),
            lambda x, y, z: y / x,
            lambda x, y, z: ptx.minimum(y, z),
            lambda x, y, z: ptx.maximum(y, 0.25),
            lambda x, y, z: ptx.fma(x, y, z),
        ],
    )
    one = a.dtype.type(1)
    for found, wanted in zip(got[:3], [np.sqrt(a), one / a, b / a], strict=True):
        equal(found, wanted)
    np.testing.assert_array_equal(got[3], np.minimum(b, c))
    np.testing.assert_array_equal(got[4], np.maximum(b, 0.25))
    exact = a.astype(np.longdouble) * b + c
    tolerance = np.abs(exact) * np.finfo(a.dtype).eps
    assert (np.abs(got[5].astype(np.longdouble) - exact) <= tolerance).all()


def test_fast_functions(launch: Launch, rng: np.random.Generator) -> None:
    x = rng.uniform(0.1, 3, LANES).astype("f4")
    y = rng.uniform(0.1, 3, LANES).astype("f4")
    functions: list[tuple[Callable[..., Value], Callable[..., Array]]] = [
        (lambda x, y: ptx.fast_exp2(x), lambda x, y: np.exp2(x)),
        (lambda x, y: ptx.fast_exp(x), lambda x, y: np.exp(x)),
        (lambda x, y: ptx.fast_log2(x + 2), lambda x, y: np.log2(x + 2)),
        (lambda x, y: ptx.fast_log(x + 2), lambda x, y: np.log(x + 2)),
        (lambda x, y: ptx.fast_sin(x), lambda x, y: np.sin(x)),
        (lambda x, y: ptx.fast_cos(x), lambda x, y: np.cos(x)),
        (lambda x, y: ptx.fast_tanh(x), lambda x, y: np.tanh(x)),
        (lambda x, y: ptx.fast_rsqrt(x), lambda x, y: 1 / np.sqrt(x)),
        (lambda x, y: ptx.fast_reciprocal(x), lambda x, y: 1 / x),
        (ptx.fast_divide, lambda x, y: x / y),
    ]
    got = results(launch, ptx.f32, ptx.f32, [x, y], [one for one, _ in functions])
    wide = x.astype("f8"), y.astype("f8")
    for found, (_, reference) in zip(got, functions, strict=True):
        np.testing.assert_allclose(found, reference(*wide), rtol=6e-4, atol=1e-6)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("of", [ptx.i32, ptx.u32, ptx.i64, ptx.u64], **ids)
def test_functions_of_bits(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    a, b = drawn(of, rng), drawn(of, rng)
    got = results(
        launch,
        of,
        of,
        [a, b],
        [
            lambda x, y: of(ptx.count_ones(x)),
            lambda x, y: of(ptx.leading_zeros(x)),
            lambda x, y: ptx.reverse_bits(x),
            ptx.multiply_high,
        ],
    )
    mask = (1 << of.bits) - 1
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        text = f"{x & mask:0{of.bits}b}"
        wanted = [text.count("1"), len(text) - len(text.lstrip("0")), int(text[::-1], 2)]
        wanted.append(x * y >> of.bits)
        assert [int(one[i]) & mask for one in got] == [one & mask for one in wanted]


def test_dot_products_of_bytes(launch: Launch, rng: np.random.Generator) -> None:
    a, b = drawn(ptx.i32, rng), drawn(ptx.i32, rng)
    got = results(
        launch,
        ptx.i32,
        ptx.i32,
        [a, b],
        [
            lambda x, y: ptx.dot4(x, y, 7),
            lambda x, y: ptx.dot4(ptx.u32(x), y, 0),
            lambda x, y: ptx.i32(ptx.op("dp2a.lo.s32.s32", x, y, x)),
        ],
    )
    bytes_of = [one.view("i1").reshape(-1, 4).astype("i4") for one in (a, b)]
    np.testing.assert_array_equal(got[0], (bytes_of[0] * bytes_of[1]).sum(1) + 7)
    unsigned = a.view("u1").reshape(-1, 4).astype("i4")
    np.testing.assert_array_equal(got[1], (unsigned * bytes_of[1]).sum(1))
    halves = a.view("i2").reshape(-1, 2).astype("i4")
    sums = (halves * bytes_of[1][:, :2]).sum(1, dtype="i4")
    np.testing.assert_array_equal(got[2], sums + a)


EVERY = (*INTEGERS, *FLOATS)


def test_conversions_between_all_types(launch: Launch, rng: np.random.Generator) -> None:
    """Test all conversions between types in one kernel, a row per source type."""
    signature = ", ".join(
        [*(f"const {of}* from_{of}" for of in EVERY), *(f"{of}* to_{of}" for of in EVERY)]
    )

    def body(*given: Any) -> None:
        i = thread_index()
        for row, source in enumerate(given[: len(EVERY)]):
            value = source[i]
            for to, out in zip(EVERY, given[len(EVERY) :], strict=True):
                out[i + row * LANES] = to(value)

    sources = [drawn(of, rng) for of in EVERY]
    outs = [np.zeros(len(EVERY) * LANES, numpy_type(of)) for of in EVERY]
    got = launch(named(signature, body), *sources, *outs, block=LANES)[len(EVERY) :]
    for row, (of, a) in enumerate(zip(EVERY, sources, strict=True)):
        for to, found in zip(EVERY, got, strict=True):
            equal(found.reshape(len(EVERY), LANES)[row], converted(a, of, to))


def converted(a: Array, of: Type, to: Type) -> Array:
    kind = numpy_type(to)
    if of.is_float and to.is_integer:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        return np.array([min(max(int(one), low), high) for one in a.astype("f8")]).astype(kind)
    if to.is_integer:
        return wrapped(a.astype(object), to)
    with np.errstate(over="ignore"):
        # As documented, numbers are first converted to f32; bf16 is the upper half of f32.
        return (a.astype("f4") if to is ptx.bf16 else a).astype(kind)


def test_bits_and_halves_of_words(launch: Launch, rng: np.random.Generator) -> None:
    a, b = drawn(ptx.f32, rng), drawn(ptx.f32, rng)
    got = results(
        launch,
        ptx.f32,
        ptx.u32,
        [a, b],
        [
            lambda x, y: ptx.bits_as(x, ptx.u32),
            lambda x, y: ptx.pack(ptx.f16(x), ptx.f16(y)),
            lambda x, y: ptx.u32(
                ptx.bits_as(ptx.unpack(ptx.bits_as(y, ptx.u32), ptx.f16)[1], ptx.u16)
            ),
        ],
    )
    np.testing.assert_array_equal(got[0], a.view("u4"))
    np.testing.assert_array_equal(
        got[1].view("f2").reshape(-1, 2), np.stack([a, b], 1).astype("f2")
    )
    np.testing.assert_array_equal(got[2], b.view("u4") >> 16)


def test_constants_are_exact(launch: Launch, rng: np.random.Generator) -> None:
    numbers = [drawn(of, rng)[:12] for of in EVERY]

    def body(*outs: Any) -> None:
        for of, out, chosen in zip(EVERY, outs, numbers, strict=True):
            for index, number in enumerate(chosen):
                out[index] = of(float(number) if of.is_float else int(number))

    signature = ", ".join(f"{of}* to_{of}" for of in EVERY)
    got = launch(named(signature, body), *(np.zeros_like(one) for one in numbers), block=1)
    for found, wanted in zip(got, numbers, strict=True):
        equal(found, wanted)
