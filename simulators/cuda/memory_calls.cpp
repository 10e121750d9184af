// Device memory, stream-ordered memory, page-locked host memory. Pools are in pools.cpp.
#include <algorithm>

#include "managed.h"
#include "pointers.h"

using namespace cuda_sim;

namespace {

constexpr unsigned host_flags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned register_flags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
constexpr size_t pitch_alignment = 512;

CUresult allocate_ordered(Call &call, CUdeviceptr *address, size_t bytes,
                          const std::shared_ptr<Pool> &pool, CUstream stream_handle) {
    const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
    if (stream == nullptr || pool == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (address == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture != nullptr) {
        stream->capture->valid = false;
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "allocations inside graphs are not simulated");
    }
    if (pool->managed) {
        return allocate_managed(call, address, bytes, pool);
    }
    DeviceState &device = *call.driver.device(pool->device);
    uint64_t reserved = 0;
    const sim::Status status = device.device.memory.reserve(bytes, reserved);
    if (status != sim::Status::ok) {
        return to_result(status);
    }
    sim::Allocation *allocation = device.device.memory.find(reserved);
    allocation->stream_ordered = true;
    allocation->pool = pool.get();
    pool->used += bytes;
    pool->used_high = std::max(pool->used_high, pool->used);
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    operation.work = [&device, reserved] {
        const sim::Lock lock(Driver::get().scheduler.mutex);
        return device.device.memory.commit(reserved);
    };
    *address = reserved;
    return enqueue(call, *stream, std::move(operation));
}

CUresult free_now(Call &call, CUdeviceptr address) {
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    if (call.driver.managed.count(address) != 0) {
        return free_managed(call, address);
    }
    DeviceState *owner = nullptr;
    sim::Allocation *allocation = call.driver.find_allocation(address, 1, &owner);
    if (allocation == nullptr || allocation->address != address || allocation->borrowed ||
        allocation->state == sim::AllocationState::leaving) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "no allocation starts at this address");
    }
    const uint64_t serial = allocation->serial;
    if (!allocation->stream_ordered) {
        // The call waits, because pending work may use the memory and the program may rely on the
        // wait.
        call.driver.scheduler.wait(call.lock, call.driver.scheduler.pending(owner->device));
        allocation = call.driver.find_allocation(address, 1, nullptr);
        if (allocation == nullptr || allocation->serial != serial) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    release_from_pool(call.driver, *allocation);
    owner->device.memory.release(address);
    return call.fault();
}

CUresult free_ordered(Call &call, CUdeviceptr address, CUstream stream_handle) {
    const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (call.driver.managed.count(address) != 0) {
        return free_managed(call, address, *stream);
    }
    DeviceState *owner = nullptr;
    sim::Allocation *allocation = call.driver.find_allocation(address, 1, &owner);
    if (allocation == nullptr || allocation->address != address || allocation->borrowed ||
        allocation->state == sim::AllocationState::leaving) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "no allocation starts at this address");
    }
    allocation->state = sim::AllocationState::leaving;
    release_from_pool(call.driver, *allocation);
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    operation.work = [owner, address] {
        const sim::Lock lock(Driver::get().scheduler.mutex);
        owner->device.memory.release(address);
        return sim::Status::ok;
    };
    return enqueue(call, *stream, std::move(operation));
}

} // namespace

void cuda_sim::release_from_pool(Driver &driver, const sim::Allocation &allocation) {
    for (const auto &[value, pool] : driver.pools.all()) {
        if (pool.get() == allocation.pool) {
            pool->used -= allocation.bytes;
        }
    }
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    return in_context(__func__, [&](Call &call) {
        const sim::DeviceMemory &memory = call.device->device.memory;
        if (free != nullptr) {
            *free = memory.capacity() - memory.used();
        }
        if (total != nullptr) {
            *total = memory.capacity();
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    return in_context(__func__, [&](Call &call) {
        const CUresult unsafe = check_capture_unsafe(call);
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
        if (dptr == nullptr || bytesize == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        uint64_t address = 0;
        const sim::Status status = call.device->device.memory.allocate(bytesize, address);
        *dptr = status == sim::Status::ok ? address : *dptr;
        return to_result(status);
    });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    if (pPitch == nullptr ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pPitch = (WidthInBytes + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
    return cuMemAlloc_v2(dptr, *pPitch * Height);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    return in_context(__func__, [&](Call &call) {
        const CUresult unsafe = check_capture_unsafe(call);
        return unsafe != CUDA_SUCCESS ? unsafe : free_now(call, dptr);
    });
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return in_context(__func__, [&](Call &call) {
        return allocate_ordered(call, dptr, bytesize, call.device->pool, hStream);
    });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
    return in_context(__func__, [&](Call &call) {
        return allocate_ordered(call, dptr, bytesize, call.driver.pools.find(pool), hStream);
    });
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    return in_context(__func__, [&](Call &call) { return free_ordered(call, dptr, hStream); });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    return in_context(__func__, [&](Call &call) {
        const sim::Allocation *allocation = call.driver.find_allocation(dptr, 1, nullptr);
        const sim::HostRange *host = call.driver.host_memory.find(dptr);
        if (allocation == nullptr && host == nullptr) {
            return CUDA_ERROR_NOT_FOUND;
        }
        if (pbase != nullptr) {
            *pbase = allocation != nullptr ? allocation->address : host->address;
        }
        if (psize != nullptr) {
            *psize = allocation != nullptr ? allocation->bytes : host->bytes;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    return in_context(__func__, [&](Call &call) {
        const CUresult unsafe = check_capture_unsafe(call);
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
        if (pp == nullptr || bytesize == 0 || (Flags & ~host_flags) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        void *memory = call.driver.host_memory.allocate(bytesize, Flags);
        if (memory == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *pp = memory;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p) {
    return in_context(__func__, [&](Call &call) {
        const uint64_t address = reinterpret_cast<uint64_t>(p);
        if (p == nullptr) {
            return CUDA_SUCCESS;
        }
        const sim::HostRange *range = call.driver.host_memory.find(address);
        if (range == nullptr || range->registered || range->address != address ||
            is_managed(call.driver, address)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        call.driver.host_memory.release(address);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    return in_context(__func__, [&](Call &call) {
        if (p == nullptr || bytesize == 0 || (Flags & ~register_flags) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return call.driver.host_memory.add(reinterpret_cast<uint64_t>(p), bytesize, Flags)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    });
}

CUresult cuMemHostUnregister(void *p) {
    return in_context(__func__, [&](Call &call) {
        return call.driver.host_memory.remove(reinterpret_cast<uint64_t>(p))
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    return in_context(__func__, [&](Call &call) {
        const uint64_t address = reinterpret_cast<uint64_t>(p);
        if (pdptr == nullptr || Flags != 0 || call.driver.host_memory.find(address) == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *pdptr = address;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
    return in_context(__func__, [&](Call &call) {
        const auto *range = call.driver.host_memory.find(reinterpret_cast<uint64_t>(p));
        if (range == nullptr || range->registered || is_managed(call.driver, range->address)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *pFlags = range->flags;
        return CUDA_SUCCESS;
    });
}
