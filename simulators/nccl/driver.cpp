#include "driver.h"

#include <dlfcn.h>

namespace nccl_sim {

namespace {

template <class Function> bool find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool open(CudaDriver &driver) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    library = library != nullptr ? library : dlopen("libcuda.so.1", RTLD_NOW);
    return library != nullptr && find(library, "cuCtxGetDevice", driver.ctx_get_device) &&
           find(library, "cuCtxPushCurrent_v2", driver.ctx_push) &&
           find(library, "cuCtxPopCurrent_v2", driver.ctx_pop) &&
           find(library, "cuStreamGetCtx", driver.stream_context) &&
           find(library, "cuStreamIsCapturing", driver.is_capturing) &&
           find(library, "cuThreadExchangeStreamCaptureMode", driver.exchange_capture_mode) &&
           find(library, "cuPointerGetAttribute", driver.attribute) &&
           find(library, "cuMemHostAlloc", driver.host_alloc) &&
           find(library, "cuMemFreeHost", driver.host_free) &&
           find(library, "cuMemcpyDtoHAsync_v2", driver.to_host) &&
           find(library, "cuMemcpyHtoDAsync_v2", driver.to_device) &&
           find(library, "cuLaunchHostFunc", driver.call_host) &&
           find(library, "cuStreamWaitValue32", driver.wait_value);
}

} // namespace

const CudaDriver *CudaDriver::get() {
    static CudaDriver driver = {};
    static const bool found = open(driver);
    return found ? &driver : nullptr;
}

} // namespace nccl_sim
