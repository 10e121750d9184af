"""The only element of a tensor is read without Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from uhal import Device, DeviceBuffer
from uhal._lane import NumberReader, SlotMaker
from uhal.dtypes import ALL, DType, f32, u8


class Layout:
    __slots__ = ("size", "start")

    def __init__(self, size: int = 1, start: int = 0) -> None:
        self.size = size
        self.start = start


class Tensor:
    __slots__ = ("buffer", "dtype", "executor", "layout")

    buffer: Any
    layout: Any
    dtype: Any
    executor: Any


@pytest.fixture
def host() -> Iterator[Device]:
    with Device(0, backend="host") as device:
        yield device


make = SlotMaker(Tensor, "buffer", "layout", "dtype", "executor")


def tensor(buffer: Any, layout: Any, dtype: Any) -> Tensor:
    made: Tensor = make(Tensor, buffer, layout, dtype, None)
    return made


def reader(kind: type | None = None, *codes: str) -> NumberReader:
    return NumberReader(
        lambda *given: ("called", *given), make, kind, *codes, layouts=(Layout, "size", "start")
    )


@pytest.mark.parametrize("dtype", [one for one in ALL if one.name != "f8e4m3"], ids=str)
def test_an_element_is_read_as_numpy_reads_it(
    host: Device, rng: np.random.Generator, dtype: DType
) -> None:
    values = np.frombuffer(rng.bytes(8 * 16), np.uint8)
    array = (values & 1 if dtype.kind == "bool" else values).view(dtype.dtype)
    buffer = DeviceBuffer.from_numpy(array, device=host)
    for index, expected in enumerate(array.tolist()):
        found = reader()(tensor(buffer, Layout(1, index), dtype))
        assert type(found) is type(expected)
        assert found == expected or (found != found and expected != expected)
        assert reader(bool)(tensor(buffer, Layout(1, index), dtype)) is bool(expected)


def test_a_number_is_converted(host: Device) -> None:
    buffer = DeviceBuffer.from_numpy(np.array([2.75, -1.5, np.inf], np.float32), device=host)
    for index, expected in enumerate((2, -1)):
        found = reader(int)(tensor(buffer, Layout(1, index), f32))
        assert (type(found), found) == (int, expected)
    with pytest.raises(OverflowError):
        reader(int)(tensor(buffer, Layout(1, 2), f32))
    whole = DeviceBuffer.from_numpy(np.array([7], np.uint8), device=host)
    found = reader(float)(tensor(whole, Layout(), u8))
    assert (type(found), found) == (float, 7.0)


def test_other_arguments_go_to_the_function(host: Device) -> None:
    buffer = DeviceBuffer.from_numpy(np.ones(4, np.float32), device=host)
    call = reader(None, "fd")
    one = tensor(buffer, Layout(), f32)
    assert call(one) == 1.0
    assert call(one, 1) == ("called", one, 1)
    for other in (
        tensor(buffer, Layout(2), f32),
        tensor(buffer, Layout(1, 4), f32),
        tensor(buffer, Layout(1, -1), f32),
        tensor(buffer, Layout(1, 1 << 70), f32),
        tensor(buffer, Layout(), u8),
        tensor(buffer, Layout.__new__(Layout), f32),
        tensor("no buffer", Layout(), f32),
        tensor(buffer, "no layout", f32),
        Tensor(),
        3,
    ):
        assert call(other) == ("called", other)


def test_a_reader_is_made_of_slots() -> None:
    with pytest.raises(ValueError, match="is no slot"):
        NumberReader(print, make, layouts=(Layout, "size", "__init__"))
    with pytest.raises(ValueError, match="kind: expected int, float, bool or None"):
        NumberReader(print, make, str, layouts=(Layout, "size", "start"))
