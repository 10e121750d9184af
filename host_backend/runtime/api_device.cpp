// Process, devices, error words.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "api.h"
#include "platform.h"

namespace uhal_host {

int lost_device(const Device &device) {
    set_error_text("%s", device.failure().c_str());
    return device.error.load(std::memory_order_relaxed);
}

namespace {

struct ErrorWords {
    int code;
    const char *name;
    const char *text;
};

constexpr ErrorWords error_words[] = {
    {UHAL_HOST_SUCCESS, "UHAL_HOST_SUCCESS", "no error"},
    {UHAL_HOST_ERROR_INVALID_VALUE, "UHAL_HOST_ERROR_INVALID_VALUE", "invalid argument"},
    {UHAL_HOST_ERROR_OUT_OF_MEMORY, "UHAL_HOST_ERROR_OUT_OF_MEMORY", "out of memory"},
    {UHAL_HOST_ERROR_NOT_INITIALIZED, "UHAL_HOST_ERROR_NOT_INITIALIZED",
     "the runtime is not initialized"},
    {UHAL_HOST_ERROR_NO_DEVICE, "UHAL_HOST_ERROR_NO_DEVICE", "there is no device"},
    {UHAL_HOST_ERROR_INVALID_DEVICE, "UHAL_HOST_ERROR_INVALID_DEVICE",
     "there is no device of that ordinal"},
    {UHAL_HOST_ERROR_INVALID_IMAGE, "UHAL_HOST_ERROR_INVALID_IMAGE",
     "the image is no kernel library of this runtime"},
    {UHAL_HOST_ERROR_INVALID_CONTEXT, "UHAL_HOST_ERROR_INVALID_CONTEXT",
     "no device is current on this thread"},
    {UHAL_HOST_ERROR_NO_BINARY_FOR_CPU, "UHAL_HOST_ERROR_NO_BINARY_FOR_CPU",
     "the image is for another CPU"},
    {UHAL_HOST_ERROR_SHARED_OBJECT_INIT_FAILED, "UHAL_HOST_ERROR_SHARED_OBJECT_INIT_FAILED",
     "the system's loader refused the image"},
    {UHAL_HOST_ERROR_OPERATING_SYSTEM, "UHAL_HOST_ERROR_OPERATING_SYSTEM",
     "a call to the operating system failed"},
    {UHAL_HOST_ERROR_INVALID_HANDLE, "UHAL_HOST_ERROR_INVALID_HANDLE", "invalid handle"},
    {UHAL_HOST_ERROR_ILLEGAL_STATE, "UHAL_HOST_ERROR_ILLEGAL_STATE",
     "the object is not in a state for this"},
    {UHAL_HOST_ERROR_NOT_FOUND, "UHAL_HOST_ERROR_NOT_FOUND", "name not found"},
    {UHAL_HOST_ERROR_NOT_READY, "UHAL_HOST_ERROR_NOT_READY", "work is pending"},
    {UHAL_HOST_ERROR_LAUNCH_OUT_OF_RESOURCES, "UHAL_HOST_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "the kernel does not take a block of this size"},
    {UHAL_HOST_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
     "UHAL_HOST_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part of the host memory is registered already"},
    {UHAL_HOST_ERROR_HOST_MEMORY_NOT_REGISTERED, "UHAL_HOST_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "the host memory is not registered"},
    {UHAL_HOST_ERROR_LAUNCH_FAILED, "UHAL_HOST_ERROR_LAUNCH_FAILED",
     "a kernel failed; the device is lost"},
    {UHAL_HOST_ERROR_NOT_SUPPORTED, "UHAL_HOST_ERROR_NOT_SUPPORTED", "not supported"},
    {UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED, "UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "it cannot be captured"},
    {UHAL_HOST_ERROR_STREAM_CAPTURE_INVALIDATED, "UHAL_HOST_ERROR_STREAM_CAPTURE_INVALIDATED",
     "the capture was spoilt by a mistake before"},
    {UHAL_HOST_ERROR_STREAM_CAPTURE_MERGE, "UHAL_HOST_ERROR_STREAM_CAPTURE_MERGE",
     "it would join two captures"},
    {UHAL_HOST_ERROR_STREAM_CAPTURE_UNMATCHED, "UHAL_HOST_ERROR_STREAM_CAPTURE_UNMATCHED",
     "the capture did not begin on this stream"},
    {UHAL_HOST_ERROR_STREAM_CAPTURE_UNJOINED, "UHAL_HOST_ERROR_STREAM_CAPTURE_UNJOINED",
     "the capture has work that its stream does not wait for"},
    {UHAL_HOST_ERROR_STREAM_CAPTURE_ISOLATION, "UHAL_HOST_ERROR_STREAM_CAPTURE_ISOLATION",
     "the capture would depend on work outside of it"},
    {UHAL_HOST_ERROR_CAPTURED_EVENT, "UHAL_HOST_ERROR_CAPTURED_EVENT",
     "the event was recorded in a capture"},
    {UHAL_HOST_ERROR_UNKNOWN, "UHAL_HOST_ERROR_UNKNOWN", "unknown error"},
};

const ErrorWords *find_error(int code) {
    for (const ErrorWords &words : error_words) {
        if (words.code == code) {
            return &words;
        }
    }
    return nullptr;
}

Device *find_device(Runtime &runtime, int ordinal) {
    const bool exists = ordinal >= 0 && static_cast<size_t>(ordinal) < runtime.devices.size();
    return exists ? runtime.devices[static_cast<size_t>(ordinal)].get() : nullptr;
}

// The system's name for the processor; empty if unknown.
std::string processor_name() {
    std::string name;
    if (FILE *const file = fopen("/proc/cpuinfo", "re")) {
        char line[256];
        while (name.empty() && fgets(line, sizeof line, file) != nullptr) {
            if (strncmp(line, "model name", 10) == 0) {
                const char *const colon = strchr(line, ':');
                name = colon != nullptr ? colon + 1 : "";
            }
        }
        fclose(file);
    }
    name.erase(0, std::min(name.find_first_not_of(" \t"), name.size()));
    name.erase(name.find_last_not_of(" \t\n") + 1);
    return name;
}

} // namespace

} // namespace uhal_host

using namespace uhal_host;

extern "C" {

uhalHostResult uhalHostInit(unsigned int flags) {
    if (flags != 0) {
        return UHAL_HOST_ERROR_INVALID_VALUE;
    }
    return with_runtime([](Runtime &) { return UHAL_HOST_SUCCESS; });
}

uhalHostResult uhalHostGetVersion(int *version) {
    *version = UHAL_HOST_ABI_VERSION;
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostGetErrorName(uhalHostResult error, const char **name) {
    const ErrorWords *const words = find_error(error);
    *name = words != nullptr ? words->name : nullptr;
    return words != nullptr ? UHAL_HOST_SUCCESS : UHAL_HOST_ERROR_INVALID_VALUE;
}

uhalHostResult uhalHostGetErrorString(uhalHostResult error, const char **text) {
    const ErrorWords *const words = find_error(error);
    *text = words != nullptr ? words->text : nullptr;
    return words != nullptr ? UHAL_HOST_SUCCESS : UHAL_HOST_ERROR_INVALID_VALUE;
}

const char *uhalHostLastErrorText(void) { return error_text(); }

uhalHostResult uhalHostLiveCount(uhalHostKind kind, size_t *count) {
    return with_runtime([&](Runtime &runtime) -> int {
        switch (kind) {
        case UHAL_HOST_KIND_STREAM:
            *count = runtime.live_streams.load();
            return UHAL_HOST_SUCCESS;
        case UHAL_HOST_KIND_EVENT:
            *count = runtime.live_events.load();
            return UHAL_HOST_SUCCESS;
        case UHAL_HOST_KIND_MODULE:
            *count = runtime.live_modules.load();
            return UHAL_HOST_SUCCESS;
        case UHAL_HOST_KIND_ALLOCATION:
            *count = runtime.memory.allocations();
            return UHAL_HOST_SUCCESS;
        case UHAL_HOST_KIND_PINNED:
            *count = runtime.memory.pinned_ranges();
            return UHAL_HOST_SUCCESS;
        case UHAL_HOST_KIND_GRAPH:
            *count = runtime.live_graphs.load();
            return UHAL_HOST_SUCCESS;
        case UHAL_HOST_KIND_GRAPH_EXEC:
            *count = runtime.live_executables.load();
            return UHAL_HOST_SUCCESS;
        }
        return UHAL_HOST_ERROR_INVALID_VALUE;
    });
}

uhalHostResult uhalHostDeviceGetCount(int *count) {
    return with_runtime([&](Runtime &runtime) {
        *count = static_cast<int>(runtime.devices.size());
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostDeviceGetName(char *name, int bytes, int ordinal) {
    return with_runtime([&](Runtime &runtime) -> int {
        if (find_device(runtime, ordinal) == nullptr) {
            return UHAL_HOST_ERROR_INVALID_DEVICE;
        }
        if (bytes <= 0) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        const std::string processor = processor_name();
        snprintf(name, static_cast<size_t>(bytes), "%s",
                 processor.empty() ? "CPU" : processor.c_str());
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostDeviceGetProperties(uhalHostDeviceProperties *properties, int ordinal) {
    return with_runtime([&](Runtime &runtime) -> int {
        if (find_device(runtime, ordinal) == nullptr) {
            return UHAL_HOST_ERROR_INVALID_DEVICE;
        }
        *properties = {};
        properties->processors = runtime.pool.threads();
        properties->instruction_level = instruction_level();
        properties->max_threads_per_block = UHAL_HOST_MAX_THREADS;
        for (int axis = 0; axis < 3; ++axis) {
            properties->max_block[axis] = max_block[axis];
            properties->max_grid[axis] = max_grid[axis];
        }
        properties->max_shared_bytes = UHAL_HOST_MAX_SHARED_BYTES;
        properties->max_parameter_bytes = UHAL_HOST_MAX_PARAMETER_BYTES;
        properties->queue_depth = Stream::queue_depth;
        properties->total_memory = total_memory();
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostDeviceGetContext(void **context, int ordinal) {
    return with_runtime([&](Runtime &runtime) -> int {
        Device *const device = find_device(runtime, ordinal);
        if (device == nullptr) {
            return UHAL_HOST_ERROR_INVALID_DEVICE;
        }
        *context = device;
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostDeviceGetReportWord(void **word, int ordinal) {
    return with_runtime([&](Runtime &runtime) -> int {
        const Device *const device = find_device(runtime, ordinal);
        if (device == nullptr) {
            return UHAL_HOST_ERROR_INVALID_DEVICE;
        }
        *word = const_cast<std::atomic<uint32_t> *>(&device->reported());
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostDeviceTakeReport(uint64_t *stream, uint64_t *launch, char *entry,
                                        size_t bytes, int ordinal) {
    return with_runtime([&](Runtime &runtime) -> int {
        Device *const device = find_device(runtime, ordinal);
        if (device == nullptr) {
            return UHAL_HOST_ERROR_INVALID_DEVICE;
        }
        uhal_running of{};
        if (!device->take_report(of, entry, bytes)) {
            return UHAL_HOST_ERROR_NOT_FOUND;
        }
        *stream = of.stream;
        *launch = of.launch;
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostCtxGetCurrent(void **context) {
    *context = current_device;
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostCtxSetCurrent(void *context) {
    current_device = static_cast<Device *>(context);
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostCtxSynchronize(void) {
    return with_device([](Device &device) {
        device.synchronize();
        return check_device(device);
    });
}

} // extern "C"
