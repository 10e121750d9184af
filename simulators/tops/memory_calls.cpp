// Device memory, stream-ordered memory, page-locked host memory.
#include "operations.h"
#include "pointers.h"

using namespace tops_sim;

namespace {

constexpr unsigned host_flags =
    topsHostMallocPortable | topsHostMallocMapped | topsHostMallocWriteCombined;
constexpr unsigned register_flags = topsHostMallocPortable | topsHostMallocMapped;

// The header states that even an allocation of no bytes returns a pointer that is not null.
uint64_t at_least_a_byte(size_t bytes) {
    return bytes == 0 ? 1 : bytes;
}

topsError_t allocate_ordered(Call &call, void **pointer, size_t bytes, const Pool *pool,
                             topsStream_t stream_handle) {
    const std::shared_ptr<Stream> stream = own_stream_of(call, stream_handle);
    if (stream == nullptr) {
        return topsErrorInvalidHandle;
    }
    if (!call.runtime.readings.allocates_in_order) {
        return topsErrorNotSupported;
    }
    if (pointer == nullptr || pool == nullptr || pool->device != call.device) {
        return topsErrorInvalidValue;
    }
    if (stream->capture != nullptr) {
        stream->capture->valid = false;
        return refuse(topsErrorStreamCaptureUnsupported,
                      "allocations inside graphs are not simulated");
    }
    DeviceState &device = *call.device;
    uint64_t reserved = 0;
    const sim::Status status = device.device.memory.reserve(at_least_a_byte(bytes), reserved);
    if (status != sim::Status::ok) {
        return to_result(status);
    }
    device.device.memory.find(reserved)->stream_ordered = true;
    Operation operation;
    operation.work = [&device, reserved] {
        const sim::Lock lock(Runtime::get().scheduler.mutex);
        return device.device.memory.commit(reserved);
    };
    *pointer = reinterpret_cast<void *>(reserved);
    return enqueue(call, *stream, std::move(operation));
}

// The allocation of the current device at this address, if it may be freed; null otherwise.
sim::Allocation *to_free(Call &call, uint64_t pointer) {
    sim::Allocation *allocation = call.device->device.memory.find(pointer);
    const bool whole = allocation != nullptr && allocation->address == pointer &&
                       !allocation->borrowed && allocation->state != sim::AllocationState::leaving;
    return whole ? allocation : nullptr;
}

topsError_t no_allocation() {
    return refuse(topsErrorInvalidDevicePointer,
                  "no allocation of the current device starts at this pointer");
}

} // namespace

topsError_t topsMemGetInfo(size_t *free, size_t *total) {
    return on_device(__func__, [&](Call &call) {
        const sim::DeviceMemory &memory = call.device->device.memory;
        *free = memory.capacity() - memory.used();
        *total = memory.capacity();
        return topsSuccess;
    });
}

topsError_t topsMalloc(void **ptr, size_t size) {
    return on_device(__func__, [&](Call &call) {
        const topsError_t unsafe = check_capture_unsafe(call);
        if (unsafe != topsSuccess) {
            return unsafe;
        }
        if (ptr == nullptr) {
            return topsErrorInvalidValue;
        }
        uint64_t pointer = 0;
        const sim::Status status =
            call.device->device.memory.allocate(at_least_a_byte(size), pointer);
        *ptr = status == sim::Status::ok ? reinterpret_cast<void *>(pointer) : nullptr;
        return to_result(status);
    });
}

topsError_t topsFree(void *ptr) {
    return on_device(__func__, [&](Call &call) {
        const topsError_t unsafe = check_capture_unsafe(call);
        if (unsafe != topsSuccess || ptr == nullptr) {
            return unsafe;
        }
        const uint64_t pointer = reinterpret_cast<uint64_t>(ptr);
        sim::Allocation *allocation = to_free(call, pointer);
        if (allocation == nullptr) {
            return no_allocation();
        }
        const uint64_t serial = allocation->serial;
        // Pending work may use the memory, and the program may rely on this wait.
        call.runtime.scheduler.wait(call.lock, call.runtime.scheduler.pending(call.device->device));
        allocation = to_free(call, pointer);
        if (allocation == nullptr || allocation->serial != serial) {
            return no_allocation();
        }
        call.device->device.memory.release(pointer);
        return call.fault();
    });
}

topsError_t topsMallocAsync(void **dev_ptr, size_t size, topsStream_t stream, uint64_t flags) {
    return on_device(__func__, [&](Call &call) {
        return flags != 0 ? topsErrorInvalidValue
                          : allocate_ordered(call, dev_ptr, size, call.device->pool.get(), stream);
    });
}

topsError_t topsMallocFromPoolAsync(void **dev_ptr, size_t size, topsMemPool_t mem_pool,
                                    topsStream_t stream) {
    return on_device(__func__, [&](Call &call) {
        return allocate_ordered(call, dev_ptr, size, call.runtime.pools.find(mem_pool).get(),
                                stream);
    });
}

topsError_t topsFreeAsync(void *dev_ptr, topsStream_t stream_handle) {
    return on_device(__func__, [&](Call &call) {
        const std::shared_ptr<Stream> stream = own_stream_of(call, stream_handle);
        if (stream == nullptr) {
            return topsErrorInvalidHandle;
        }
        const uint64_t pointer = reinterpret_cast<uint64_t>(dev_ptr);
        sim::Allocation *allocation = to_free(call, pointer);
        if (allocation == nullptr) {
            return no_allocation();
        }
        allocation->state = sim::AllocationState::leaving;
        DeviceState *device = call.device;
        Operation operation;
        operation.work = [device, pointer] {
            const sim::Lock lock(Runtime::get().scheduler.mutex);
            device->device.memory.release(pointer);
            return sim::Status::ok;
        };
        return enqueue(call, *stream, std::move(operation));
    });
}

topsError_t topsDeviceGetMemPool(topsMemPool_t *mem_pool, int device) {
    return in_process(__func__, [&](Call &call) {
        const DeviceState *found = call.runtime.device(device);
        if (found == nullptr) {
            return topsErrorInvalidDevice;
        }
        *mem_pool = found->pool->handle;
        return topsSuccess;
    });
}

topsError_t topsDeviceGetDefaultMemPool(topsMemPool_t *pool, int device) {
    return topsDeviceGetMemPool(pool, device);
}

topsError_t topsMemPoolTrimTo(topsMemPool_t mem_pool, size_t min_bytes_to_hold) {
    (void)min_bytes_to_hold;
    return in_process(__func__, [&](Call &call) {
        return call.runtime.pools.find(mem_pool) == nullptr ? topsErrorInvalidValue : topsSuccess;
    });
}

topsError_t topsHostMalloc(void **ptr, size_t size, unsigned int flags) {
    return on_device(__func__, [&](Call &call) {
        const topsError_t unsafe = check_capture_unsafe(call);
        if (unsafe != topsSuccess) {
            return unsafe;
        }
        if (ptr == nullptr || (flags & ~host_flags) != 0) {
            return topsErrorInvalidValue;
        }
        *ptr = nullptr;
        if (size == 0) {
            return topsSuccess;
        }
        *ptr = call.runtime.host_memory.allocate(size, flags);
        return *ptr == nullptr ? topsErrorOutOfMemory : topsSuccess;
    });
}

topsError_t topsHostFree(void *ptr) {
    return on_device(__func__, [&](Call &call) {
        if (ptr == nullptr) {
            return topsSuccess;
        }
        const uint64_t address = reinterpret_cast<uint64_t>(ptr);
        const sim::HostRange *range = call.runtime.host_memory.find(address);
        if (range == nullptr || range->registered || range->address != address) {
            return topsErrorInvalidValue;
        }
        call.runtime.scheduler.wait(call.lock, call.runtime.scheduler.pending(call.device->device));
        call.runtime.host_memory.release(address);
        return topsSuccess;
    });
}

topsError_t topsHostRegister(void *hostPtr, size_t sizeBytes, unsigned int flags) {
    return on_device(__func__, [&](Call &call) {
        if (hostPtr == nullptr || sizeBytes == 0 || (flags & ~register_flags) != 0) {
            return topsErrorInvalidValue;
        }
        const uint64_t address = reinterpret_cast<uint64_t>(hostPtr);
        return call.runtime.host_memory.add(address, sizeBytes, flags)
                   ? topsSuccess
                   : topsErrorHostMemoryAlreadyRegistered;
    });
}

topsError_t topsHostUnregister(void *hostPtr) {
    return on_device(__func__, [&](Call &call) {
        return call.runtime.host_memory.remove(reinterpret_cast<uint64_t>(hostPtr))
                   ? topsSuccess
                   : topsErrorHostMemoryNotRegistered;
    });
}

topsError_t topsHostGetDevicePointer(void **devPtr, void *hostPtr, unsigned int flags) {
    return on_device(__func__, [&](Call &call) {
        const uint64_t address = reinterpret_cast<uint64_t>(hostPtr);
        if (devPtr == nullptr || flags != 0 || call.runtime.host_memory.find(address) == nullptr) {
            return topsErrorInvalidValue;
        }
        *devPtr = hostPtr;
        return topsSuccess;
    });
}
