// Memory and copies.

#include <limits>

#include "api.h"
#include "capture.h"
#include "platform.h"

namespace uhal_host {

namespace {

void *pointer(uint64_t address) {
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

uhalHostResult fill(uint64_t destination, uint32_t value, uint32_t width, size_t count,
                    void *handle) {
    return with_stream(handle, [&](Stream &stream) -> int {
        if (count > std::numeric_limits<size_t>::max() / width) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        if (count == 0) {
            return UHAL_HOST_SUCCESS;
        }
        const Fill fill = {pointer(destination), count, value, width};
        if (stream.capturing()) {
            return Capture::record(stream, fill);
        }
        stream.fill(fill);
        return UHAL_HOST_SUCCESS;
    });
}

// The memory must outlive the copy.
int copy_in_order(Stream &stream, const Copy &copy) {
    if (stream.capturing()) {
        return Capture::record(stream, copy);
    }
    stream.copy_pinned(copy);
    return UHAL_HOST_SUCCESS;
}

} // namespace

} // namespace uhal_host

using namespace uhal_host;

extern "C" {

uhalHostResult uhalHostMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return with_device([&](Device &) {
        *free_bytes = available_memory();
        *total_bytes = total_memory();
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostMemAlloc(uint64_t *address, size_t bytes) {
    return with_device(
        [&](Device &device) { return device.runtime.memory.allocate(*address, bytes); });
}

uhalHostResult uhalHostMemFree(uint64_t address) {
    return with_runtime([&](Runtime &runtime) {
        // As on a GPU, queued work must not lose its memory.
        for (const auto &device : runtime.devices) {
            device->synchronize();
        }
        return runtime.memory.free(address);
    });
}

uhalHostResult uhalHostMemAllocAsync(uint64_t *address, size_t bytes, void *handle) {
    return with_stream(handle, [&](Stream &stream) -> int {
        if (stream.capturing()) {
            return Capture::refuse(stream, "an allocation");
        }
        return stream.device().runtime.memory.allocate(*address, bytes);
    });
}

uhalHostResult uhalHostMemFreeAsync(uint64_t address, void *handle) {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Stream &stream = *static_cast<Stream *>(handle);
        if (stream.capturing()) {
            return Capture::refuse(stream, "freeing memory");
        }
        stream.release_memory(address);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    (void)flags;
    return with_device(
        [&](Device &device) { return device.runtime.memory.allocate_pinned(*pointer, bytes); });
}

uhalHostResult uhalHostMemFreeHost(void *pointer) {
    return with_runtime([&](Runtime &runtime) {
        for (const auto &device : runtime.devices) {
            device->synchronize();
        }
        return runtime.memory.free_pinned(pointer);
    });
}

uhalHostResult uhalHostMemHostRegister(void *pointer, size_t bytes, unsigned int flags) {
    (void)flags;
    return with_device(
        [&](Device &device) { return device.runtime.memory.register_range(pointer, bytes); });
}

uhalHostResult uhalHostMemHostUnregister(void *pointer) {
    return with_runtime([&](Runtime &runtime) { return runtime.memory.unregister_range(pointer); });
}

uhalHostResult uhalHostMemHostIsPinned(int *pinned, const void *pointer, size_t bytes) {
    return with_runtime([&](Runtime &runtime) {
        *pinned = runtime.memory.pinned(pointer, bytes);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                       void *handle) {
    return with_stream(handle, [&](Stream &stream) -> int {
        const Copy copy = {pointer(destination), source, bytes};
        if (bytes == 0) {
            return UHAL_HOST_SUCCESS;
        }
        if (stream.device().runtime.memory.pinned(source, bytes)) {
            return copy_in_order(stream, copy);
        }
        if (stream.capturing()) {
            return Capture::refuse(stream, "a copy from pageable memory");
        }
        stream.copy_from_pageable(copy);
        return check_device(stream.device());
    });
}

uhalHostResult uhalHostMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes,
                                       void *handle) {
    return with_stream(handle, [&](Stream &stream) -> int {
        const Copy copy = {destination, pointer(source), bytes};
        if (bytes == 0) {
            return UHAL_HOST_SUCCESS;
        }
        if (stream.device().runtime.memory.pinned(destination, bytes)) {
            return copy_in_order(stream, copy);
        }
        if (stream.capturing()) {
            return Capture::refuse(stream, "a copy to pageable memory");
        }
        stream.copy_to_pageable(copy);
        return check_device(stream.device());
    });
}

uhalHostResult uhalHostMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                       void *handle) {
    return with_stream(handle, [&](Stream &stream) -> int {
        return bytes != 0 ? copy_in_order(stream, {pointer(destination), pointer(source), bytes})
                          : UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostMemcpyPeerAsync(uint64_t destination, void *destination_context,
                                       uint64_t source, void *source_context, size_t bytes,
                                       void *handle) {
    for (void *const context : {destination_context, source_context}) {
        if (context == nullptr) {
            return UHAL_HOST_ERROR_INVALID_CONTEXT;
        }
        if (const int error = check_device(*static_cast<Device *>(context))) {
            return error;
        }
    }
    return uhalHostMemcpyDtoDAsync(destination, source, bytes, handle);
}

uhalHostResult uhalHostMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                     void *stream) {
    return fill(destination, value, 1, count, stream);
}

uhalHostResult uhalHostMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                      void *stream) {
    return fill(destination, value, 2, count, stream);
}

uhalHostResult uhalHostMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                      void *stream) {
    return fill(destination, value, 4, count, stream);
}

} // extern "C"
