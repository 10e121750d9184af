"""Elements at ids and masks, selected and assigned, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.op_rows import row_of
from uhal import Device
from uhal.errors import ArgumentValueError

DTYPES = ("f32", "f16", "i8", "i64", "u64", "bool")


@pytest.fixture(autouse=True)
def _images(device: Device) -> None:
    row_of(device.backend).require_images()


def _part(rng: np.random.Generator, length: int, shape: tuple[int, ...]) -> Any:
    """Return a random index of one axis."""
    kind = rng.integers(5)
    if kind == 0:
        first, last = sorted(int(one) for one in rng.integers(0, length + 1, 2))
        return slice(first, last, int(rng.integers(1, 3)))
    if kind == 1:
        return int(rng.integers(-length, length))
    return rng.integers(-length, length, shape)


def _index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a random index with at least one array, with an ellipsis and new axes at times."""
    of_ids = tuple(int(one) for one in rng.integers(1, 4, rng.integers(1, 3)))
    parts = [_part(rng, length, of_ids) for length in shape[: rng.integers(1, len(shape) + 1)]]
    at = int(rng.integers(len(parts)))
    parts[at] = rng.integers(-shape[at], shape[at], of_ids)
    if rng.random() < 0.3:
        mask = rng.random(shape[:2]) < 0.5
        parts = [mask, *([slice(None)] * (len(shape) - len(shape[:2])))]
    if rng.random() < 0.3:
        parts.insert(int(rng.integers(len(parts) + 1)), None)
    if len(parts) == at + 1 and rng.random() < 0.3:
        parts.append(...)
    return tuple(parts)


def _given(rng: np.random.Generator, device: Device, part: Any) -> Any:
    """Return an array of an index as a tensor, an array or a list."""
    if not isinstance(part, np.ndarray):
        return part
    return (lambda: ub.asarray(part, device=device), lambda: part, part.tolist)[rng.integers(3)]()


def _drawn(
    rng: np.random.Generator, device: Device
) -> tuple[ub.DeviceTensor, Any, tuple[Any, ...], Any]:
    """Return a tensor, the same array, and an index for each."""
    device_dtypes = DTYPES if device.backend == "host" else DTYPES[:1]
    shape = tuple(int(one) for one in rng.integers(1, 6, rng.integers(1, 5)))
    x = ub.asarray(rng.integers(0, 2, shape), str(rng.choice(device_dtypes)), device=device)
    order = [int(one) for one in rng.permutation(len(shape))]
    x = x.transpose(*order) if rng.random() < 0.3 else x
    index = _index(rng, tuple(x.shape))
    return x, x.to_numpy().copy(), index, tuple(_given(rng, device, one) for one in index)


def test_selection(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(200 if device.backend == "host" else 4, 2000)):
        x, array, index, given = _drawn(rng, device)
        expected = array[index]
        got = x[given if len(given) > 1 else given[0]]
        assert got.shape == expected.shape, index
        np.testing.assert_array_equal(got.to_numpy(), expected, str(index))


def test_assignment(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(200 if device.backend == "host" else 4, 2000)):
        x, array, index, given = _drawn(rng, device)
        shape = array[index].shape
        spread = tuple(1 if rng.random() < 0.3 else one for one in shape)
        value = rng.integers(0, 2, spread[rng.integers(len(shape) + 1) :]).astype(array.dtype)
        array[index] = value
        x[given if len(given) > 1 else given[0]] = (
            ub.asarray(value, device=device) if rng.random() < 0.5 or not value.ndim else value
        )
        np.testing.assert_array_equal(x.to_numpy(), array, str(index))


def test_a_mask_takes_a_number_without_being_read(device: Device, rng: np.random.Generator) -> None:
    array = rng.standard_normal((4, 5)).astype("f4")
    x = ub.asarray(array, device=device)
    with ub.trace(device) as graph:
        x[x > 0.5] = 0.25
    assert "Where" in str(graph)
    array[array > 0.5] = 0.25
    np.testing.assert_array_equal(x.to_numpy(), array)


def test_a_value_may_be_a_part_of_the_tensor(device: Device, rng: np.random.Generator) -> None:
    array = rng.standard_normal(8).astype("f4")
    x = ub.asarray(array, device=device)
    x[[1, 2, 3]] = x[0:3]
    array[[1, 2, 3]] = array[0:3].copy()
    np.testing.assert_array_equal(x.to_numpy(), array)


def test_negative_steps(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(100 if device.backend == "host" else 3, 1000)):
        array = rng.standard_normal((4, 5, 3)).astype("f4")
        x = ub.asarray(array, device=device)
        start, stop = (None if rng.random() < 0.4 else int(one) for one in rng.integers(-6, 7, 2))
        step = slice(start, stop, -int(rng.integers(1, 4)))
        indices: tuple[Any, ...] = (
            step,
            (..., step),
            (slice(None), step),
            (0, step),
            (None, step),
            (step, slice(1, None), step),
        )
        index = indices[rng.integers(len(indices))]
        expected = array[index]
        np.testing.assert_array_equal(x[index].to_numpy(), expected, str(index))
        value = rng.standard_normal(expected.shape).astype("f4")
        x[index] = ub.asarray(value, device=device) if rng.random() < 0.5 else value
        array[index] = value
        np.testing.assert_array_equal(x.to_numpy(), array, str(index))


WRONG: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: x[[0, 9]], IndexError, "index 9 is out of bounds for axis 0 with size 4"),
    (lambda x: x[[0], [0], [0]], IndexError, "too many indices"),
    (lambda x: x[[0, 1], [0, 1, 2]], IndexError, "could not be broadcast"),
    (lambda x: x[np.zeros((4, 4), bool)], IndexError, r"expected a mask of shape \(4, 5\)"),
    (lambda x: x[[0.5]], IndexError, "must be of integer"),
    (lambda x: x[True], IndexError, "got one bool"),
    (lambda x: x[..., [0], ...], IndexError, "single ellipsis"),
    (lambda x: x[[0], ::-1], IndexError, "negative"),
    (lambda x: x.__setitem__([0, 1], np.zeros((3, 3))), ArgumentValueError, "broadcasts to"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG)
def test_wrong_indices(
    device: Device, wrong: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    x = ub.zeros((4, 5), device=device)
    with pytest.raises(error, match=text):
        wrong(x)
    assert not x.to_numpy().any()


def test_ids_of_the_device_are_checked_in_their_own_axis(device: Device) -> None:
    """An id may be out of bounds in its axis, but in bounds for all axes together."""
    x = ub.zeros((4, 5), device=device)
    ids = ub.asarray([0, 9], device=device)
    with pytest.raises(IndexError):
        x[ub.asarray([0, 0], device=device), ids].to_numpy()
    with pytest.raises(IndexError):
        x[ids].to_numpy()
