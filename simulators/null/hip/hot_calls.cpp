// The functions of libamdhip64 that launch kernels, for a device that does nothing: launches are
// counted and their arguments added up. Handles have no objects.
#include "hip.h"

#include "../counting.h"

namespace {

// Next fake address: nothing reads or writes memory at these addresses.
uint64_t next_address = uint64_t{1} << 45;
constexpr uint64_t alignment = 512;

void *next_handle() {
    next_address += alignment;
    return reinterpret_cast<void *>(next_address);
}

} // namespace

hipError_t hipInit(unsigned) {
    return hipSuccess;
}

hipError_t hipMalloc(void **pointer, size_t bytes) {
    *pointer = next_handle();
    next_address += (bytes + alignment - 1) & ~(alignment - 1);
    null_driver::counts.allocations += 1;
    return hipSuccess;
}

hipError_t hipFree(void *) {
    null_driver::counts.frees += 1;
    return hipSuccess;
}

hipError_t hipMemcpyHtoD(void *, const void *, size_t bytes) {
    null_driver::counts.copies += 1;
    null_driver::counts.copied_bytes += bytes;
    return hipSuccess;
}

hipError_t hipMemcpyHtoDAsync(void *destination, const void *source, size_t bytes, void *) {
    return hipMemcpyHtoD(destination, source, bytes);
}

hipError_t hipModuleLoadData(void **module, const void *) {
    *module = next_handle();
    return hipSuccess;
}

hipError_t hipModuleGetFunction(void **function, void *, const char *) {
    *function = next_handle();
    return hipSuccess;
}

hipError_t hipStreamCreate(void **stream) {
    *stream = next_handle();
    return hipSuccess;
}

hipError_t hipStreamSynchronize(void *) {
    null_driver::counts.waits += 1;
    return hipSuccess;
}

hipError_t hipEventCreate(void **event) {
    *event = next_handle();
    return hipSuccess;
}

hipError_t hipEventRecord(void *, void *) {
    null_driver::counts.records += 1;
    return hipSuccess;
}

hipError_t hipModuleLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, void *, void **parameters, void **extra) {
    if (parameters != nullptr) {
        null_driver::count_pointers(parameters);
        return hipSuccess;
    }
    // Pairs of a key and a value: the keys are small integers in place of pointers.
    for (; extra != nullptr && *extra != HIP_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER) {
            null_driver::count_packed(extra[1]);
            return hipSuccess;
        }
    }
    null_driver::counts.launches += 1;
    return hipSuccess;
}
