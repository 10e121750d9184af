// Memory shared with other processes. A handle names the owner's process and its memory file.
#include <unistd.h>

#include <cstring>

#include "operations.h"

using namespace cuda_sim;

namespace {

constexpr uint64_t magic = 0x6C61687569706331;

struct Contents {
    uint64_t magic;
    int32_t ordinal;
    int32_t reserved;
    sim::SharedRange range;
};

static_assert(sizeof(Contents) <= sizeof(CUipcMemHandle), "it travels as bytes");

} // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    return in_context(__func__, [&](Call &call) {
        DeviceState *owner = nullptr;
        Contents contents = {};
        if (pHandle == nullptr || call.driver.find_allocation(dptr, 1, &owner) == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (owner->device.memory.share(dptr, contents.range) != sim::Status::ok) {
            return refuse(CUDA_ERROR_INVALID_VALUE, "only cuMemAlloc memory can be shared");
        }
        contents.magic = magic;
        contents.ordinal = owner->device.ordinal;
        std::memset(pHandle, 0, sizeof *pHandle);
        std::memcpy(pHandle, &contents, sizeof contents);
        return CUDA_SUCCESS;
    });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return in_context(__func__, [&](Call &call) {
        Contents contents;
        std::memcpy(&contents, &handle, sizeof contents);
        if (pdptr == nullptr || Flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
            contents.magic != magic) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (contents.range.process == getpid()) {
            return refuse(CUDA_ERROR_INVALID_CONTEXT, "a process cannot open its own handle");
        }
        DeviceState *device = call.driver.device(contents.ordinal);
        uint64_t address = 0;
        if (device == nullptr ||
            device->device.memory.import(contents.range, address) != sim::Status::ok) {
            return CUDA_ERROR_MAP_FAILED;
        }
        *pdptr = address;
        return CUDA_SUCCESS;
    });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    return in_context(__func__, [&](Call &call) {
        DeviceState *owner = nullptr;
        const sim::Allocation *allocation = call.driver.find_allocation(dptr, 1, &owner);
        if (allocation == nullptr || !allocation->imported) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        call.driver.scheduler.wait(call.lock, call.driver.scheduler.pending(owner->device));
        owner->device.memory.release(dptr);
        return CUDA_SUCCESS;
    });
}
