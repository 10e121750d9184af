"""Objects of cuda.core and cuda.bindings in uhal's calls, and uhal's objects in their calls."""

from __future__ import annotations

import sys

import numpy as np
from cuda.bindings import driver
from cuda.core import Device as TheirDevice
from cuda.core import LaunchConfig as TheirConfig
from cuda.core import ObjectCode
from cuda.core import launch as their_launch
from cuda.core.utils import StridedMemoryView

from uhal import Api, DeviceBuffer, Event, Module, Stream, launch

image, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
size = int(rng.integers(1, 3000))
grid = (size + 255) // 256
shape = (1, size, 0)


def fresh() -> np.ndarray:
    return rng.standard_normal(size, dtype=np.float32)


device = Api.quick_init(0, "cuda")
theirs = TheirDevice(0)
theirs.set_current()
relu = Module.from_file(image).get_function("activationf32")
their_relu = ObjectCode.from_ptx(image).get_kernel("activationf32")
stream = theirs.create_stream()

# A stream of cuda.core in uhal's calls.
values = fresh()
x = DeviceBuffer.zeros(size, "f32")
x.copy_from(values, stream=stream)
launch(relu, grid, 256, (x, *shape), stream=stream)
assert np.array_equal(x.to_numpy(stream=stream), np.maximum(values, 0))

# Another library's buffer, as an argument and after a take-over.
values = fresh()
raw = theirs.allocate(4 * size, stream=stream)
taken = DeviceBuffer.from_dlpack(raw, stream=stream).view("f32")
taken.copy_from(values)
launch(relu, grid, 256, (raw, *shape), stream=stream)
launch(relu, grid, 256, (raw, *shape))
assert np.array_equal(taken.to_numpy(), np.maximum(values, 0))

# uhal's stream and memory in cuda.core's calls.
values = fresh()
ours = Stream()
borrowed = theirs.create_stream(ours)
assert int(borrowed.handle) == ours.handle
x.copy_from(values, stream=ours)
address = np.uint64(x.as_device_ptr().address)
counts = (np.uint32(1), np.uint32(size), np.int32(0))
their_launch(borrowed, TheirConfig(grid=grid, block=256), their_relu, address, *counts)
assert np.array_equal(x.to_numpy(stream=ours), np.maximum(values, 0))

# Views of uhal's memory by both protocols; cuda.core's stream waits for uhal's earlier work.
handle = int(stream.handle)
for make in (StridedMemoryView.from_any_interface, StridedMemoryView.from_cuda_array_interface):
    values = fresh()
    x.copy_from(values, stream=ours)
    launch(relu, grid, 256, (x, *shape), stream=ours)
    view = make(x, stream_ptr=handle)
    assert (view.ptr, view.shape, view.dtype) == (int(address), (size,), np.float32)
    assert view.is_device_accessible and not view.readonly
    found = np.full(size, np.nan, np.float32)
    driver.cuMemcpyDtoHAsync(found.ctypes.data, view.ptr, found.nbytes, handle)
    stream.sync()
    assert np.array_equal(found, np.maximum(values, 0))

# Handles of the driver API in the types of cuda.bindings.
values = fresh()
result, plain = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
assert result == driver.CUresult.CUDA_SUCCESS
x.copy_from(values, stream=plain)
launch(relu, grid, 256, (driver.CUdeviceptr(int(address)), *shape), stream=plain)
wrapped = Stream.from_handle(plain)
event = wrapped.record_event(Event())
event.synchronize()
assert event.query()
assert driver.cuStreamQuery(plain)[0] == driver.CUresult.CUDA_SUCCESS
assert np.array_equal(x.to_numpy(stream=wrapped), np.maximum(values, 0))
wrapped.close()

stream.close()
device.synchronize()
del taken
raw.close()
