"""Operations of streams other than launches, through cuda.bindings: writes of memory words and
waits for them, batches of copies, boxes of memory, managed memory and pools.

Arguments: a PTX file with `activationf32`, a seed.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import driver

CU = driver.CUresult


def done(answer: tuple) -> object:
    """Check the status, the first element, and return the other elements."""
    result, *values = answer
    assert result == CU.CUDA_SUCCESS, result
    return values[0] if len(values) == 1 else values


image, seed = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
rng = np.random.default_rng(seed)
done(driver.cuInit(0))
device = done(driver.cuDeviceGet(0))
context = done(driver.cuDevicePrimaryCtxRetain(device))
done(driver.cuCtxSetCurrent(context))
writer, waiter = (done(driver.cuStreamCreate(1)) for _ in range(2))
relu = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(image)), b"activationf32"))
assert done(driver.cuFuncGetParamCount(relu)) == 4

attribute = driver.CUdevice_attribute
for name in ("CAN_USE_64_BIT_STREAM_MEM_OPS", "CAN_USE_STREAM_WAIT_VALUE_NOR", "MANAGED_MEMORY"):
    asked = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    assert done(driver.cuDeviceGetAttribute(asked, device)) == 1, name

# A stream waits for a word; another stream's later call writes the word.
flag = done(driver.cuMemAlloc(8))
data = done(driver.cuMemAlloc(400))
found = np.zeros(100, np.uint32)
value = int(rng.integers(1, 1 << 31))
flags = driver.CUstreamWaitValue_flags
for equal, wide in ((True, False), (False, False), (True, True)):
    bits = 64 if wide else 32
    word = value << 32 | value if wide else value
    condition = flags.CU_STREAM_WAIT_VALUE_EQ if equal else flags.CU_STREAM_WAIT_VALUE_GEQ
    done(driver.cuMemsetD32(flag, 0, 2))
    done(driver.cuMemsetD32(data, 7, 100))
    done(driver.cuCtxSynchronize())  # these streams do not wait for the null stream
    waits = getattr(driver, f"cuStreamWaitValue{bits}")
    writes = getattr(driver, f"cuStreamWriteValue{bits}")
    done(waits(waiter, flag, word if equal else word - 1, condition.value))
    done(driver.cuMemcpyDtoHAsync(found.ctypes.data, data, 4, writer))
    done(driver.cuMemcpyDtoDAsync(int(data) + 200, data, 200, waiter))
    done(driver.cuMemsetD32Async(data, value, 50, writer))
    assert driver.cuStreamQuery(waiter)[0] == CU.CUDA_ERROR_NOT_READY
    done(writes(writer, flag, word, 0))
    done(driver.cuStreamSynchronize(waiter))
    done(driver.cuMemcpyDtoH(found.ctypes.data, data, 400))
    assert (found == value).all(), found
assert driver.cuStreamWaitValue32(waiter, int(flag) + 2, 1, 0)[0] == CU.CUDA_ERROR_INVALID_VALUE
wrong = driver.cuStreamWriteValue32(waiter, found.ctypes.data, 1, 0)[0]
assert wrong == CU.CUDA_ERROR_INVALID_VALUE

# One call writes and waits, with a condition on bits.
Operation = driver.CUstreamBatchMemOpType
operations = [driver.CUstreamBatchMemOpParams() for _ in range(2)]
operations[0].writeValue.operation = Operation.CU_STREAM_MEM_OP_WRITE_VALUE_32
operations[0].writeValue.address = flag
operations[0].writeValue.value = driver.cuuint32_t(0b1010)
operations[1].waitValue.operation = Operation.CU_STREAM_MEM_OP_WAIT_VALUE_32
operations[1].waitValue.address = flag
operations[1].waitValue.value = driver.cuuint32_t(0b0010)
operations[1].waitValue.flags = flags.CU_STREAM_WAIT_VALUE_AND.value
done(driver.cuStreamBatchMemOp(writer, 2, operations, 0))
done(driver.cuStreamSynchronize(writer))
done(driver.cuMemcpyDtoH(found.ctypes.data, flag, 4))
assert found[0] == 0b1010

# A batch of copies: some sources are read in stream order, and one may be freed at once.
sizes = [int(4 * number) for number in rng.integers(1, 100, 5)]
sources = [rng.integers(0, 1 << 32, size // 4, dtype=np.uint32) for size in sizes]
targets = [done(driver.cuMemAlloc(size)) for size in sizes]
pinned = done(driver.cuMemHostAlloc(sizes[0], 0))
early = np.ctypeslib.as_array((ctypes.c_uint32 * (sizes[0] // 4)).from_address(int(pinned)))
early[:] = sources[0]
origins = [driver.CUdeviceptr(int(pinned))]
origins += [driver.CUdeviceptr(one.ctypes.data) for one in sources[1:]]
orders = []
for name in ("DURING_API_CALL", "STREAM", "ANY"):
    order = driver.CUmemcpyAttributes()
    order.srcAccessOrder = getattr(
        driver.CUmemcpySrcAccessOrder, f"CU_MEMCPY_SRC_ACCESS_ORDER_{name}"
    )
    orders.append(order)
batch = (targets, origins, sizes, len(sizes), orders)
done(driver.cuMemcpyBatchAsync(*batch, [0, 1, 3], 3, writer))
early[:] = 0
done(driver.cuStreamSynchronize(writer))
for target, what in zip(targets, sources, strict=True):
    back = np.zeros_like(what)
    done(driver.cuMemcpyDtoH(back.ctypes.data, target, back.nbytes))
    assert np.array_equal(back, what)
for firsts, stream in (([1, 2, 3], writer), ([0, 1, 3], 0), ([0, 3, 1], writer)):
    assert driver.cuMemcpyBatchAsync(*batch, firsts, 3, stream)[0] != CU.CUDA_SUCCESS

# A box inside a larger box.
whole = rng.integers(0, 1 << 32, (4, 5, 6), dtype=np.uint32)
box = done(driver.cuMemAlloc(whole.nbytes))
done(driver.cuMemcpyHtoD(box, whole.ctypes.data, whole.nbytes))
part = np.zeros((2, 3, 2), np.uint32)
copy = driver.CUDA_MEMCPY3D()
copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.srcPitch, copy.srcHeight = box, 4 * 6, 5
copy.srcXInBytes, copy.srcY, copy.srcZ = 4 * 3, 1, 2
copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
copy.dstHost, copy.dstPitch, copy.dstHeight = part.ctypes.data, 4 * 2, 3
copy.WidthInBytes, copy.Height, copy.Depth = 4 * 2, 3, 2
done(driver.cuMemcpy3D(copy))
assert np.array_equal(part, whole[2:4, 1:4, 3:5])

# Managed memory: the kernel and the program use one address.
rows = int(rng.integers(1, 5000))
managed = done(
    driver.cuMemAllocManaged(4 * rows, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
)
shared = np.ctypeslib.as_array((ctypes.c_float * rows).from_address(int(managed)))
before = rng.standard_normal(rows, dtype=np.float32)
shared[:] = before
here = driver.CUmemLocation()
here.type, here.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
done(driver.cuMemPrefetchAsync(managed, 4 * rows, here, 0, writer))
types = (None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int32)
arguments = ((managed, 1, rows, 0), types)
done(driver.cuLaunchKernel(relu, 20, 1, 1, 256, 1, 1, 0, writer, arguments, 0))
done(driver.cuStreamSynchronize(writer))
assert np.array_equal(shared, np.maximum(before, 0))
ranges = driver.CUmem_range_attribute
last = ranges.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
assert done(driver.cuMemRangeGetAttribute(4, last, managed, 4 * rows)) == 0
advice = driver.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY
done(driver.cuMemAdvise(managed, 4 * rows, advice, here))
mostly = ranges.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
assert done(driver.cuMemRangeGetAttribute(4, mostly, managed, 4 * rows)) == 1
cpu = driver.CUmemLocation()
cpu.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
for location in (cpu, here):
    advice = driver.CUmem_advise.CU_MEM_ADVISE_SET_ACCESSED_BY
    done(driver.cuMemAdvise(managed, 4 * rows, advice, location))
by = ranges.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY
assert done(driver.cuMemRangeGetAttribute(12, by, managed, 4 * rows)) == [0, -1, -2]
about = driver.CUpointer_attribute
lasting = about.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
for value in (True, False):
    done(driver.cuPointerSetAttribute(value, lasting, managed))
    assert done(driver.cuPointerGetAttribute(lasting, managed)) == value
assert done(driver.cuPointerGetAttribute(about.CU_POINTER_ATTRIBUTE_IS_MANAGED, managed))
assert not done(driver.cuPointerGetAttribute(about.CU_POINTER_ATTRIBUTE_IS_MANAGED, data))
assert driver.cuMemPrefetchAsync(data, 400, here, 0, writer)[0] == CU.CUDA_ERROR_INVALID_VALUE
assert driver.cuStreamWaitValue32(waiter, managed, 1, 0)[0] == CU.CUDA_ERROR_INVALID_VALUE
done(driver.cuMemFree(managed))

kind = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
pool = done(driver.cuMemGetDefaultMemPool(here, kind))
assert int(pool) == int(done(driver.cuDeviceGetDefaultMemPool(device)))
assert int(pool) == int(done(driver.cuMemGetMemPool(here, kind)))
