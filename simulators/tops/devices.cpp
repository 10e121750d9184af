// The process and its devices.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "call.h"
#include "generation.h"
#include "operations.h"

using namespace tops_sim;

namespace {

// Version of the runtime, 1000 * major + 10 * minor.
constexpr int driver_version = 3010;

// Longer than a usual address, so that tests detect buffers that are too short.
std::string bus_address(int ordinal) {
    char text[16];
    std::snprintf(text, sizeof text, "0000:%02x:00.0", ordinal + 1);
    return text;
}

topsError_t put_text(const std::string &text, char *buffer, int bytes) {
    if (buffer == nullptr || bytes <= 0) {
        return topsErrorInvalidValue;
    }
    const size_t written = std::min(text.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(buffer, text.data(), written);
    buffer[written] = 0;
    return topsSuccess;
}

std::string name_of(const Profile &profile) {
    return std::string("uhal simulated ") + profile.product;
}

template <class Body> topsError_t of_device(const char *name, int ordinal, Body body) {
    return in_process(name, [&](Call &call) {
        DeviceState *device = call.runtime.device(ordinal);
        return device == nullptr ? topsErrorInvalidDevice : body(call, *device);
    });
}

// Writes the published structure, with a newer library's fields after or inside the structure.
void put_properties(Call &call, const DeviceState &device, topsDeviceProp_t *room) {
    const Profile &profile = device.profile;
    const Readings &readings = call.runtime.readings;
    const unsigned threads = call.runtime.block_threads(profile);
    topsDeviceProp_t found;
    std::memset(&found, 0, sizeof found);
    std::snprintf(found.name, sizeof found.name, "%s", name_of(profile).c_str());
    std::snprintf(found.gcuArchName, sizeof found.gcuArchName, "%s",
                  profile.architecture().c_str());
    found.totalGlobalMem = device.device.memory.capacity();
    found.sharedMemPerBlock = profile.shared_bytes;
    found.maxSharedMemoryPerMultiProcessor = profile.shared_bytes;
    found.maxThreadsPerBlock = static_cast<int>(threads);
    for (int axis = 0; axis < 3; ++axis) {
        found.maxThreadsDim[axis] = static_cast<int>(threads);
        found.maxGridSize[axis] = static_cast<int>(profile.max_grid[axis]);
    }
    found.clockRate = static_cast<int>(profile.clock_khz);
    found.memoryClockRate = static_cast<int>(profile.memory_clock_khz);
    found.memoryBusWidth = static_cast<int>(profile.memory_bus_bits);
    found.major = profile.major();
    found.minor = profile.minor();
    found.multiProcessorCount = static_cast<int>(profile.clusters);
    const int sips = static_cast<int>(call.runtime.sips(profile));
    found.maxThreadsPerMultiProcessor = readings.properties_tell_sips ? sips : 0;
    found.pciBusID = device.device.ordinal + 1;
    found.canMapHostMemory = 1;
    found.cooperativeLaunch = 1;
    char *bytes = reinterpret_cast<char *>(room);
    if (!wide_properties()) {
        std::memcpy(bytes, &found, sizeof found);
        return;
    }
    const size_t added = sizeof(size_t);
    const size_t before = readings.properties_grew_in_the_middle
                              ? offsetof(topsDeviceProp_t, computeMode)
                              : sizeof found;
    std::memcpy(bytes, &found, before);
    std::memset(bytes + before, 0, added);
    std::memcpy(bytes + before, &sips, sizeof sips);
    std::memcpy(bytes + before + added, reinterpret_cast<const char *>(&found) + before,
                sizeof found - before);
}

} // namespace

topsError_t topsInit(unsigned int flags) {
    return in_process(__func__,
                      [&](Call &) { return flags == 0 ? topsSuccess : topsErrorInvalidValue; });
}

topsError_t topsDriverGetVersion(int *driverVersion) {
    return in_process(__func__, [&](Call &) {
        *driverVersion = driver_version;
        return topsSuccess;
    });
}

topsError_t topsRuntimeGetVersion(int *runtimeVersion) {
    return in_process(__func__, [&](Call &) {
        *runtimeVersion = runtime_version();
        return topsSuccess;
    });
}

topsError_t topsGetDeviceCount(int *count) {
    return in_process(__func__, [&](Call &call) {
        *count = static_cast<int>(call.runtime.devices.size());
        return *count == 0 ? topsErrorNoDevice : topsSuccess;
    });
}

topsError_t topsSetDevice(int deviceId) {
    return of_device(__func__, deviceId, [&](Call &, DeviceState &) {
        current_device() = deviceId;
        return topsSuccess;
    });
}

topsError_t topsGetDevice(int *deviceId) {
    return in_process(__func__, [&](Call &) {
        if (deviceId == nullptr) {
            return topsErrorInvalidValue;
        }
        *deviceId = current_device();
        return topsSuccess;
    });
}

topsError_t topsDeviceGet(topsDevice_t *device, int ordinal) {
    return of_device(__func__, ordinal, [&](Call &, DeviceState &) {
        *device = ordinal;
        return topsSuccess;
    });
}

topsError_t topsDeviceGetName(char *name, int len, topsDevice_t device) {
    return of_device(__func__, device, [&](Call &, DeviceState &found) {
        return put_text(name_of(found.profile), name, len);
    });
}

topsError_t topsDeviceGetPCIBusId(char *pciBusId, int len, int device) {
    return of_device(__func__, device, [&](Call &, DeviceState &) {
        return put_text(bus_address(device), pciBusId, len);
    });
}

topsError_t topsDeviceGetByPCIBusId(int *device, const char *pciBusId) {
    return in_process(__func__, [&](Call &call) {
        for (const auto &one : call.runtime.devices) {
            if (pciBusId != nullptr && bus_address(one->device.ordinal) == pciBusId) {
                *device = one->device.ordinal;
                return topsSuccess;
            }
        }
        return pciBusId == nullptr ? topsErrorInvalidValue : topsErrorInvalidDevice;
    });
}

topsError_t topsDeviceComputeCapability(int *major, int *minor, topsDevice_t device) {
    return of_device(__func__, device, [&](Call &, DeviceState &found) {
        *major = found.profile.major();
        *minor = found.profile.minor();
        return topsSuccess;
    });
}

topsError_t topsDeviceTotalMem(size_t *bytes, topsDevice_t device) {
    return of_device(__func__, device, [&](Call &, DeviceState &found) {
        *bytes = found.device.memory.capacity();
        return topsSuccess;
    });
}

topsError_t topsDeviceGetAttribute(int *pi, topsDeviceAttribute_t attr, int deviceId) {
    return of_device(__func__, deviceId, [&](Call &call, DeviceState &device) {
        const Profile &profile = device.profile;
        const int threads = static_cast<int>(call.runtime.block_threads(profile));
        const auto put = [&](int64_t value) {
            *pi = static_cast<int>(value);
            return topsSuccess;
        };
        switch (attr) {
        case topsDeviceAttributeClockRate:
            return put(profile.clock_khz);
        case topsDeviceAttributeComputeCapabilityMajor:
            return put(profile.major());
        case topsDeviceAttributeComputeCapabilityMinor:
            return put(profile.minor());
        case topsDeviceAttributeMaxBlockDimX:
        case topsDeviceAttributeMaxBlockDimY:
        case topsDeviceAttributeMaxBlockDimZ:
        case topsDeviceAttributeMaxThreadsPerBlock:
            return put(threads);
        case topsDeviceAttributeMaxGridDimX:
            return put(profile.max_grid[0]);
        case topsDeviceAttributeMaxGridDimY:
            return put(profile.max_grid[1]);
        case topsDeviceAttributeMaxGridDimZ:
            return put(profile.max_grid[2]);
        case topsDeviceAttributeMultiprocessorCount:
            return put(profile.clusters);
        case topsDeviceAttributeMaxSharedMemoryPerBlock:
            return put(static_cast<int64_t>(profile.shared_bytes));
        default:
            return topsErrorInvalidValue;
        }
    });
}

topsError_t topsGetDeviceProperties(topsDeviceProp_t *prop, int deviceId) {
    return of_device(__func__, deviceId, [&](Call &call, DeviceState &device) {
        if (prop == nullptr) {
            return topsErrorInvalidValue;
        }
        put_properties(call, device, prop);
        return topsSuccess;
    });
}

topsError_t topsDeviceSynchronize() {
    return on_device(__func__, [&](Call &call) {
        const topsError_t unsafe = check_capture_unsafe(call);
        return unsafe != topsSuccess
                   ? unsafe
                   : wait_for(call, call.runtime.scheduler.pending(call.device->device));
    });
}
