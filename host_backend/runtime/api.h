// The common beginning and end of every function of abi.h.
#pragma once

#include <new>
#include <stdexcept>
#include <system_error>

// All other symbols have hidden visibility.
#pragma GCC visibility push(default)
#include "abi.h"
#pragma GCC visibility pop
#include "runtime.h"
#include "stream.h"

namespace uhal_host {

// The error code of a lost device. The error's message is set where the code is returned.
__attribute__((cold)) int lost_device(const Device &device);

inline int check_device(const Device &device) {
    return __builtin_expect(device.error.load(std::memory_order_relaxed) != 0, 0)
               ? lost_device(device)
               : UHAL_HOST_SUCCESS;
}

// No exception may pass a C boundary.
template <class Body> uhalHostResult guarded(Body &&body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return UHAL_HOST_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        set_error_text("%s", error.what());
        return UHAL_HOST_ERROR_OPERATING_SYSTEM;
    } catch (...) {
        return UHAL_HOST_ERROR_UNKNOWN;
    }
}

// Calls body with the runtime.
template <class Body> uhalHostResult with_runtime(Body &&body) noexcept {
    return guarded([&]() -> int {
        Runtime *const current = runtime();
        return current != nullptr ? body(*current) : UHAL_HOST_ERROR_INVALID_VALUE;
    });
}

// Calls body with the thread's device, if there is a device and it is not lost.
template <class Body> uhalHostResult with_device(Body &&body) noexcept {
    return guarded([&]() -> int {
        if (current_device == nullptr) {
            return UHAL_HOST_ERROR_INVALID_CONTEXT;
        }
        if (const int error = check_device(*current_device)) {
            return error;
        }
        return body(*current_device);
    });
}

// Calls body with the stream, if the stream's device is not lost.
template <class Body> uhalHostResult with_stream(void *handle, Body &&body) noexcept {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Stream &stream = *static_cast<Stream *>(handle);
        if (const int error = check_device(stream.device())) {
            return error;
        }
        return body(stream);
    });
}

} // namespace uhal_host
