// Fills: a value repeated over rows of memory.
#include <algorithm>

#include "copies.h"
#include "pointers.h"

using namespace cuda_sim;

namespace {

template <class Value> void fill_rows(char *to, const CUDA_MEMSET_NODE_PARAMS_v2 &what) {
    for (size_t row = 0; row < what.height; ++row) {
        Value *const items = reinterpret_cast<Value *>(to + row * what.pitch);
        std::fill_n(items, what.width, static_cast<Value>(what.value));
    }
}

CUresult fill(const char *name, CUdeviceptr address, size_t pitch, unsigned value,
              unsigned element_size, size_t width, size_t height, CUstream stream_handle,
              bool synchronous = false) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
        if (stream == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (width == 0 || height == 0) {
            return CUDA_SUCCESS;
        }
        Operation operation;
        const CUresult result = make_fill(
            call, {address, pitch, value, element_size, width, height, nullptr}, operation);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        // A fill of device memory is asynchronous by default, although its name lacks Async.
        const bool on_host = info_of(call.driver, address, 1).kind != AddressInfo::Kind::device;
        const bool asked = on_host || is_synchronous(call.driver, address);
        const bool waits = synchronous && asked && stream->capture == nullptr;
        const CUresult queued = enqueue(call, *stream, std::move(operation));
        return queued != CUDA_SUCCESS || !waits
                   ? queued
                   : wait_for(call, {{stream->queue, stream->queue->submitted}});
    });
}

} // namespace

CUresult cuda_sim::make_fill(Call &call, const CUDA_MEMSET_NODE_PARAMS_v2 &what,
                             Operation &operation) {
    const uint64_t size = what.elementSize;
    if (what.width == 0 || what.height == 0 || (size != 1 && size != 2 && size != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (what.dst % size != 0 || what.pitch % size != 0) {
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "the address is not a multiple of the value's size");
    }
    const uint64_t bytes = what.width * size;
    if (what.width > UINT64_MAX / size || (what.height > 1 && what.pitch < bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t covered = what.pitch * (what.height - 1) + bytes;
    const AddressInfo info = info_of(call.driver, what.dst, covered);
    if (what.dst == 0 || info.kind == AddressInfo::Kind::invalid ||
        info.kind == AddressInfo::Kind::pageable) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "an address is not in one allocation");
    }
    DeviceState &device = *call.device;
    operation.type = CU_GRAPH_NODE_TYPE_MEMSET;
    operation.work = [what, covered, info, size, &device] {
        Driver &driver = Driver::get();
        const sim::Lock lock(driver.scheduler.mutex);
        char *const to = view_of(driver, what.dst, covered, info.kind);
        if (to == nullptr) {
            device.device.fault_text = "a fill reached memory that is gone";
            return sim::Status::illegal_address;
        }
        if (size == 1) {
            fill_rows<uint8_t>(to, what);
        } else if (size == 2) {
            fill_rows<uint16_t>(to, what);
        } else {
            fill_rows<uint32_t>(to, what);
        }
        return sim::Status::ok;
    };
    operation.details = std::make_shared<NodeDetails>();
    operation.details->parameters.type = CU_GRAPH_NODE_TYPE_MEMSET;
    operation.details->parameters.memset = what;
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return fill(__func__, dstDevice, 0, uc, 1, N, 1, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    return fill(__func__, dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return fill(__func__, dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
    return fill(__func__, dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
    return fill(__func__, dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
    return fill(__func__, dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return fill(__func__, dstDevice, 0, uc, 1, N, 1, nullptr, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return fill(__func__, dstDevice, 0, us, 2, N, 1, nullptr, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return fill(__func__, dstDevice, 0, ui, 4, N, 1, nullptr, true);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
    return fill(__func__, dstDevice, dstPitch, uc, 1, Width, Height, nullptr, true);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
    return fill(__func__, dstDevice, dstPitch, us, 2, Width, Height, nullptr, true);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
    return fill(__func__, dstDevice, dstPitch, ui, 4, Width, Height, nullptr, true);
}
