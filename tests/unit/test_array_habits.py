"""Habits of numpy, CuPy and torch users that a buffer refuses, each with the alternative."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from tests.counting_bench import Bench
from uhal import DeviceBuffer, HostBuffer, dtypes
from uhal.errors import ArgumentTypeError

EQUALITIES: dict[str, Callable[[Any, Any], Any]] = {"==": operator.eq, "!=": operator.ne}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "@": operator.matmul,
    "**": operator.pow,
}


@pytest.mark.parametrize("symbol", OPERATORS)
def test_an_operator_names_the_tensor(symbol: str, bench: Bench) -> None:
    buffer = bench.buffer(4, "f32")
    bench.quiet()
    for other in (bench.buffer(4, "f32"), 2, 0.5, [1.0], (1.0,)):
        with pytest.raises(ArgumentTypeError) as caught:
            OPERATORS[symbol](buffer, other)
        assert f"operator {symbol}: expected tensors, got DeviceBuffer and" in str(caught.value)
        assert "ubridge.DeviceTensor(buffer)" in str(caught.value)
        if symbol != "**" and not isinstance(other, DeviceBuffer):
            with pytest.raises(ArgumentTypeError, match="and DeviceBuffer"):
                OPERATORS[symbol](other, buffer)


def test_buffers_are_not_compared(bench: Bench) -> None:
    """`==` by element is for tensors; by identity it would be False for equal values."""
    one: Any = bench.buffer(4, "f32")
    pinned = HostBuffer(4, "f32", device=bench.device)
    for buffer in (one, pinned):
        others = (bench.buffer(4, "f32"), HostBuffer(4, "f32", device=bench.device), 0, 0.5, [1.0])
        for other, (symbol, compare) in product(others, EQUALITIES.items()):
            for left, right in ((buffer, other), (other, buffer)):
                with pytest.raises(ArgumentTypeError) as caught:
                    compare(left, right)
                assert f"operator {symbol}: expected tensors" in str(caught.value)
                assert "for the same buffer write a is b" in str(caught.value)
        for compare, unequal in ((operator.eq, False), (operator.ne, True)):
            assert compare(buffer, None) is compare(buffer, "text") is unequal
            assert compare(buffer, buffer) is not unequal


def test_collections_find_buffers_by_identity(bench: Bench) -> None:
    buffers = [*(bench.buffer(4, "f32") for _ in range(40)), HostBuffer(4, "f32")]
    numbers = {buffer: number for number, buffer in enumerate(buffers)}
    lasting: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    for number, buffer in enumerate(buffers[:-1]):
        lasting[buffer] = number
        lasting[buffer] = lasting[buffer]
    assert [numbers[buffer] for buffer in buffers] == list(range(41))
    assert [lasting[buffer] for buffer in buffers[:-1]] == list(range(40))
    assert len({*buffers, *buffers}) == 41


def test_another_type_may_define_the_operator(bench: Bench) -> None:
    class Other:
        __array_ufunc__ = None

        def __radd__(self, left: object) -> str:
            return f"{type(left).__name__} + Other"

    buffer: Any = bench.buffer(4, "f32")
    assert buffer + Other() == "DeviceBuffer + Other"
    with pytest.raises(TypeError, match="unsupported operand"):
        buffer + object()


def test_functions_and_arrays_of_numpy(bench: Bench) -> None:
    buffer: Any = bench.buffer(4, "f32")
    array: Any = np.ones(4, np.float32)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: np.exp(buffer),
        lambda: array + buffer,
        lambda: buffer + array,
        lambda: np.float32(2) * buffer,
    )
    for attempt in attempts:
        with pytest.raises(ArgumentTypeError, match=r"np\.\w+: .*buffer\.to_numpy\(\), or compute"):
            attempt()


def test_elements_are_not_assigned(bench: Bench) -> None:
    buffer: Any = bench.buffer(4, "f32")
    bench.quiet()
    with pytest.raises(ArgumentTypeError, match=r"buffer\[i : i \+ 1\]\.copy_from"):
        buffer[0] = 1
    with pytest.raises(ArgumentTypeError, match=r"buffer\[:\]\.copy_from"):
        buffer[:] = 1
    with pytest.raises(ArgumentTypeError, match=r"buffer\[1:\]\.copy_from"):
        buffer[1:] = 1
    with pytest.raises(ArgumentTypeError, match="size of a DeviceBuffer is fixed"):
        del buffer[0]


@pytest.mark.parametrize("shape", [(3, 4), [3, 4]])
def test_a_shape_is_no_size(shape: Any, bench: Bench) -> None:
    device = bench.device
    makes: tuple[Callable[[], object], ...] = (
        lambda: DeviceBuffer.zeros(shape, "f32", device=device),
        lambda: DeviceBuffer.uninitialized(shape, "f32", device=device),
        lambda: HostBuffer(shape, "f32", device=device),
    )
    for make in makes:
        with pytest.raises(ArgumentTypeError, match=r"one dimension.*ubridge\.zeros"):
            make()


def test_a_missing_dtype_lists_the_dtypes(bench: Bench) -> None:
    device = bench.device
    untyped: Any = DeviceBuffer
    pinned: Any = HostBuffer
    makes: tuple[Callable[[], object], ...] = (
        lambda: untyped.zeros(10, device=device),
        lambda: untyped.uninitialized(10, device=device),
        lambda: untyped.from_slice([1, 2], device=device),
        lambda: pinned(10, device=device),
    )
    for make in makes:
        with pytest.raises(ArgumentTypeError, match="expected a dtype, one of bool i8"):
            make()


def test_numpy_knows_the_spelling_of_every_dtype() -> None:
    import ml_dtypes

    for dtype in dtypes.ALL:
        names = {"np": np, "ml_dtypes": ml_dtypes}
        assert np.dtype(eval(dtype.numpy_spelling, names)) == dtype.dtype
