"""DLPack imports and exports tensors without a copy; memory lives as long as its users."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Module, Stream
from uhal.dtypes import ALL as DTYPES
from uhal.dtypes import DType
from uhal.errors import ArgumentTypeError, InvalidHandleError

NUMPYS_OWN = [dtype for dtype in DTYPES if dtype.name not in ("bf16", "f8e4m3")]


@pytest.mark.parametrize("dtype", NUMPYS_OWN, ids=str)
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_numpy_reads_device_memory_in_place(
    device: Device, dtype: DType, size: int, rng: np.random.Generator
) -> None:
    raw = rng.integers(0, 2, size * dtype.itemsize, "u1")
    values = raw.view("?") if dtype.kind == "bool" else raw.view(dtype.dtype)
    buffer = DeviceBuffer.from_numpy(values)
    array = np.from_dlpack(buffer)
    assert array.dtype == dtype.dtype
    assert array.tobytes() == values.tobytes()
    if size:
        assert array.ctypes.data == buffer.as_device_ptr().address
        buffer.set_8(1)
        Stream.default().synchronize()
        assert (array.view("u1") == 1).all()


def test_an_export_waits_for_the_work_before_it(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    buffer = DeviceBuffer.zeros(1_000_000, "u32")
    with Stream() as stream:
        for value in range(20):
            basic.get_function("fill")[8, 1, 0, stream](buffer.size, value, buffer)
        assert (np.from_dlpack(buffer) == 19).all()


def test_an_array_over_a_buffer_keeps_the_memory(device: Device) -> None:
    def make() -> Any:
        buffer = DeviceBuffer.from_slice([1, 2, 3, 4], "i32")
        return np.from_dlpack(buffer[1:])

    array = make()
    gc.collect()
    others = [DeviceBuffer.zeros(4, "i32") for _ in range(10)]
    assert array.tolist() == [2, 3, 4]
    del array
    gc.collect()
    again = DeviceBuffer.zeros(4, "i32")
    assert len(others) == 10
    assert again.to_numpy().tolist() == [0] * 4


def test_a_copy_is_a_copy(device: Device) -> None:
    buffer = DeviceBuffer.from_slice([1, 2, 3], "i32")
    array = np.from_dlpack(buffer, copy=True)
    buffer.set_32(0)
    Stream.default().synchronize()
    assert array.tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", NUMPYS_OWN, ids=str)
def test_a_buffer_describes_numpys_memory(device: Device, dtype: DType) -> None:
    array = np.ones((4, 8), dtype.dtype)
    buffer = DeviceBuffer.from_dlpack(array)
    assert (buffer.size, buffer.dtype, buffer.readonly) == (32, dtype, False)
    buffer[:8].set_8(0)
    Stream.default().synchronize()
    assert not array[0].any()
    assert array[1:].all()


def test_a_kernel_writes_into_numpys_memory(device: Device, basic: Module) -> None:
    array = np.zeros(1000, "u4")
    with DeviceBuffer.from_dlpack(array) as buffer:
        basic.get_function("fill")[4, 32](1000, 7, buffer)
        device.synchronize()
    assert (array == 7).all()


def test_the_memory_described_is_kept_and_let_go(device: Device) -> None:
    class Exporter:
        def __init__(self) -> None:
            self.array = np.arange(4, dtype="i4")

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    import sys

    exporter = Exporter()
    array = exporter.array
    count = sys.getrefcount(array)
    buffer = DeviceBuffer.from_dlpack(exporter)
    view = buffer[1:]
    del exporter, buffer
    gc.collect()
    assert view.to_numpy().tolist() == [1, 2, 3]
    del view
    gc.collect()
    after = sys.getrefcount(array)
    assert after == count - 1


def test_read_only_memory_stays_read_only(device: Device, basic: Module) -> None:
    array = np.arange(10, dtype="f4")
    array.flags.writeable = False
    buffer = DeviceBuffer.from_dlpack(array)
    assert buffer.readonly
    assert buffer[2:].readonly
    out = DeviceBuffer.zeros(10, "f32")
    basic.get_function("saxpy")[1, 1](10, 2.0, buffer, out)
    assert np.array_equal(out.to_numpy(), 2 * array)
    for act in (
        lambda: basic.get_function("saxpy")[1, 1](10, 2.0, out, buffer),
        lambda: buffer.set_8(0),
        lambda: buffer.copy_from(np.zeros(10, "f4")),
    ):
        with pytest.raises((ArgumentTypeError, ValueError), match="read-only"):
            act()
    assert not np.from_dlpack(buffer).flags.writeable
    with pytest.raises(BufferError, match=r"DLPack 1\.0"):
        buffer.__dlpack__()


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4))[:, ::2], np.zeros(8)[::-1], np.zeros((4, 4)).T, np.zeros((4, 4))[1:, 1:]],
)
def test_strided_tensors_are_refused(device: Device, array: Any) -> None:
    with pytest.raises(BufferError, match="C-contiguous"):
        DeviceBuffer.from_dlpack(array)


def test_shapes_of_one_and_of_none_are_contiguous(device: Device) -> None:
    assert DeviceBuffer.from_dlpack(np.zeros((1, 5))[:, :]).size == 5
    assert DeviceBuffer.from_dlpack(np.zeros((5, 1))[::5]).size == 1
    assert DeviceBuffer.from_dlpack(np.zeros((0, 3))).size == 0
    assert DeviceBuffer.from_dlpack(np.array(3.0)).to_numpy().tolist() == [3.0]


def test_what_is_no_tensor_is_refused(device: Device) -> None:
    with pytest.raises(ArgumentTypeError, match="with __dlpack__"):
        DeviceBuffer.from_dlpack([1, 2])
    with pytest.raises(ArgumentTypeError, match="type code 5"):
        DeviceBuffer.from_dlpack(np.zeros(3, "c8"))
    capsule = np.zeros(3).__dlpack__()

    class Used:
        def __dlpack__(self, **keywords: Any) -> Any:
            return capsule

        def __dlpack_device__(self) -> Any:
            return (1, 0)

    DeviceBuffer.from_dlpack(Used())
    with pytest.raises(BufferError, match="unused DLPack capsule"):
        DeviceBuffer.from_dlpack(Used())


def test_a_tensor_elsewhere_is_refused(device: Device) -> None:
    class Elsewhere:
        def __dlpack__(self, **keywords: Any) -> Any:
            raise AssertionError("never asked")

        def __dlpack_device__(self) -> Any:
            return (99, 3)

    with pytest.raises(BufferError, match="from_numpy copies from the host"):
        DeviceBuffer.from_dlpack(Elsewhere())
    buffer = DeviceBuffer.zeros(3, "f32")
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(99, 0))
    with pytest.raises(BufferError, match="no stream"):
        buffer.__dlpack__(stream=1)


def test_a_capsule_nobody_takes_frees_its_hold(device: Device) -> None:
    buffer = DeviceBuffer.zeros(1000, "f32")
    for version in (None, (1, 0)):
        capsule = buffer.__dlpack__(max_version=version)
        del capsule
    before = device.pool_statistics()["blocks_in_use"]
    del buffer
    gc.collect()
    assert device.pool_statistics()["blocks_in_use"] == before - 1


def test_closed_memory_is_not_exported(device: Device) -> None:
    buffer = DeviceBuffer.zeros(3, "f32")
    buffer.close()
    with pytest.raises(InvalidHandleError):
        buffer.__dlpack__()


@pytest.mark.parametrize("version", [(1, 0), None])
def test_closing_an_exported_buffer_leaves_the_consumers_memory_alone(
    device: Device, version: tuple[int, int] | None
) -> None:
    class Exporter:
        def __dlpack__(self, **keywords: Any) -> Any:
            return buffer.__dlpack__(max_version=version)

        def __dlpack_device__(self) -> Any:
            return buffer.__dlpack_device__()

    size = 123_457
    buffer = DeviceBuffer.from_slice([7] * size, "i32")
    arrays = [np.from_dlpack(Exporter()) for _ in range(2)]
    in_use = device.pool_statistics()["blocks_in_use"]
    buffer.close()
    assert buffer.closed
    for _ in range(2):
        assert device.pool_statistics()["blocks_in_use"] == in_use
        with DeviceBuffer.from_slice([9] * size, "i32"):
            pass
        assert (arrays.pop() == 7).all()
    gc.collect()
    assert device.pool_statistics()["blocks_in_use"] == in_use - 1


def test_closing_a_description_leaves_the_consumers_memory_alone(device: Device) -> None:
    buffer = DeviceBuffer.from_dlpack(np.arange(100_000))
    array = np.from_dlpack(buffer[10:])
    buffer.close()
    del buffer
    gc.collect()
    others = [np.zeros(100_000, "i8") for _ in range(10)]
    assert np.array_equal(array, np.arange(10, 100_000))
    assert len(others) == 10
