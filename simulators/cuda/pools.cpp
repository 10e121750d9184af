// Memory pools: the current pool of a device, pool settings, and access by other devices.
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

// Reads the preferred location of memory: CU_DEVICE_INVALID for managed memory without one.
CUresult read_location(Call &call, const CUmemLocation &location, CUmemAllocationType type,
                       CUdevice &ordinal) {
    const bool managed = type == static_cast<int>(CU_MEM_ALLOCATION_TYPE_MANAGED);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED && !managed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        ordinal = location.id;
        return call.driver.device(ordinal) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    }
    ordinal = location.type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
    const bool known = location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == 0;
    return managed && known
               ? CUDA_SUCCESS
               : refuse(CUDA_ERROR_NOT_SUPPORTED,
                        "only pools of device memory and managed memory are simulated");
}

// Calls `body` with a location's default pool and its current pool.
template <class Body>
CUresult with_pools(const char *name, const CUmemLocation *location, CUmemAllocationType type,
                    Body body) {
    return initialized(name, [&](Call &call) {
        CUdevice ordinal = CU_DEVICE_INVALID;
        const CUresult known = location == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                   : read_location(call, *location, type, ordinal);
        if (known != CUDA_SUCCESS) {
            return known;
        }
        if (type == CU_MEM_ALLOCATION_TYPE_PINNED) {
            DeviceState &device = *call.driver.device(ordinal);
            return body(device.default_pool, device.pool);
        }
        std::shared_ptr<Pool> &first = call.driver.default_managed_pools[ordinal];
        std::shared_ptr<Pool> &used = call.driver.managed_pools[ordinal];
        first = first == nullptr ? call.driver.make_pool(ordinal, true) : first;
        used = used == nullptr ? first : used;
        return body(first, used);
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
        if (device == nullptr || found.device != dev || found.managed) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        device->pool = call.driver.pools.find(pool);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type) {
    return with_pools(__func__, location, type,
                      [&](std::shared_ptr<Pool> &first, std::shared_ptr<Pool> &) {
                          return put(first, pool_out);
                      });
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return with_pools(
        __func__, location, type,
        [&](std::shared_ptr<Pool> &, std::shared_ptr<Pool> &used) { return put(used, pool); });
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    return with_pools(__func__, location, type,
                      [&](std::shared_ptr<Pool> &first, std::shared_ptr<Pool> &used) {
                          const std::shared_ptr<Pool> found = Driver::get().pools.find(pool);
                          if (found == nullptr || found->device != first->device ||
                              found->managed != first->managed) {
                              return CUDA_ERROR_INVALID_VALUE;
                          }
                          used = found;
                          return CUDA_SUCCESS;
                      });
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    return initialized(__func__, [&](Call &call) {
        if (pool == nullptr || poolProps == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        CUdevice ordinal = CU_DEVICE_INVALID;
        const CUresult known =
            read_location(call, poolProps->location, poolProps->allocType, ordinal);
        if (known != CUDA_SUCCESS) {
            return known;
        }
        if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
            return refuse(CUDA_ERROR_NOT_SUPPORTED, "pools for other processes are not simulated");
        }
        const bool managed = poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED;
        *pool = call.driver.make_pool(ordinal, managed)->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    return with_pool(__func__, pool, [&](Call &call, Pool &found) {
        Driver &driver = call.driver;
        const auto &first = found.managed ? driver.default_managed_pools[found.device]
                                          : driver.device(found.device)->default_pool;
        auto &used =
            found.managed ? driver.managed_pools[found.device] : driver.device(found.device)->pool;
        if (first.get() == &found) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (used.get() == &found) {
            used = first;
        }
        driver.pools.remove(pool);
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
        const bool own = location->id == found.device || found.managed;
        const bool granted = own || found.readers.count(location->id) != 0;
        *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}
