"""A program that uses only cuda.core: shipped PTX, pools, pinned memory, graphs."""

from __future__ import annotations

import sys

import numpy as np
from cuda.core import (
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    ObjectCode,
    StreamOptions,
    launch,
)
from cuda.core.graph import GraphBuilder

image, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
rows, columns = (int(extent) for extent in rng.integers(1, 200, 2))
size = rows * columns
values = rng.standard_normal(size, dtype=np.float32)
clipped = np.maximum(values, 0)

device = Device(0)
device.set_current()
assert device.name.startswith("uhal simulated")
assert device.properties.max_threads_per_block == 1024
stream = device.create_stream()
other = device.create_stream(options=StreamOptions(nonblocking=True, priority=-1))

kernel = ObjectCode.from_ptx(image).get_kernel("activationf32")
assert kernel.num_arguments == 4
assert [(one.offset, one.size) for one in kernel.arguments_info] == [
    (0, 8),
    (8, 4),
    (12, 4),
    (16, 4),
]
assert kernel.attributes.max_threads_per_block == 1024
assert kernel.occupancy.max_active_blocks_per_multiprocessor(256, 0) >= 1
shape = (np.uint32(rows), np.uint32(columns), np.int32(0))
config = LaunchConfig(grid=(size + 255) // 256, block=256)

# All calls are asynchronous, on two streams that only an event orders.
pinned = LegacyPinnedMemoryResource().allocate(values.nbytes)
back = LegacyPinnedMemoryResource().allocate(values.nbytes)
source = np.from_dlpack(pinned).view(np.float32)
found = np.from_dlpack(back).view(np.float32)
source[:] = values
found[:] = np.nan
data = device.allocate(values.nbytes, stream=stream)
data.copy_from(pinned, stream=stream)
started = stream.record(options=EventOptions(timing_enabled=True))
launch(stream, config, kernel, data, *shape)
finished = stream.record(options=EventOptions(timing_enabled=True))
other.wait(finished)
data.copy_to(back, stream=other)
other.sync()
assert np.array_equal(found, clipped)
assert finished.is_done
assert finished - started >= 0

# A stream's work is recorded once; each replay starts from the pinned memory again.
builder = device.create_graph_builder()
builder.begin_building()
data.copy_from(pinned, stream=builder)
launch(builder, config, kernel, data, *shape)
data.copy_to(back, stream=builder)
graph = builder.end_building().complete()
for _ in range(3):
    source[:] = rng.standard_normal(size, dtype=np.float32)
    found[:] = np.nan
    graph.upload(stream)
    graph.launch(stream)
    stream.sync()
    assert np.array_equal(found, np.maximum(source, 0))
graph.close()

# A graph contains another graph, and work is split over two streams and joined. The joined builders
# are closed during the capture.
inner = device.create_graph_builder().begin_building()
launch(inner, config, kernel, data, *shape)
inner.end_building()
first = device.create_graph_builder().begin_building()
data.copy_from(pinned, stream=first)
first.embed(inner)
spare = device.allocate(values.nbytes, stream=stream)
stream.sync()
first, second = first.split(2)
data.copy_to(back, stream=first)
spare.copy_from(pinned, stream=second)
joined = GraphBuilder.join(first, second)
graph = joined.end_building().complete()
for _ in range(2):
    source[:] = rng.standard_normal(size, dtype=np.float32)
    found[:] = np.nan
    graph.launch(stream)
    stream.sync()
    assert np.array_equal(found, np.maximum(source, 0))
spare.copy_to(back, stream=stream)
stream.sync()
assert np.array_equal(found, source)
spare.close(stream)
graph.close()

# The program reads the kernel's result directly in managed memory from a pool.
managed = ManagedMemoryResource().allocate(values.nbytes, stream=stream)
stream.sync()
both = np.from_dlpack(managed).view(np.float32)
both[:] = values
launch(stream, config, kernel, managed, *shape)
stream.sync()
assert np.array_equal(both, clipped)
del both
managed.close(stream)

data.fill(0xFF, stream=stream)
data.copy_to(back, stream=stream)
stream.sync()
assert np.isnan(found).all()

# Mistakes raise cuda.core's own messages and break nothing.
for mistake, words in (
    (lambda: ObjectCode.from_ptx(image).get_kernel("no_such_kernel"), "CUDA_ERROR_NOT_FOUND"),
    (lambda: ObjectCode.from_ptx(b"nonsense").get_kernel("k"), "CUDA_ERROR_INVALID"),
    (
        lambda: launch(stream, LaunchConfig(grid=1, block=2048), kernel, data, *shape),
        "CUDA_ERROR_INVALID_VALUE",
    ),
):
    try:
        mistake()
    except Exception as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words} was expected")
data.close(stream)
stream.sync()

# After a fault, calls of cuda.core and of uhal both report it.
launch(stream, config, kernel, np.uint64(16), *shape)
for _ in range(2):
    try:
        stream.sync()
    except Exception as error:
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(error), error
    else:
        raise AssertionError("the fault was not reported")
