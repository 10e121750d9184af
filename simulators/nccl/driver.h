// The driver's functions that the simulated NCCL calls, found in the process's `libcuda.so.1`.
#pragma once

#include "../cuda/wider_abi.h"

namespace nccl_sim {

struct CudaDriver {
    decltype(&::cuCtxGetDevice) ctx_get_device;
    decltype(&::cuCtxPushCurrent_v2) ctx_push;
    decltype(&::cuCtxPopCurrent_v2) ctx_pop;
    decltype(&::cuStreamGetCtx) stream_context;
    decltype(&::cuStreamIsCapturing) is_capturing;
    decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode;
    decltype(&::cuPointerGetAttribute) attribute;
    decltype(&::cuMemHostAlloc) host_alloc;
    decltype(&::cuMemFreeHost) host_free;
    decltype(&::cuMemcpyDtoHAsync_v2) to_host;
    decltype(&::cuMemcpyHtoDAsync_v2) to_device;
    decltype(&::cuLaunchHostFunc) call_host;
    decltype(&::cuStreamWaitValue32) wait_value;

    // Returns null if the process has no driver with all of these functions.
    static const CudaDriver *get();
};

} // namespace nccl_sim
