// The calls of a launch loop, as cheap as a library can make them: they count, and add up their
// arguments. These functions are linked before the simulated driver and replace its functions, so
// that a benchmark measures only the caller's side. All other functions are the simulated
// driver's.
#include <atomic>

#include "../../cuda/call.h"
#include "../counting.h"

using null_driver::counts;

namespace {

using Relaxed = std::atomic<uint64_t>;

// First of the fake addresses: nothing reads or writes memory at these addresses.
constexpr uint64_t first_address = uint64_t{1} << 45;
constexpr uint64_t address_mask = (uint64_t{1} << 40) - 1;
constexpr uint64_t alignment = 512;

Relaxed next_address{0};

void add(uint64_t &counter, uint64_t amount) {
    counter += amount;
}

// Parameter block in `extra`, for a launch that passes no pointers to single parameters.
const char *packed_parameters(void **extra) {
    constexpr uintptr_t end = CU_LAUNCH_PARAM_END_AS_INT;
    constexpr uintptr_t pointer = CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT;
    const auto key = [&] { return reinterpret_cast<uintptr_t>(*extra); };
    while (key() != end && key() != pointer) {
        extra += 2;
    }
    return static_cast<const char *>(extra[1]);
}

CUresult count_launch(void **parameters, void **extra) {
    if (parameters == nullptr && extra != nullptr) {
        null_driver::count_packed(packed_parameters(extra));
    } else if (parameters != nullptr) {
        null_driver::count_pointers(parameters);
    } else {
        add(counts.launches, 1);
    }
    return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr *address, size_t bytes) {
    const uint64_t step = (bytes + alignment - 1) & ~(alignment - 1);
    *address =
        first_address + (next_address.fetch_add(step, std::memory_order_relaxed) & address_mask);
    add(counts.allocations, 1);
    return CUDA_SUCCESS;
}

CUresult release() {
    add(counts.frees, 1);
    return CUDA_SUCCESS;
}

CUresult copy(size_t bytes) {
    add(counts.copies, 1);
    add(counts.copied_bytes, bytes);
    return CUDA_SUCCESS;
}

} // namespace

// -- launches ------------------------------------------------------------------------------------

CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void **kernelParams, void **extra) {
    return count_launch(kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *, CUfunction, void **kernelParams, void **extra) {
    return count_launch(kernelParams, extra);
}

// Counts one launch. Nothing is recorded here, so graphs are empty.
CUresult cuGraphLaunch(CUgraphExec, CUstream) {
    add(counts.launches, 1);
    return CUDA_SUCCESS;
}

// -- the current context -------------------------------------------------------------------------

CUresult cuCtxGetCurrent(CUcontext *pctx) {
    // Found once per thread, because access to a thread-local object with a constructor is slow.
    static thread_local const std::vector<CUcontext> *found
        __attribute__((tls_model("initial-exec"))) = nullptr;
    if (found == nullptr) {
        found = &cuda_sim::context_stack();
    }
    *pctx = found->empty() ? nullptr : found->back();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
    std::vector<CUcontext> &stack = cuda_sim::context_stack();
    if (stack.empty()) {
        stack.push_back(ctx);
    } else {
        stack.back() = ctx;
    }
    return CUDA_SUCCESS;
}

// -- memory --------------------------------------------------------------------------------------

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    return allocate(dptr, bytesize);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream) {
    return allocate(dptr, bytesize);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool, CUstream) {
    return allocate(dptr, bytesize);
}

CUresult cuMemFree_v2(CUdeviceptr) {
    return release();
}

CUresult cuMemFreeAsync(CUdeviceptr, CUstream) {
    return release();
}

// Libraries call this for every pointer they are given, to find its device address.
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *static_cast<CUdeviceptr *>(data) = ptr;
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t ByteCount) {
    return copy(ByteCount);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t ByteCount, CUstream) {
    return copy(ByteCount);
}

CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t ByteCount) {
    return copy(ByteCount);
}

CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t ByteCount, CUstream) {
    return copy(ByteCount);
}

CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t ByteCount, CUstream) {
    return copy(ByteCount);
}

// -- streams and events --------------------------------------------------------------------------

CUresult cuStreamSynchronize(CUstream) {
    add(counts.waits, 1);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream) {
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent, CUstream) {
    add(counts.records, 1);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned) {
    add(counts.records, 1);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent) {
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent) {
    return CUDA_SUCCESS;
}
