// The calls of a launch loop on a GCU that does nothing: they count, and add up their arguments.
// These functions are linked before the simulated runtime and replace its functions. All other
// functions are the simulated runtime's.
#include "../../tops/call.h"
#include "../counting.h"

using null_driver::counts;

namespace {

// First of the fake addresses: nothing reads or writes memory at these addresses.
constexpr uint64_t first_address = uint64_t{1} << 45;
constexpr uint64_t address_mask = (uint64_t{1} << 40) - 1;
constexpr uint64_t alignment = 512;

uint64_t next_address = 0;

topsError_t copy(size_t bytes) {
    counts.copies += 1;
    counts.copied_bytes += bytes;
    return topsSuccess;
}

} // namespace

// -- launches ------------------------------------------------------------------------------------

topsError_t topsModuleLaunchKernel(topsFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, topsStream_t, void **kernelParams, void **) {
    null_driver::count_pointers(kernelParams);
    return topsSuccess;
}

// -- the current device --------------------------------------------------------------------------

topsError_t topsGetDevice(int *deviceId) {
    *deviceId = tops_sim::current_device();
    return topsSuccess;
}

topsError_t topsSetDevice(int deviceId) {
    tops_sim::current_device() = deviceId;
    return topsSuccess;
}

// -- memory --------------------------------------------------------------------------------------

topsError_t topsMalloc(void **ptr, size_t size) {
    *ptr = reinterpret_cast<void *>(first_address + (next_address & address_mask));
    next_address += (size + alignment - 1) & ~(alignment - 1);
    counts.allocations += 1;
    return topsSuccess;
}

topsError_t topsFree(void *) {
    counts.frees += 1;
    return topsSuccess;
}

topsError_t topsMemcpyHtoD(topsDeviceptr_t, void *, size_t sizeBytes) {
    return copy(sizeBytes);
}

topsError_t topsMemcpyHtoDAsync(topsDeviceptr_t, void *, size_t sizeBytes, topsStream_t) {
    return copy(sizeBytes);
}

// -- streams and events --------------------------------------------------------------------------

topsError_t topsStreamSynchronize(topsStream_t) {
    counts.waits += 1;
    return topsSuccess;
}

topsError_t topsStreamQuery(topsStream_t) {
    return topsSuccess;
}

topsError_t topsEventRecord(topsEvent_t, topsStream_t) {
    counts.records += 1;
    return topsSuccess;
}

topsError_t topsEventQuery(topsEvent_t) {
    return topsSuccess;
}

topsError_t topsEventSynchronize(topsEvent_t) {
    return topsSuccess;
}
