#include "pointers.h"

#include <cstring>

namespace cuda_sim {

namespace {

// Writes one attribute to `data`, which has the attribute's own type.
CUresult answer(Driver &driver, void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    DeviceState *owner = nullptr;
    const sim::Allocation *device = driver.find_allocation(address, 1, &owner);
    const sim::HostRange *host = driver.host_memory.find(address);
    if (device == nullptr && host == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const bool managed = is_managed(driver, address);
    const auto put = [&](auto value) {
        std::memcpy(data, &value, sizeof value);
        return CUDA_SUCCESS;
    };
    switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put(is_synchronous(driver, address));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put(uint64_t{0});
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return put(false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (device == nullptr || owner->primary == nullptr) {
            return put(static_cast<CUcontext>(nullptr));
        }
        return put(owner->primary->handle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put(device != nullptr || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put(address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host == nullptr ? CUDA_ERROR_INVALID_VALUE : put(address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return put(device != nullptr ? device->serial : host->serial);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put(managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        if (managed) {
            return put(driver.managed[host->address].ordinal);
        }
        return put(device != nullptr ? owner->device.ordinal : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put(device != nullptr && !device->stream_ordered && !device->borrowed);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put(device != nullptr ? device->address : host->address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put(device != nullptr ? device->bytes : host->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put(true);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
        const Pool *pool = nullptr;
        if (device != nullptr) {
            pool = static_cast<const Pool *>(device->pool);
        } else if (managed) {
            pool = driver.managed[host->address].pool.get();
        }
        return put(pool == nullptr ? nullptr : pool->handle);
    }
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// Bytes that cuPointerGetAttributes clears for an attribute of unknown memory.
size_t attribute_bytes(CUpointer_attribute attribute) {
    switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return sizeof(CUmemorytype);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return sizeof(bool);
    default:
        return sizeof(void *);
    }
}

// First address and serial number of the allocation that holds an address; zeros without one.
std::pair<uint64_t, uint64_t> allocation_of(Driver &driver, uint64_t address) {
    const sim::Allocation *device = driver.find_allocation(address, 1, nullptr);
    const sim::HostRange *host = driver.host_memory.find(address);
    if (device != nullptr) {
        return {device->address, device->serial};
    }
    return host != nullptr ? std::pair<uint64_t, uint64_t>{host->address, host->serial}
                           : std::pair<uint64_t, uint64_t>{};
}

} // namespace

bool is_synchronous(Driver &driver, uint64_t address) {
    return !driver.synchronous.empty() &&
           driver.synchronous.count(allocation_of(driver, address)) != 0;
}

AddressInfo info_of(Driver &driver, uint64_t address, uint64_t bytes) {
    for (const auto &device : driver.devices) {
        sim::DeviceMemory &memory = device->device.memory;
        const sim::Allocation *allocation = memory.find(address, bytes);
        if (allocation != nullptr) {
            const bool usable = allocation->state != sim::AllocationState::leaving;
            return {usable ? AddressInfo::Kind::device : AddressInfo::Kind::invalid, device.get()};
        }
        if (memory.covers(address)) {
            return {AddressInfo::Kind::invalid, device.get()};
        }
    }
    const bool pinned = driver.host_memory.find(address, bytes) != nullptr;
    return {pinned ? AddressInfo::Kind::pinned : AddressInfo::Kind::pageable, nullptr};
}

bool is_managed(Driver &driver, uint64_t address) {
    const sim::HostRange *range = driver.host_memory.find(address);
    return range != nullptr && driver.managed.count(range->address) != 0;
}

char *view_of(Driver &driver, uint64_t address, uint64_t bytes, AddressInfo::Kind expected) {
    if (expected == AddressInfo::Kind::pageable) {
        return reinterpret_cast<char *>(address);
    }
    if (expected == AddressInfo::Kind::pinned) {
        const bool still = driver.host_memory.find(address, bytes) != nullptr;
        return still ? reinterpret_cast<char *>(address) : nullptr;
    }
    DeviceState *owner = nullptr;
    const sim::Allocation *allocation = driver.find_allocation(address, bytes, &owner);
    const bool ready = allocation != nullptr && allocation->state != sim::AllocationState::reserved;
    return ready ? owner->device.memory.view(address) : nullptr;
}

} // namespace cuda_sim

using namespace cuda_sim;

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    return in_context(__func__, [&](Call &call) {
        return data == nullptr ? CUDA_ERROR_INVALID_VALUE
                               : answer(call.driver, data, attribute, ptr);
    });
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    return in_context(__func__, [&](Call &call) {
        const auto allocation = allocation_of(call.driver, ptr);
        if (value == nullptr || allocation.first == 0 ||
            attribute != static_cast<int>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (*static_cast<const unsigned *>(value) != 0) {
            call.driver.synchronous.insert(allocation);
        } else {
            call.driver.synchronous.erase(allocation);
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr) {
    return in_context(__func__, [&](Call &call) {
        for (unsigned index = 0; index < numAttributes; ++index) {
            if (answer(call.driver, data[index], attributes[index], ptr) == CUDA_SUCCESS) {
                continue;
            }
            if (attributes[index] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
                *static_cast<int *>(data[index]) = -2;
            } else {
                std::memset(data[index], 0, attribute_bytes(attributes[index]));
            }
        }
        return CUDA_SUCCESS;
    });
}
