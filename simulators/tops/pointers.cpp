#include "pointers.h"

#include <cstring>

namespace tops_sim {

namespace {

// Addresses differ from handles by a bit that no process address has, so a mix-up faults.
constexpr uint64_t address_bit = uint64_t{1} << 62;

} // namespace

AddressInfo info_of(Call &call, uint64_t pointer, uint64_t bytes) {
    for (const auto &device : call.runtime.devices) {
        sim::DeviceMemory &memory = device->device.memory;
        if (memory.covers(pointer)) {
            const sim::Allocation *allocation = memory.find(pointer, bytes);
            const bool usable = device.get() == call.device && allocation != nullptr &&
                                allocation->state != sim::AllocationState::leaving;
            return {usable ? AddressInfo::Kind::device : AddressInfo::Kind::invalid};
        }
    }
    const bool pinned = call.runtime.host_memory.find(pointer, bytes) != nullptr;
    return {pinned ? AddressInfo::Kind::pinned : AddressInfo::Kind::pageable};
}

char *view_of(Runtime &runtime, DeviceState &device, uint64_t pointer, uint64_t bytes,
              AddressInfo::Kind expected) {
    if (expected == AddressInfo::Kind::pageable) {
        return reinterpret_cast<char *>(pointer);
    }
    if (expected == AddressInfo::Kind::pinned) {
        const bool still = runtime.host_memory.find(pointer, bytes) != nullptr;
        return still ? reinterpret_cast<char *>(pointer) : nullptr;
    }
    const sim::Allocation *allocation = device.device.memory.find(pointer, bytes);
    const bool ready = allocation != nullptr && allocation->state != sim::AllocationState::reserved;
    return ready ? device.device.memory.view(pointer) : nullptr;
}

uint64_t address_of(const Runtime &runtime, uint64_t pointer) {
    return runtime.readings.pointers_are_handles ? pointer ^ address_bit : pointer;
}

uint64_t pointer_of(const Runtime &runtime, uint64_t address) {
    return address_of(runtime, address);
}

} // namespace tops_sim

using namespace tops_sim;

namespace {

// The memory at a pointer: an allocation of a device, or host memory.
struct Found {
    const sim::Allocation *allocation = nullptr;
    const DeviceState *device = nullptr;
    const sim::HostRange *host = nullptr;
};

Found find(Call &call, uint64_t pointer) {
    Found found;
    found.allocation = call.device->device.memory.find(pointer);
    found.device = found.allocation == nullptr ? nullptr : call.device;
    found.host = call.runtime.host_memory.find(pointer);
    return found;
}

topsError_t answer(Call &call, void *data, topsPointer_attribute attribute, uint64_t pointer) {
    const Found found = find(call, pointer);
    if (found.allocation == nullptr && found.host == nullptr) {
        return refuse(topsErrorInvalidValue, "the pointer is not of the current device");
    }
    const bool on_device = found.allocation != nullptr;
    const auto put = [&](auto value) {
        const uint64_t wide = static_cast<uint64_t>(value);
        const size_t bytes = call.runtime.readings.wide_attributes ? sizeof wide : sizeof value;
        std::memcpy(data, &wide, bytes);
        return topsSuccess;
    };
    switch (attribute) {
    case TOPS_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put(static_cast<int>(on_device ? topsMemoryTypeDevice : topsMemoryTypeHost));
    case TOPS_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put(on_device ? address_of(call.runtime, pointer) : pointer);
    case TOPS_POINTER_ATTRIBUTE_HOST_POINTER:
        return on_device ? topsErrorInvalidValue : put(pointer);
    case TOPS_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put(on_device ? found.device->device.ordinal : 0);
    case TOPS_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put(on_device ? found.allocation->address : found.host->address);
    case TOPS_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put(on_device ? found.allocation->bytes : found.host->bytes);
    default:
        return topsErrorNotSupported;
    }
}

} // namespace

topsError_t topsPointerGetAttribute(void *data, topsPointer_attribute attribute,
                                    topsDeviceptr_t ptr) {
    return on_device(__func__, [&](Call &call) {
        return data == nullptr ? topsErrorInvalidValue
                               : answer(call, data, attribute, reinterpret_cast<uint64_t>(ptr));
    });
}

topsError_t topsPointerGetAttributes(topsPointerAttribute_t *attributes, const void *ptr) {
    return on_device(__func__, [&](Call &call) {
        const uint64_t pointer = reinterpret_cast<uint64_t>(ptr);
        const Found found = find(call, pointer);
        if (attributes == nullptr || (found.allocation == nullptr && found.host == nullptr)) {
            return topsErrorInvalidValue;
        }
        const bool device = found.allocation != nullptr;
        std::memset(attributes, 0, sizeof *attributes);
        attributes->memoryType = device ? topsMemoryTypeDevice : topsMemoryTypeHost;
        attributes->device = device ? found.device->device.ordinal : 0;
        attributes->device_pointer =
            reinterpret_cast<void *>(device ? address_of(call.runtime, pointer) : pointer);
        attributes->host_pointer = device ? nullptr : const_cast<void *>(ptr);
        attributes->allocationFlags = device ? 0 : found.host->flags;
        return topsSuccess;
    });
}
