"""New tensors equal numpy's arrays, at the first call and at calls that the lane repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from uhal import Device, Stream
from uhal.dtypes import ALL, DType
from uhal.errors import ArgumentTypeError

DTYPES = [one for one in ALL if one.name != "f8e4m3"]


def made(dtype: DType) -> list[tuple[Callable[..., Any], Any]]:
    """Return calls and their results in numpy."""
    kind = dtype.dtype
    like = ub.asarray(np.zeros((2, 3), np.float32)).T
    few = 1 if dtype.kind == "bool" else 3
    return [
        (lambda **more: ub.zeros((3, 2), dtype, **more), np.zeros((3, 2), kind)),
        (lambda **more: ub.ones((5,), dtype, **more), np.ones(5, kind)),
        (lambda **more: ub.full((2, 3), few, dtype, **more), np.full((2, 3), few, kind)),
        (lambda **more: ub.full((0, 3), 1, dtype), np.zeros((0, 3), kind)),
        (lambda **more: ub.zeros_like(like, dtype), np.zeros((3, 2), kind)),
        (lambda **more: ub.ones_like(like, dtype=dtype), np.ones((3, 2), kind)),
        (lambda **more: ub.full_like(like, few, dtype), np.full((3, 2), few, kind)),
        (
            lambda **more: ub.arange(1, 2 * few, 2, dtype, **more),
            np.arange(1, 2 * few, 2).astype(kind),
        ),
        (
            lambda **more: ub.linspace(0, few, 4, dtype, **more),
            np.linspace(0, few, 4).astype(kind),
        ),
        (lambda **more: ub.eye(3, 4, 1, dtype, **more), np.eye(3, 4, 1).astype(kind)),
        (lambda **more: ub.eye(150, dtype=dtype), np.eye(150).astype(kind)),
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_repeated_creations_are_numpys(device: Device, dtype: DType) -> None:
    with Stream() as stream:
        settings: list[dict[str, Any]] = [
            {},
            {},
            {"stream": stream},
            {"device": None},
            {"device": device},
            {},
        ]
        for call, expected in made(dtype):
            for more in settings:
                tensor = call(**more)
                assert tensor.dtype is dtype
                assert tensor.device == device
                stream.synchronize()
                np.testing.assert_array_equal(tensor.to_numpy(), expected)
                # Writes show whether two results share memory.
                tensor.copy_from(ub.logical_not(tensor).astype(dtype))


def test_repeated_copies_of_arrays_are_new(device: Device, rng: np.random.Generator) -> None:
    for make in (ub.asarray, ub.array, ub.from_numpy):
        for dtype in ("f2", "f4", "f8", "u1", "i8", "?"):
            for shape in ((), (0, 2), (3,), (2, 3), (4, 1, 2, 2)):
                array = np.zeros(shape, dtype)
                kept = []
                for _ in range(3):
                    array[...] = rng.integers(0, 2, shape)
                    kept.append((make(array), array.copy()))
                kept.append((make(array, dtype=array.dtype), array.copy()))
                kept.append((make(array.T), array.T.copy()))
                kept.append((make(array, "f64"), array.astype(np.float64)))
                for tensor, expected in kept:
                    np.testing.assert_array_equal(tensor.to_numpy(), expected, strict=True)


def test_shapes_are_distinguished(host: Device) -> None:
    shapes: list[Any] = [4, (4,), (2, 2), (4, 1), (1, 4), (1, 2, 2), (4, 0), (0, 4)]
    for _ in range(2):
        for shape in shapes:
            for make in (ub.empty, ub.zeros, ub.ones):
                assert tuple(make(shape).shape) == (shape if type(shape) is tuple else (shape,))
        for shape in shapes[1:]:
            assert ub.asarray(np.zeros(shape, np.float32)).shape == shape
            x = ub.zeros(shape)
            assert ub.empty_like(x).shape == ub.ones_like(x).shape == shape
    assert [ub.full(2, one).to_numpy()[0] for one in (1, True, 1.5, -0.0)] == [1, 1, 1.5, 0]
    assert np.signbit(ub.full(2, -0.0).to_numpy()).all()
    assert not np.signbit(ub.full(2, 0.0).to_numpy()).any()


def test_an_array_is_no_shape_and_no_tensor(host: Device) -> None:
    ub.zeros(1)  # The lane knows the device from now on.
    for _ in range(2):
        for make in (ub.zeros, ub.ones, ub.empty):
            with pytest.raises(ArgumentTypeError, match="shape: expected an int or a sequence"):
                make(np.array((2, 3)))
        with pytest.raises(ArgumentTypeError, match="zeros_like: expected a DeviceTensor"):
            ub.zeros_like(np.zeros((2, 3), np.float32))  # type: ignore[arg-type]


def test_creations_in_a_trace_are_repeated_by_its_graph(host: Device) -> None:
    x = ub.asarray(np.ones((2, 3), np.float32))
    for _ in range(2):
        _ = ub.ones((2, 3)), ub.zeros((2, 3)), ub.full_like(x, 2), ub.empty_like(x)
    with ub.trace() as graph:
        parts = ub.ones((2, 3)), ub.zeros((2, 3)), ub.full_like(x, 2)
        found = x + parts[0] + parts[1] + parts[2]
    for number in (1, 5):
        x.fill(number)
        for part in parts:
            part.fill(99)
        ub.execute_graph(graph)
        assert (found.to_numpy() == number + 3).all()
