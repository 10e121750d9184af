"""PyCUDA: a context of its own, pageable, pinned and implicit copies, prepared launches."""

from __future__ import annotations

import sys

import numpy as np
import pycuda.driver as cuda
from pycuda import gpuarray

image, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
rows, columns = (int(extent) for extent in rng.integers(1, 200, 2))
shape = (np.uint32(rows), np.uint32(columns), np.int32(0))
geometry = {"block": (256, 1, 1), "grid": ((rows * columns + 255) // 256, 1)}


def fresh() -> np.ndarray:
    return rng.standard_normal((rows, columns), dtype=np.float32)


def main() -> None:
    """Use PyCUDA's objects, which must be freed before the context."""
    module = cuda.module_from_file(image)
    relu = module.get_function("activationf32")

    values = fresh()
    data = cuda.mem_alloc(values.nbytes)
    cuda.memcpy_htod(data, values)
    relu(data, *shape, **geometry)
    found = np.full_like(values, np.nan)
    cuda.memcpy_dtoh(found, data)
    assert np.array_equal(found, np.maximum(values, 0))

    in_place = fresh()
    expected = np.maximum(in_place, 0)
    relu(cuda.InOut(in_place), *shape, **geometry)
    assert np.array_equal(in_place, expected)

    stream = cuda.Stream()
    started, finished = cuda.Event(), cuda.Event()
    pinned = cuda.pagelocked_empty((rows, columns), np.float32)
    pinned[:] = fresh()
    expected = np.maximum(pinned, 0)
    started.record(stream)
    cuda.memcpy_htod_async(data, pinned, stream)
    relu.prepare("PIIi")
    prepared = (geometry["grid"], geometry["block"], stream, data, rows, columns, 0)
    relu.prepared_async_call(*prepared)
    cuda.memcpy_dtoh_async(pinned, data, stream)
    finished.record(stream)
    while not finished.query():
        pass
    assert np.array_equal(pinned, expected)
    assert started.time_till(finished) >= 0

    values = fresh()
    array = gpuarray.to_gpu(values)
    relu(array.gpudata, *shape, **geometry)
    assert np.array_equal(array.get(), np.maximum(values, 0))
    cuda.memset_d32(data, 0x3F800000, values.size)
    cuda.memcpy_dtoh(found, data)
    assert (found == 1).all()
    data.free()


cuda.init()
context = cuda.Device(0).make_context()
try:
    main()
finally:
    context.pop()
    context.detach()
