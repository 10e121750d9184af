// Memory pools: which one a device uses, their settings, and who else may reach their memory.
#include "call.h"

using namespace cuda_sim;

namespace {

template <class Body> CUresult with_pool(const char *name, CUmemoryPool handle, Body body) {
    return initialized(name, [&](Call &call) {
        const std::shared_ptr<Pool> pool = call.driver.pools.find(handle);
        return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : body(call, *pool);
    });
}

bool is_small(CUmemPool_attribute attribute) {
    return attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult put(const std::shared_ptr<Pool> &pool, CUmemoryPool *out) {
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = pool->handle;
    return CUDA_SUCCESS;
}

template <class Body>
CUresult with_place(const char *name, const CUmemLocation *location, CUmemAllocationType type,
                    Body body) {
    return initialized(name, [&](Call &call) {
        if (location == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
            type != CU_MEM_ALLOCATION_TYPE_PINNED) {
            return refuse(CUDA_ERROR_NOT_SUPPORTED, "only pools of device memory are simulated");
        }
        DeviceState *const device = call.driver.device(location->id);
        return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : body(*device);
    });
}

} // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        const DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *pool_out = device->default_pool->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        const DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *pool = device->pool->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    return with_pool(__func__, pool, [&](Call &call, Pool &found) {
        DeviceState *device = call.driver.device(dev);
        if (device == nullptr || found.device != dev) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        device->pool = call.driver.pools.find(pool);
        return CUDA_SUCCESS;
    });
}

// Pools by place and kind of memory: there are those of devices only.
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type) {
    return with_place(__func__, location, type, [&](DeviceState &device) {
        return put(device.default_pool, pool_out);
    });
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return with_place(__func__, location, type,
                      [&](DeviceState &device) { return put(device.pool, pool); });
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    return with_place(__func__, location, type, [&](DeviceState &device) {
        const std::shared_ptr<Pool> found = Driver::get().pools.find(pool);
        if (found == nullptr || found->device != device.device.ordinal) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        device.pool = found;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    return initialized(__func__, [&](Call &call) {
        if (pool == nullptr || poolProps == nullptr ||
            poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
            return refuse(CUDA_ERROR_NOT_SUPPORTED, "only pools of device memory are simulated");
        }
        if (call.driver.device(poolProps->location.id) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *pool = call.driver.make_pool(poolProps->location.id)->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    return with_pool(__func__, pool, [&](Call &call, Pool &found) {
        DeviceState &device = *call.driver.device(found.device);
        if (device.default_pool.get() == &found) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (device.pool.get() == &found) {
            device.pool = device.default_pool;
        }
        call.driver.pools.remove(pool);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    return with_pool(__func__, pool, [&](Call &, Pool &found) {
        if (value == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
            found.used_high = found.used;
            return CUDA_SUCCESS;
        }
        const auto setting = found.settings.find(attr);
        if (setting == found.settings.end()) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        setting->second = is_small(attr) ? static_cast<uint64_t>(*static_cast<int *>(value))
                                         : *static_cast<cuuint64_t *>(value);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    return with_pool(__func__, pool, [&](Call &, Pool &found) {
        if (value == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const bool high =
            attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
        if (is_small(attr)) {
            *static_cast<int *>(value) = static_cast<int>(found.settings[attr]);
        } else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
            *static_cast<cuuint64_t *>(value) = found.settings[attr];
        } else {
            *static_cast<cuuint64_t *>(value) = high ? found.used_high : found.used;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    (void)minBytesToKeep;
    return with_pool(__func__, pool, [&](Call &, Pool &) { return CUDA_SUCCESS; });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    return with_pool(__func__, pool, [&](Call &call, Pool &found) {
        ++call.driver.access_changes;
        for (size_t index = 0; index < count; ++index) {
            const CUmemLocation &location = map[index].location;
            if (location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                call.driver.device(location.id) == nullptr) {
                return CUDA_ERROR_INVALID_DEVICE;
            }
            if (map[index].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
                found.readers.insert(location.id);
            } else {
                found.readers.erase(location.id);
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                            CUmemLocation *location) {
    return with_pool(__func__, memPool, [&](Call &, Pool &found) {
        const bool own = location->id == found.device;
        const bool granted = own || found.readers.count(location->id) != 0;
        *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}
