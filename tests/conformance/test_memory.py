"""Device memory keeps its contents: every constructor, dtype, copy, view and fill."""

from __future__ import annotations

import copy
import ctypes
import mmap
import pickle
from array import array as typed_array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from uhal import Device, DeviceBuffer, DevicePointer, HostBuffer, Stream
from uhal.dtypes import ALL as DTYPES
from uhal.dtypes import DType
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
)
from uhal_conformance.sampling import rounds

SIZES = [0, 1, 3, 255, 4096, 65_537, 1_000_003]


def random_bits(dtype: DType, size: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return random bit patterns of the type, NaN payloads included."""
    raw = rng.integers(0, 256, size * dtype.itemsize, "u1")
    return (raw % 2).view("?") if dtype.kind == "bool" else raw.view(dtype.dtype)


def same_bits(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_what_goes_in_comes_out(
    device: Device, dtype: DType, size: int, rng: np.random.Generator
) -> None:
    array = random_bits(dtype, size, rng)
    buffer = DeviceBuffer.from_numpy(array)
    assert (buffer.size, buffer.dtype, buffer.nbytes) == (size, dtype, array.nbytes)
    assert buffer.device == device
    array_before = array.copy()
    array[...] = 0
    assert same_bits(buffer.to_numpy(), array_before)


ARRAYS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "matrix": lambda a: a[:900].reshape(30, 30),
    "transposed": lambda a: a[:900].reshape(30, 30).T,
    "strided": lambda a: a[::3],
    "backwards": lambda a: a[::-1],
    "fortran": lambda a: np.asfortranarray(a[:900].reshape(30, 30)),
    "broadcast": lambda a: np.broadcast_to(a[:10], (7, 10)),
    "one element": lambda a: a[:1].reshape(()),
    "no element": lambda a: a[:0].reshape(0, 5),
    "inner columns": lambda a: a[:900].reshape(30, 30)[3:20, 5:9],
    "big endian": lambda a: a.astype(">f4"),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), "<f4", offset=1),
}


@pytest.mark.parametrize("shape", ARRAYS)
def test_any_layout_of_a_numpy_array_goes_in(
    device: Device, shape: str, rng: np.random.Generator
) -> None:
    array = ARRAYS[shape](rng.standard_normal(1000).astype("f4"))
    expected = np.ascontiguousarray(array).astype("f4").ravel()
    assert same_bits(DeviceBuffer.from_numpy(array).to_numpy(), expected)
    buffer = DeviceBuffer.zeros(array.size, "f32")
    buffer.copy_from(array)
    assert same_bits(buffer.to_numpy(), expected)


@pytest.mark.parametrize(
    "shape", [name for name in ARRAYS if name not in ("broadcast", "big endian")]
)
def test_any_layout_of_a_writable_numpy_array_is_filled(
    device: Device, shape: str, rng: np.random.Generator
) -> None:
    base = np.full(1000, np.nan, "f4")
    array = ARRAYS[shape](base)
    if not array.flags.writeable:
        array = array.copy()
    values = rng.standard_normal(array.size).astype("f4")
    DeviceBuffer.from_numpy(values).copy_to(array)
    assert np.array_equal(array.ravel(), values)
    if np.shares_memory(array, base):
        assert np.isnan(base).sum() == base.size - array.size


def test_a_read_only_array_goes_in_and_is_not_written(device: Device) -> None:
    array = np.arange(5, dtype="i4")
    array.flags.writeable = False
    buffer = DeviceBuffer.from_numpy(array)
    assert buffer.to_numpy().flags.writeable
    with pytest.raises(ArgumentValueError, match="read-only"):
        buffer.copy_to(array)
    with pytest.raises(ArgumentValueError, match="read-only"):
        buffer.copy_to(memoryview(bytes(20)))


def test_sequences_lists_and_numbers_go_in(device: Device) -> None:
    assert DeviceBuffer.from_slice([1, 2, 3], "u8").to_numpy().tolist() == [1, 2, 3]
    assert DeviceBuffer.from_slice((1.5, -2), "f16").to_numpy().tolist() == [1.5, -2]
    assert DeviceBuffer.from_slice(range(4), "i64").to_numpy().tolist() == [0, 1, 2, 3]
    assert DeviceBuffer.from_slice([True, False], "bool").to_numpy().tolist() == [True, False]
    with pytest.raises(OverflowError):
        DeviceBuffer.from_slice([256], "u8")


def test_no_value_of_a_sequence_is_altered(device: Device) -> None:
    for values, dtype in (([1.5, 2.7], "i32"), (np.array([-1]), "u32"), ([2], "bool")):
        with pytest.raises(ArgumentRangeError, match=f"values that {dtype} holds, got"):
            DeviceBuffer.from_slice(values, dtype)  # type: ignore[arg-type]
    for values in ([None], ["1"], [1j], [[1], [1, 2]]):
        with pytest.raises(ArgumentTypeError, match="from_slice: expected"):
            DeviceBuffer.from_slice(values, "f32")


def test_masked_arrays_do_not_lose_their_mask(device: Device) -> None:
    masked = np.ma.masked_array(np.arange(6, dtype="f4"), [0, 1, 0, 0, 0, 1])
    buffer = DeviceBuffer.from_slice([7] * 6, "f32")
    for use in (
        DeviceBuffer.from_numpy,
        lambda array: DeviceBuffer.from_slice(array, "f32"),
        buffer.copy_from,
        buffer.copy_to,
        lambda array: buffer.copy_2d_from(array.reshape(2, 3)),
        lambda array: buffer.copy_2d_to(array.reshape(2, 3)),
    ):
        with pytest.raises(ArgumentTypeError, match=r"2 of them\. Fill them first: array\.filled"):
            use(masked)
    assert buffer.to_numpy().tolist() == [7] * 6
    assert masked.data.tolist() == [0, 1, 2, 3, 4, 5]
    whole = np.ma.masked_array(np.arange(6, dtype="f4"))
    assert DeviceBuffer.from_numpy(whole).to_numpy().tolist() == [0, 1, 2, 3, 4, 5]


HOST_MEMORY: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "array.array": lambda values: typed_array("f", values.tolist()),
    "ctypes": lambda values: (ctypes.c_float * values.size)(*values.tolist()),
    "mmap": lambda values: mapped(values),
    "bytearray": lambda values: bytearray(values.tobytes()),
    "memoryview": lambda values: memoryview(bytearray(values.tobytes())),
    "big endian": lambda values: values.astype(">f4"),
    "big endian, every other": lambda values: np.repeat(values, 2).astype(">f4")[::2],
}


def mapped(values: npt.NDArray[Any]) -> mmap.mmap:
    memory = mmap.mmap(-1, values.nbytes)
    memory[:] = values.tobytes()
    return memory


@pytest.mark.parametrize("kind", HOST_MEMORY)
def test_whatever_is_copied_from_is_copied_to(
    device: Device, kind: str, rng: np.random.Generator
) -> None:
    values = rng.standard_normal(100).astype("f4")
    buffer = DeviceBuffer.from_numpy(np.full(100, np.nan, "f4"))
    if kind == "mmap":  # an mmap has no element type
        buffer = buffer.view("u8")
    buffer.copy_from(HOST_MEMORY[kind](values))
    assert same_bits(buffer.view("f32").to_numpy(), values)
    for use in (buffer.copy_to, lambda memory: buffer.copy_to_async(memory, Stream.default())):
        memory = HOST_MEMORY[kind](np.full(100, np.nan, "f4"))
        use(memory)
        assert bytes(memory) == bytes(HOST_MEMORY[kind](values))


def test_no_memory_to_copy_to_is_refused(device: Device) -> None:
    buffer = DeviceBuffer.from_slice([1, 2], "u8")
    for wrong in ([1, 2], None, 3, "12", object()):
        with pytest.raises(ArgumentTypeError, match="destination: expected a numpy array"):
            buffer.copy_to(wrong)
    for read_only in (b"12", memoryview(b"12"), mmap.mmap(-1, 2, access=mmap.ACCESS_READ)):
        with pytest.raises(ArgumentValueError, match="read-only"):
            buffer.copy_to(read_only)
    every_other = memoryview(bytearray(4))[::2]
    for use in (buffer.copy_from, buffer.copy_to):
        with pytest.raises(ArgumentValueError, match="expected contiguous memory"):
            use(every_other)


@pytest.mark.parametrize("array", [np.zeros(2, "c8"), np.array(["a"]), np.array([{}])])
def test_types_no_kernel_has_are_refused(device: Device, array: npt.NDArray[Any]) -> None:
    with pytest.raises(ArgumentTypeError, match="dtype"):
        DeviceBuffer.from_numpy(array)


@pytest.mark.parametrize("size", [-1, 1.5, "3", None, True, 2**62])
def test_sizes_that_cannot_be_are_refused(device: Device, size: Any) -> None:
    for make in (DeviceBuffer.zeros, DeviceBuffer.uninitialized, HostBuffer):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match="size: expected"):
            make(size, "f32")


# -- views -----------------------------------------------------------------------------------------


def test_views_of_views_are_numpys(device: Device, rng: np.random.Generator) -> None:
    array = rng.integers(0, 1000, 500, "i4")
    for _ in range(rounds(200, 5000)):
        buffer, expected = DeviceBuffer.from_numpy(array), array
        for _ in range(rng.integers(1, 4)):
            start, stop = rng.integers(-600, 600, 2)
            buffer, expected = buffer[start:stop], expected[start:stop]
        assert np.array_equal(buffer.to_numpy(), expected)
        values = rng.integers(0, 1000, expected.size, "i4")
        buffer.copy_from(values)
        assert np.array_equal(buffer.to_numpy(), values)


def test_a_view_is_the_same_memory(device: Device) -> None:
    buffer = DeviceBuffer.zeros(10, "u32")
    view = buffer[2:5]
    view.set_32(7)
    assert buffer.to_numpy().tolist() == [0, 0, 7, 7, 7, 0, 0, 0, 0, 0]
    buffer[3:4].copy_from(np.array([9], "u4"))
    assert view.to_numpy().tolist() == [7, 9, 7]
    assert view.as_device_ptr() == buffer.as_device_ptr() + 8
    assert len(view) == 3


def test_an_empty_view_is_null_and_not_its_neighbour(device: Device) -> None:
    buffer = DeviceBuffer.zeros(10, "u32")
    assert DeviceBuffer.zeros(0, "u32").as_device_ptr() == DevicePointer(0)
    for view in (buffer[10:], buffer[12:20], buffer[3:3], buffer[5:2], buffer[:0].view("f32")):
        assert len(view) == 0 and view.as_device_ptr() == DevicePointer(0) and not view.byte_offset
        assert view[0:].as_device_ptr() == DevicePointer(0)


def test_a_view_of_another_type_is_the_same_bytes(device: Device, rng: np.random.Generator) -> None:
    array = rng.integers(0, 2**32, 6, "u4")
    buffer = DeviceBuffer.from_numpy(array)
    for dtype in ("u8", "f16", "u64", "i32", "f64"):
        view = buffer.view(dtype)
        assert same_bits(view.to_numpy(), array.view(view.dtype.dtype))
    with pytest.raises(ArgumentValueError, match="expected an aligned whole number"):
        buffer[1:].view("u64")
    with pytest.raises(ArgumentValueError, match="expected an aligned whole number"):
        buffer.view("u8")[:3].view("u16")


@pytest.mark.parametrize("index", [0, "a", None, 1.5, (0, 1)])
def test_single_elements_are_no_views(device: Device, index: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a slice"):
        DeviceBuffer.zeros(3, "u8")[index]
    with pytest.raises(ArgumentValueError, match="step 1"):
        DeviceBuffer.zeros(3, "u8")[::-1]


# -- fills -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [8, 16, 32])
@pytest.mark.parametrize("size", [0, 4, 8, 100, 1_000_000])
def test_fills(device: Device, width: int, size: int, rng: np.random.Generator) -> None:
    dtype = f"u{width // 8}"
    buffer = DeviceBuffer.from_numpy(np.full(size + 8, 0xA5, "u1"))
    inside = buffer[4 : 4 + size]
    for value in (0, 1, 2**width - 1, int(rng.integers(0, 2**width))):
        getattr(inside, f"set_{width}")(value)
        expected = np.full(size + 8, 0xA5, "u1")
        expected[4 : 4 + size].view(dtype)[:] = value
        assert np.array_equal(buffer.to_numpy(), expected)
    for value in (-1, 2**width):
        with pytest.raises(ArgumentRangeError, match=f"0…{2**width - 1}, got {value}"):
            getattr(inside, f"set_{width}")(value)
    for value in (1.0, "1", None, True):
        with pytest.raises(ArgumentTypeError):
            getattr(inside, f"set_{width}")(value)


def test_a_fill_needs_whole_aligned_words(device: Device) -> None:
    buffer = DeviceBuffer.zeros(9, "u8")
    with pytest.raises(ArgumentValueError, match="whole number"):
        buffer.set_16(1)
    with pytest.raises(ArgumentValueError, match="aligned"):
        buffer[1:5].set_32(1)


def test_zeros_are_zeros_in_used_memory(device: Device) -> None:
    for dtype in DTYPES:
        with DeviceBuffer.uninitialized(1000, dtype) as used:
            used.set_8(0xFF)
        assert not DeviceBuffer.zeros(1000, dtype).to_numpy().view("u1").any()


# -- copies ----------------------------------------------------------------------------------------


def test_device_copies_may_overlap(device: Device, rng: np.random.Generator) -> None:
    for size in (10, 1000, 300_000):
        array = rng.integers(0, 2**32, size, "u4")
        buffer = DeviceBuffer.from_numpy(array)
        for _ in range(rounds(15, 300)):
            length = int(rng.integers(0, size + 1))
            to, source = (int(n) for n in rng.integers(0, size - length + 1, 2))
            buffer[to : to + length].copy_from(buffer[source : source + length])
            array[to : to + length] = array[source : source + length].copy()
            assert np.array_equal(buffer.to_numpy(), array)


def test_every_pair_of_places(device: Device, rng: np.random.Generator) -> None:
    values = rng.standard_normal(1000).astype("f4")

    def made(kind: str, content: npt.NDArray[Any]) -> Any:
        if kind == "device":
            return DeviceBuffer.from_numpy(content)
        if kind == "pinned":
            pinned = HostBuffer(content.size, content.dtype)
            pinned.array[:] = content
            return pinned
        return content.copy() if kind == "array" else bytearray(content.tobytes())

    def content(thing: Any) -> bytes:
        if isinstance(thing, DeviceBuffer):
            return thing.to_numpy().tobytes()
        return thing.array.tobytes() if isinstance(thing, HostBuffer) else bytes(thing)

    with Stream() as stream:
        for kind in ("device", "pinned", "array", "bytes"):
            poison = np.full(1000, np.nan, "f4")
            for how in ("plain", "stream", "async"):
                buffer, other = made("device", poison), made(kind, values)
                if how == "async":
                    buffer.copy_from_async(other, stream)
                    stream.synchronize()
                else:
                    buffer.copy_from(other, stream=stream if how == "stream" else None)
                assert content(buffer) == values.tobytes(), (kind, how)
                buffer, other = made("device", values), made(kind, poison)
                if how == "async":
                    buffer.copy_to_async(other, stream)
                    stream.synchronize()
                else:
                    buffer.copy_to(other, stream=stream if how == "stream" else None)
                assert content(other) == values.tobytes(), (kind, how)


def test_copies_of_wrong_size_or_type_are_refused_and_change_nothing(device: Device) -> None:
    buffer = DeviceBuffer.from_slice([1, 2, 3], "i32")
    wrong: list[tuple[Any, type[DeviceError], str]] = [
        (np.zeros(2, "i4"), ArgumentValueError, "expected 3 elements, got 2"),
        (np.zeros(4, "i4"), ArgumentValueError, "expected 3 elements, got 4"),
        (np.zeros(3, "f4"), ArgumentTypeError, "expected i32 elements, got f32"),
        (b"12345678901", ArgumentValueError, "expected 12 bytes, got 11"),
        (DeviceBuffer.zeros(3, "u32"), ArgumentTypeError, "expected i32 elements, got u32"),
        (DeviceBuffer.zeros(2, "i32"), ArgumentValueError, "expected 3 elements, got 2"),
        (HostBuffer(3, "f32"), ArgumentTypeError, "expected i32 elements, got f32"),
        (HostBuffer(5, "i32"), ArgumentValueError, "expected 3 elements, got 5"),
    ]
    for other, error, words in wrong:
        with pytest.raises(error, match=words):
            buffer.copy_from(other)
        if not isinstance(other, bytes):
            with pytest.raises(error):
                buffer.copy_to(other)
    for nothing in (None, 5, object()):
        with pytest.raises((ArgumentTypeError, ArgumentValueError)):
            buffer.copy_to(nothing)
    assert buffer.to_numpy().tolist() == [1, 2, 3]


def test_closed_memory_is_refused_on_both_sides(device: Device) -> None:
    buffer = DeviceBuffer.zeros(3, "i32")
    closed = DeviceBuffer.zeros(3, "i32")
    closed.close()
    pinned = HostBuffer(3, "i32")
    pinned.close()
    parent = DeviceBuffer.zeros(8, "i32")
    orphan = parent[:3]
    parent.close()
    with Stream() as stream:
        for other in (closed, pinned, orphan):
            for act in (
                lambda o: buffer.copy_from(o),
                lambda o: buffer.copy_to(o),
                lambda o: buffer.copy_from_async(o, stream),
                lambda o: buffer.copy_to_async(o, stream),
            ):
                with pytest.raises(InvalidHandleError, match="closed"):
                    act(other)
        with pytest.raises(InvalidHandleError):
            closed.to_numpy()
    closed.close()
    assert "closed" in repr(closed)


def test_a_pageable_source_may_change_as_soon_as_the_call_returns(
    device: Device, gate: Callable[[], Any], rng: np.random.Generator
) -> None:
    with Stream() as stream:
        held = gate()
        held.hold(stream)
        arrays = [rng.integers(0, 255, size, "u1") for size in (16, 5000, 60_000)]
        buffers = [DeviceBuffer.uninitialized(array.size, "u8") for array in arrays]
        expected = [array.copy() for array in arrays]
        for buffer, array in zip(buffers, arrays, strict=True):
            buffer.copy_from_async(array, stream)
            array[:] = 0
        held.open()
        stream.synchronize()
        for buffer, values in zip(buffers, expected, strict=True):
            assert np.array_equal(buffer.to_numpy(), values)


def test_a_pinned_source_is_held_until_it_is_read(
    device: Device, gate: Callable[[], Any], rng: np.random.Generator
) -> None:
    values = rng.standard_normal(50_000).astype("f4")
    with Stream() as stream:
        held = gate()
        held.hold(stream)
        buffer = DeviceBuffer.uninitialized(50_000, "f32")
        pinned = HostBuffer(50_000, "f32")
        pinned.array[:] = values
        buffer.copy_from_async(pinned, stream)
        pinned.close()
        del pinned
        # these buffers would reuse the memory if it were free
        others = [HostBuffer(50_000, "f32") for _ in range(4)]
        for other in others:
            other.array[:] = -1
        held.open()
        stream.synchronize()
        assert np.array_equal(buffer.to_numpy(), values)


def test_pinned_memory_outlives_its_buffer_in_arrays_over_it(device: Device) -> None:
    pinned = HostBuffer(1000, "i32")
    array = pinned.array
    array[:] = 5
    assert pinned.address == array.ctypes.data
    pinned.close()
    del pinned
    assert (array == 5).all()
    empty = HostBuffer(0, "f32")
    assert empty.array.shape == (0,)


def test_raw_memory_is_described_and_not_freed(device: Device) -> None:
    owner = DeviceBuffer.from_slice([1, 2, 3, 4], "i32")
    address = owner.as_device_ptr()
    raw = DeviceBuffer.from_raw(address + 4, 2, "i32", owner=owner)
    assert raw.to_numpy().tolist() == [2, 3]
    raw.set_32(9)
    del owner
    assert raw.to_numpy().tolist() == [9, 9]
    with pytest.raises(ArgumentValueError, match="got 0"):
        DeviceBuffer.from_raw(0, 1, "u8")
    assert DeviceBuffer.from_raw(0, 0, "u8").to_numpy().size == 0


def test_memory_is_not_pickled_and_says_what_is(device: Device) -> None:
    for memory, advice in (
        (DeviceBuffer.zeros(3, "f32"), r"Send to_numpy\(\)"),
        (HostBuffer(3, "f32"), r"Send array\.copy\(\)"),
    ):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(
                TypeError, match=rf"^{type(memory).__name__}: expected no.*{advice}"
            ):
                use(memory)
