"""The plain driver API, through cuda.bindings: shipped PTX, copies of all kinds, events."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import driver


def done(answer: tuple) -> object:
    """Check the status, the first element, and return the other elements."""
    result, *values = answer
    assert result == driver.CUresult.CUDA_SUCCESS, result
    return values[0] if len(values) == 1 else values


image, seed = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
rng = np.random.default_rng(seed)
rows, columns = (int(extent) for extent in rng.integers(1, 200, 2))
values = rng.standard_normal((rows, columns), dtype=np.float32)
clipped = np.maximum(values, 0)

done(driver.cuInit(0))
assert done(driver.cuDeviceGetCount()) == 1
device = done(driver.cuDeviceGet(0))
context = done(driver.cuDevicePrimaryCtxRetain(device))
done(driver.cuCtxSetCurrent(context))
free, total = done(driver.cuMemGetInfo())
assert 0 < free <= total

module = done(driver.cuModuleLoadData(image))
function = done(driver.cuModuleGetFunction(module, b"activationf32"))
threads = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
assert done(driver.cuFuncGetAttribute(threads, function)) == 1024
assert done(driver.cuFuncGetParamInfo(function, 3)) == [16, 4]
assert done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 256, 0)) >= 1

least, greatest = done(driver.cuCtxGetStreamPriorityRange())
stream = done(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
urgent = done(driver.cuStreamCreateWithPriority(1, greatest))
assert done(driver.cuStreamGetPriority(urgent)) == greatest < least
started, finished = (done(driver.cuEventCreate(0)) for _ in range(2))


def arguments(address: object, kind: int = 0) -> tuple:
    types = (None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int32)
    return (address, rows, columns, kind), types


def launch(address: object, on: object) -> tuple:
    blocks = (values.size + 127) // 128
    return driver.cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, on, arguments(address), 0)


# The program may change pageable memory when the call has returned.
data = done(driver.cuMemAlloc(values.nbytes))
done(driver.cuMemsetD32Async(data, 0x7FC00000, values.size, stream))
hurried = values.copy()
done(driver.cuMemcpyHtoDAsync(data, hurried.ctypes.data, values.nbytes, stream))
hurried[:] = np.nan
done(driver.cuEventRecord(started, stream))
done(launch(data, stream))
done(driver.cuEventRecord(finished, stream))
done(driver.cuStreamWaitEvent(urgent, finished, 0))
found = np.full_like(values, np.nan)
done(driver.cuMemcpyDtoHAsync(found.ctypes.data, data, values.nbytes, urgent))
done(driver.cuStreamSynchronize(urgent))
assert np.array_equal(found, clipped)
assert driver.cuEventQuery(finished)[0] == driver.CUresult.CUDA_SUCCESS
assert done(driver.cuEventElapsedTime(started, finished)) >= 0

# The null stream waits for blocking streams, and a synchronous copy waits for its own end.
blocking = done(driver.cuStreamCreate(0))
done(driver.cuMemcpyHtoDAsync(data, values.ctypes.data, values.nbytes, blocking))
done(launch(data, 0))
found[:] = np.nan
done(driver.cuMemcpyDtoH(found.ctypes.data, data, values.nbytes))
assert np.array_equal(found, clipped)

# Copy rows to another pitch and back.
pitched, pitch = done(driver.cuMemAllocPitch(4 * columns, rows, 4))
copy = driver.CUDA_MEMCPY2D()
copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
copy.srcHost = values.ctypes.data
copy.srcPitch = copy.WidthInBytes = 4 * columns
copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.dstDevice = pitched
copy.dstPitch = pitch
copy.Height = rows
done(driver.cuMemcpy2D(copy))
row = np.full(columns, np.nan, np.float32)
done(driver.cuMemcpyDtoH(row.ctypes.data, int(pitched) + (rows - 1) * pitch, row.nbytes))
assert np.array_equal(row, values[-1])

# Stream-ordered memory, and a callback between two pieces of work.
seen: list[int] = []
calls_back = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda given: seen.append(given))
temporary = done(driver.cuMemAllocAsync(values.nbytes, stream))
done(driver.cuMemcpyDtoDAsync(temporary, data, values.nbytes, stream))
done(driver.cuLaunchHostFunc(stream, driver.CUhostFn(_ptr=ctypes.addressof(calls_back)), 7))
found[:] = np.nan
done(driver.cuMemcpyDtoHAsync(found.ctypes.data, temporary, values.nbytes, stream))
done(driver.cuMemFreeAsync(temporary, stream))
done(driver.cuStreamSynchronize(stream))
assert seen == [7]
assert np.array_equal(found, clipped)

for one in (data, pitched):
    done(driver.cuMemFree(one))
for one in (stream, urgent, blocking):
    done(driver.cuStreamDestroy(one))
for one in (started, finished):
    done(driver.cuEventDestroy(one))
done(driver.cuModuleUnload(module))
done(driver.cuDevicePrimaryCtxRelease(device))
