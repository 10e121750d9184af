// Memory of other devices and of other processes.
#include <cstring>

#include "call.h"

using namespace tops_sim;

namespace {

// The value of topsDeviceCanAccessPeer: a link through a PCIe switch. It is a bit field, not a
// truth value.
constexpr int through_a_switch = 1 << 8;

static_assert(sizeof(sim::SharedRange) <= sizeof(topsIpcMemHandle_t));

} // namespace

topsError_t topsDeviceCanAccessPeer(int *canAccess, int deviceId, int peerDeviceId) {
    return in_process(__func__, [&](Call &call) {
        const DeviceState *device = call.runtime.device(deviceId);
        const DeviceState *peer = call.runtime.device(peerDeviceId);
        if (canAccess == nullptr || device == nullptr || peer == nullptr) {
            return topsErrorInvalidValue;
        }
        *canAccess = device == peer ? 0 : through_a_switch;
        return topsSuccess;
    });
}

topsError_t topsDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags) {
    return on_device(__func__, [&](Call &call) {
        const DeviceState *peer = call.runtime.device(peerDeviceId);
        if (peer == nullptr || peer == call.device || flags != 0) {
            return topsErrorInvalidValue;
        }
        const bool first = call.device->device.peers.insert(&peer->device).second;
        return first ? topsSuccess : topsErrorPeerAccessAlreadyEnabled;
    });
}

topsError_t topsIpcGetMemHandle(topsIpcMemHandle_t *handle, void *devPtr) {
    return on_device(__func__, [&](Call &call) {
        sim::SharedRange range;
        const uint64_t pointer = reinterpret_cast<uint64_t>(devPtr);
        const sim::DeviceMemory &memory = call.device->device.memory;
        if (handle == nullptr || memory.share(pointer, range) != sim::Status::ok) {
            return topsErrorInvalidHandle;
        }
        std::memset(handle, 0, sizeof *handle);
        std::memcpy(handle, &range, sizeof range);
        return topsSuccess;
    });
}

topsError_t topsIpcOpenMemHandle(void **devPtr, topsIpcMemHandle_t handle, unsigned int flags) {
    return on_device(__func__, [&](Call &call) {
        sim::SharedRange range;
        std::memcpy(&range, &handle, sizeof range);
        uint64_t pointer = 0;
        if (devPtr == nullptr || flags != 0) {
            return topsErrorInvalidValue;
        }
        if (call.device->device.memory.import(range, pointer) != sim::Status::ok) {
            return topsErrorMapFailed;
        }
        *devPtr = reinterpret_cast<void *>(pointer);
        return topsSuccess;
    });
}

topsError_t topsIpcCloseMemHandle(void *devPtr) {
    return on_device(__func__, [&](Call &call) {
        const uint64_t pointer = reinterpret_cast<uint64_t>(devPtr);
        sim::DeviceMemory &memory = call.device->device.memory;
        const sim::Allocation *allocation = memory.find(pointer);
        if (allocation == nullptr || !allocation->imported) {
            return topsErrorInvalidHandle;
        }
        memory.release(allocation->address);
        return topsSuccess;
    });
}

topsError_t topsIpcGetEventHandle(topsIpcEventHandle_t *, topsEvent_t) {
    return in_process(__func__, [](Call &) {
        return refuse(topsErrorNotSupported, "events of other processes are not simulated");
    });
}

topsError_t topsIpcOpenEventHandle(topsEvent_t *, topsIpcEventHandle_t) {
    return in_process(__func__, [](Call &) {
        return refuse(topsErrorNotSupported, "events of other processes are not simulated");
    });
}
