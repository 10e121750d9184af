"""Arithmetic, operators and reductions of every integer dtype, against numpy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.op_rows import OP_ROWS, row_of
from uhal import Device, as_dtype

DEVICES = tuple(row.name for row in OP_ROWS if row.promotes)
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
LACKED = ("i8", "u16", "u64")
"""Dtypes that most kernels convert to another dtype before they compute."""


@pytest.fixture(autouse=True)
def _images(device: Device) -> None:
    row_of(device.backend).require_images()


def _drawn(rng: np.random.Generator, dtype: str) -> Any:
    """Return a mixture of small numbers and numbers from the dtype's whole range."""
    info = np.iinfo(as_dtype(dtype).dtype)
    whole = rng.integers(info.min, info.max, 60, info.dtype, endpoint=True)
    return np.where(rng.random(60) < 0.5, rng.integers(0, 9, 60).astype(info.dtype), whole)


BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.mod,
    operator.floordiv,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lt,
    operator.ge,
    operator.eq,
]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_operators(device: Device, rng: np.random.Generator, dtype: str) -> None:
    row = row_of(device.backend)
    x, y = _drawn(rng, dtype), _drawn(rng, dtype)
    tensors = [ub.asarray(one, device=device) for one in (x, y)]
    for function in row.sample(rng, BINARY, 2):
        if function is operator.truediv and device.backend == "webgpu":
            continue
        with np.errstate(all="ignore"):
            pairs = [
                (function(*tensors), function(x, y)),
                (function(tensors[0], 3), function(x, 3)),
            ]
            if function not in (operator.mod, operator.floordiv, operator.truediv):
                pairs.append((function(3, tensors[0]), function(3, x)))
        for got, expected in pairs:
            assert got.to_numpy().dtype == expected.dtype, function
            np.testing.assert_array_equal(got.to_numpy(), expected, str(function))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_and_powers(device: Device, rng: np.random.Generator, dtype: str) -> None:
    x = _drawn(rng, dtype)
    by = rng.integers(0, 8 * x.itemsize + 2, x.size).astype(x.dtype)
    tensor, other = ub.asarray(x, device=device), ub.asarray(by, device=device)
    for got, expected in (
        (tensor << other, np.left_shift(x, by)),
        (tensor >> other, np.right_shift(x, by)),
        (tensor**other, np.power(x, by)),
        (tensor << 1, x << 1),
        (~tensor, ~x),
    ):
        assert got.to_numpy().dtype == expected.dtype
        np.testing.assert_array_equal(got.to_numpy(), expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_in_place_operators_keep_the_tensor(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    x = _drawn(rng, dtype)
    tensor = kept = ub.asarray(x, device=device)
    tensor += 3
    tensor %= 7
    tensor |= 8
    tensor //= 2
    tensor **= 2
    tensor <<= 1
    tensor >>= 1
    assert tensor is kept
    expected = ((((x + 3) % 7 | 8) // 2) ** 2 << 1) >> 1
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


@pytest.mark.parametrize("dtype", LACKED)
def test_dtypes_without_kernels_of_their_own(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    x = _drawn(rng, dtype)
    tensor = ub.asarray(x, device=device)
    order = np.argsort(x, kind="stable")
    cases: list[tuple[Callable[[], Any], Any]] = [
        (lambda: -tensor, -x),
        (lambda: abs(tensor), abs(x)),
        (lambda: ub.sign(tensor), np.sign(x)),
        (lambda: ub.square(tensor), x * x),
        (lambda: ub.maximum(tensor, 5), np.maximum(x, 5)),
        (lambda: ub.sum(tensor), x.sum(dtype=x.dtype)),
        (lambda: ub.prod(tensor), x.prod(dtype=x.dtype)),
        (lambda: ub.cumsum(tensor), x.cumsum(dtype=x.dtype)),
        (lambda: ub.max(tensor), x.max()),
        (lambda: ub.min(tensor), x.min()),
        (lambda: ub.argmax(tensor), x.argmax()),
        (lambda: ub.argsort(tensor), order),
        (lambda: ub.sort(tensor), x[order]),
        (lambda: ub.where(tensor > 3, tensor, 1), np.where(x > 3, x, x.dtype.type(1))),
        (lambda: ub.take(tensor, [1, 5, 2]), x[[1, 5, 2]]),
        (lambda: ub.flip(tensor), x[::-1]),
        (lambda: ub.clip(tensor, 1, 5), x.clip(1, 5)),
    ]
    for call, expected in row_of(device.backend).sample(rng, cases, 2):
        np.testing.assert_array_equal(call().to_numpy(), expected)
        np.testing.assert_array_equal(call().to_numpy(), expected)


def test_operators_of_booleans(device: Device, rng: np.random.Generator) -> None:
    x, y = rng.random((2, 40)) < 0.5
    first, second = ub.asarray(x, device=device), ub.asarray(y, device=device)
    functions: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a ^ b,
        lambda a, b: ~a,
        lambda a, b: True ^ a,
        lambda a, b: a << b,
        lambda a, b: a**b,
    ]
    for function in row_of(device.backend).sample(rng, functions, 3):
        got, expected = function(first, second).to_numpy(), function(x, y)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


LOGIC = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "signbit": np.signbit,
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32"])
@pytest.mark.parametrize("name", LOGIC)
def test_truth_and_kinds(device: Device, rng: np.random.Generator, name: str, dtype: str) -> None:
    if name == "signbit" and dtype == "i32":
        pytest.skip("numpy takes only floats")
    element = as_dtype(dtype)
    drawn = rng.choice([0.0, -0.0, 1.5, -2.0, *([np.inf, -np.inf, np.nan] * (dtype[0] != "i"))], 50)
    x = drawn.astype(element.dtype)
    given = [x, x[::-1]] if name in ("logical_and", "logical_or", "logical_xor") else [x]
    got = getattr(ub, name)(*(ub.asarray(one, device=device) for one in given)).to_numpy()
    expected = LOGIC[name](*(one.astype("f4") for one in given))
    assert got.dtype == bool
    np.testing.assert_array_equal(got, expected)
