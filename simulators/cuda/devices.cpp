// Initialization, versions and devices.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "call.h"

using namespace cuda_sim;

namespace {

constexpr char bus_id_format[] = "0000:%02x:00.0";

CUresult with_device(const char *name, CUdevice ordinal, const void *out,
                     CUresult (*body)(const DeviceState &, void *), void *argument) {
    return initialized(name, [&](Call &call) {
        const DeviceState *device = call.driver.device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        return out == nullptr ? CUDA_ERROR_INVALID_VALUE : body(*device, argument);
    });
}

struct Attribute {
    CUdevice_attribute name;
    int (*value)(const DeviceState &device);
};

int as_int(uint64_t value) {
    return static_cast<int>(value);
}

#define FIXED(name, number)                                                                        \
    {static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_##name),                                  \
     [](const DeviceState &) { return as_int(number); }}
#define FROM_PROFILE(name, expression)                                                             \
    {CU_DEVICE_ATTRIBUTE_##name, [](const DeviceState &device) {                                   \
         const Profile &profile = device.profile;                                                  \
         return as_int(expression);                                                                \
     }}

// Attributes not listed are 0, the value of a device without the feature.
const Attribute attributes[] = {
    FIXED(MAX_THREADS_PER_BLOCK, max_threads_per_block),
    FIXED(MAX_BLOCK_DIM_X, max_block[0]),
    FIXED(MAX_BLOCK_DIM_Y, max_block[1]),
    FIXED(MAX_BLOCK_DIM_Z, max_block[2]),
    FIXED(MAX_GRID_DIM_X, max_grid[0]),
    FIXED(MAX_GRID_DIM_Y, max_grid[1]),
    FIXED(MAX_GRID_DIM_Z, max_grid[2]),
    FIXED(MAX_SHARED_MEMORY_PER_BLOCK, shared_per_block),
    FIXED(TOTAL_CONSTANT_MEMORY, 65536),
    FIXED(WARP_SIZE, warp),
    FIXED(MAX_PITCH, 2147483647),
    FIXED(MAX_REGISTERS_PER_BLOCK, registers_per_processor),
    FIXED(MAX_REGISTERS_PER_MULTIPROCESSOR, registers_per_processor),
    FIXED(CAN_MAP_HOST_MEMORY, 1),
    FIXED(CONCURRENT_KERNELS, 1),
    FIXED(UNIFIED_ADDRESSING, 1),
    FIXED(STREAM_PRIORITIES_SUPPORTED, 1),
    FIXED(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
    FIXED(COOPERATIVE_LAUNCH, 1),
    FIXED(HOST_REGISTER_SUPPORTED, 1),
    FIXED(MEMORY_POOLS_SUPPORTED, 1),
    FIXED(MANAGED_MEMORY, 1),
    FIXED(CONCURRENT_MANAGED_ACCESS, 1),
    FIXED(CAN_USE_STREAM_MEM_OPS_V1, 1),
    FIXED(CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1),
    FIXED(CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1),
    FIXED(CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
    FIXED(CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
    FROM_PROFILE(CLOCK_RATE, profile.clock_khz),
    FROM_PROFILE(MULTIPROCESSOR_COUNT, profile.processors),
    FROM_PROFILE(MEMORY_CLOCK_RATE, profile.memory_clock_khz),
    FROM_PROFILE(GLOBAL_MEMORY_BUS_WIDTH, profile.memory_bus_bits),
    FROM_PROFILE(L2_CACHE_SIZE, profile.l2_bytes),
    FROM_PROFILE(MAX_THREADS_PER_MULTIPROCESSOR, profile.threads_per_processor),
    FROM_PROFILE(ASYNC_ENGINE_COUNT, profile.copy_engines),
    FROM_PROFILE(COMPUTE_CAPABILITY_MAJOR, profile.major()),
    FROM_PROFILE(COMPUTE_CAPABILITY_MINOR, profile.minor()),
    FROM_PROFILE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, profile.shared_per_processor),
    FROM_PROFILE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, profile.shared_per_block_optin),
    FROM_PROFILE(MAX_BLOCKS_PER_MULTIPROCESSOR, profile.blocks_per_processor),
    FROM_PROFILE(RESERVED_SHARED_MEMORY_PER_BLOCK, profile.shared_reserved_per_block),
    FROM_PROFILE(CLUSTER_LAUNCH, profile.clusters),
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
     [](const DeviceState &device) { return device.device.ordinal + 1; }},
};

#undef FIXED
#undef FROM_PROFILE

// Recognizable in logs, and the same in every run.
CUuuid uuid_of(const DeviceState &device) {
    CUuuid uuid = {};
    std::memcpy(uuid.bytes, "uhal-simulated", 14);
    uuid.bytes[14] = static_cast<char>(device.profile.target);
    uuid.bytes[15] = static_cast<char>(device.device.ordinal);
    return uuid;
}

} // namespace

CUresult cuInit(unsigned int Flags) {
    Driver &driver = Driver::get();
    if (driver.left_in_parent()) {
        return refuse(CUDA_ERROR_NOT_INITIALIZED, "this process was forked from one using CUDA");
    }
    const sim::Lock lock(driver.scheduler.mutex);
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!driver.complaint().empty()) {
        std::fprintf(stderr, "simulated libcuda: %s\n", driver.complaint().c_str());
        return refuse(CUDA_ERROR_UNKNOWN, driver.complaint());
    }
    const int planned = driver.instruments.on_call("cuInit");
    if (planned != 0) {
        return static_cast<CUresult>(planned);
    }
    driver.initialized_in = getpid();
    return driver.devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *driverVersion) {
    if (driverVersion == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = static_cast<int>(Driver::get().version());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    return initialized(__func__, [&](Call &call) {
        if (count == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *count = static_cast<int>(call.driver.devices.size());
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    return with_device(
        __func__, ordinal, device,
        [](const DeviceState &state, void *out) {
            *static_cast<CUdevice *>(out) = state.device.ordinal;
            return CUDA_SUCCESS;
        },
        device);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        const DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (name == nullptr || len <= 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::snprintf(name, static_cast<size_t>(len), "%s", device->profile.name().c_str());
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    return with_device(
        __func__, dev, uuid,
        [](const DeviceState &device, void *out) {
            *static_cast<CUuuid *>(out) = uuid_of(device);
            return CUDA_SUCCESS;
        },
        uuid);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        if (call.driver.device(dev) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (pciBusId == nullptr || len <= 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::snprintf(pciBusId, static_cast<size_t>(len), bus_id_format, dev + 1);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
    return initialized(__func__, [&](Call &call) {
        unsigned bus = 0;
        if (dev == nullptr || pciBusId == nullptr ||
            std::sscanf(pciBusId, bus_id_format, &bus) != 1) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *dev = static_cast<CUdevice>(bus) - 1;
        return call.driver.device(*dev) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    });
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    return with_device(
        __func__, dev, bytes,
        [](const DeviceState &device, void *out) {
            *static_cast<size_t *>(out) = device.device.memory.capacity();
            return CUDA_SUCCESS;
        },
        bytes);
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        const DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (pi == nullptr || attrib <= 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto found = std::find_if(std::begin(attributes), std::end(attributes),
                                        [&](const Attribute &one) { return one.name == attrib; });
        *pi = found == std::end(attributes) ? 0 : found->value(*device);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    const CUresult result =
        cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
    return result != CUDA_SUCCESS
               ? result
               : cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev) {
    (void)type;
    return initialized(__func__, [&](Call &call) {
        if (call.driver.device(dev) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (pi == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *pi = 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    return initialized(__func__, [&](Call &call) {
        if (call.driver.device(dev) == nullptr || call.driver.device(peerDev) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (canAccessPeer == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *canAccessPeer = dev != peerDev;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
    return initialized(__func__, [&](Call &call) {
        if (call.driver.device(srcDevice) == nullptr || call.driver.device(dstDevice) == nullptr ||
            srcDevice == dstDevice) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (value == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
        return CUDA_SUCCESS;
    });
}

// No profiler is attached. Programs may still start and stop it.
CUresult cuProfilerStart() {
    return in_context(__func__, [](Call &) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop() {
    return in_context(__func__, [](Call &) { return CUDA_SUCCESS; });
}
