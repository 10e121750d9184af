// Copies and fills.
//
// Pageable sources are read during the call, as the manual promises, and everything else when the
// stream gets there: memory that is changed or freed too early shows.
#include <cstring>

#include "operations.h"
#include "pointers.h"

using namespace cuda_sim;

namespace {

// One side of a copy of `height` rows; a plain copy has one.
struct Side {
    uint64_t address = 0;
    uint64_t pitch = 0;
    Place place = {Place::Kind::invalid, nullptr};
    std::shared_ptr<std::vector<char>> staged; // rows without gaps, when already read
};

struct Extent {
    uint64_t width; // bytes
    uint64_t height;
};

uint64_t covered(const Side &side, const Extent &extent) {
    return side.pitch * (extent.height - 1) + extent.width;
}

bool locate(Driver &driver, Side &side, const Extent &extent) {
    side.place = place_of(driver, side.address, covered(side, extent));
    return side.place.kind != Place::Kind::invalid && side.address != 0 &&
           (extent.height == 1 || side.pitch >= extent.width);
}

bool is_host(const Side &side) {
    return side.place.kind != Place::Kind::device;
}

void copy_rows(char *destination, uint64_t destination_pitch, const char *source,
               uint64_t source_pitch, const Extent &extent) {
    for (uint64_t row = 0; row < extent.height; ++row) {
        std::memmove(destination + row * destination_pitch, source + row * source_pitch,
                     extent.width);
    }
}

std::shared_ptr<std::vector<char>> read_now(const Side &side, const Extent &extent) {
    const auto rows = std::make_shared<std::vector<char>>(extent.width * extent.height);
    copy_rows(rows->data(), extent.width, reinterpret_cast<const char *>(side.address), side.pitch,
              extent);
    return rows;
}

std::function<sim::Status()> copy_work(Side destination, Side source, Extent extent,
                                       DeviceState &device) {
    return [=, &device] {
        Driver &driver = Driver::get();
        char *to = nullptr;
        const char *from = nullptr;
        {
            const sim::Lock lock(driver.scheduler.mutex);
            to = view_of(driver, destination.address, covered(destination, extent),
                         destination.place.kind);
            from = source.staged != nullptr ? source.staged->data()
                                            : view_of(driver, source.address,
                                                      covered(source, extent), source.place.kind);
        }
        const uint64_t from_pitch = source.staged != nullptr ? extent.width : source.pitch;
        sim::Status status = sim::Status::illegal_address;
        if (to != nullptr && from != nullptr) {
            status = sim::run_guarded([&] {
                         copy_rows(to, destination.pitch, from, from_pitch, extent);
                     }).status;
        }
        if (status != sim::Status::ok) {
            const sim::Lock lock(driver.scheduler.mutex);
            device.device.fault_text = "a copy reached memory that is gone";
        }
        return status;
    };
}

CUresult copy(Call &call, const std::shared_ptr<Stream> &stream, Side destination, Side source,
              Extent extent, bool synchronous) {
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (synchronous) {
        const CUresult unsafe = check_capture_unsafe(call);
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
    }
    if (extent.width == 0 || extent.height == 0) {
        return CUDA_SUCCESS;
    }
    if (!locate(call.driver, destination, extent) || !locate(call.driver, source, extent)) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "an address is not in one allocation");
    }
    const bool capturing = stream->capture != nullptr;
    const bool pageable_source = source.place.kind == Place::Kind::pageable;
    if (pageable_source && !capturing) {
        if (synchronous) {
            const CUresult earlier = wait_for(call, ends_of(*stream));
            if (earlier != CUDA_SUCCESS) {
                return earlier;
            }
        }
        source.staged = read_now(source, extent);
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    operation.work = copy_work(destination, source, extent, *call.device);
    const CUresult result = enqueue(call, *stream, std::move(operation));
    const bool into_pageable = destination.place.kind == Place::Kind::pageable;
    const bool from_pinned = source.place.kind == Place::Kind::pinned;
    const bool waits = into_pageable || (synchronous && (is_host(destination) || from_pinned));
    if (result != CUDA_SUCCESS || capturing || !waits) {
        return result;
    }
    return wait_for(call, {{stream->queue, stream->queue->submitted}});
}

Side device_side(uint64_t address, uint64_t pitch = 0) {
    Side side;
    side.address = address;
    side.pitch = pitch;
    return side;
}

Side host_side(const void *pointer, uint64_t pitch = 0) {
    return device_side(reinterpret_cast<uint64_t>(pointer), pitch);
}

// The sides a call names as device memory must be that, or page-locked memory mapped there.
CUresult check_device(Call &call, uint64_t address) {
    const Place place = place_of(call.driver, address, 1);
    const bool fits = place.kind == Place::Kind::device || place.kind == Place::Kind::pinned;
    return fits ? CUDA_SUCCESS : refuse(CUDA_ERROR_INVALID_VALUE, "an address is not on a device");
}

CUresult linear(const char *name, CUstream stream, bool synchronous, Side destination,
                bool destination_on_device, Side source, bool source_on_device, size_t bytes) {
    return in_context(name, [&](Call &call) {
        CUresult result = CUDA_SUCCESS;
        if (bytes != 0 && destination_on_device) {
            result = check_device(call, destination.address);
        }
        if (bytes != 0 && source_on_device && result == CUDA_SUCCESS) {
            result = check_device(call, source.address);
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        return copy(call, stream_of(call, stream), destination, source, {bytes, 1}, synchronous);
    });
}

bool side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
             size_t pitch, size_t width, Side &side) {
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE &&
        type != CU_MEMORYTYPE_UNIFIED) {
        return false;
    }
    side.pitch = pitch == 0 ? x + width : pitch;
    const uint64_t start = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
    side.address = start + y * side.pitch + x;
    return true;
}

CUresult rectangle(const char *name, const CUDA_MEMCPY2D *copied, CUstream stream,
                   bool synchronous) {
    return in_context(name, [&](Call &call) {
        Side source;
        Side destination;
        if (copied == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUDA_MEMCPY2D &what = *copied;
        const bool known =
            side_of(what.srcMemoryType, what.srcHost, what.srcDevice, what.srcXInBytes, what.srcY,
                    what.srcPitch, what.WidthInBytes, source) &&
            side_of(what.dstMemoryType, what.dstHost, what.dstDevice, what.dstXInBytes, what.dstY,
                    what.dstPitch, what.WidthInBytes, destination);
        if (!known) {
            return refuse(CUDA_ERROR_NOT_SUPPORTED, "arrays are not simulated");
        }
        return copy(call, stream_of(call, stream), destination, source,
                    {what.WidthInBytes, what.Height}, synchronous);
    });
}

// Fills `extent` elements of the value's size. Of its pitch only complete elements are usable.
template <class Value>
CUresult fill(const char *name, CUdeviceptr address, size_t pitch, Value value, size_t width,
              size_t height, CUstream stream_handle, bool synchronous = false) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
        if (stream == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (width == 0 || height == 0) {
            return CUDA_SUCCESS;
        }
        const Extent extent = {width * sizeof value, height};
        Side destination = device_side(address, pitch);
        const bool overflow = width > UINT64_MAX / sizeof value;
        if (overflow || address % sizeof value != 0 || pitch % sizeof value != 0 ||
            !locate(call.driver, destination, extent) ||
            destination.place.kind == Place::Kind::pageable) {
            return refuse(CUDA_ERROR_INVALID_VALUE, "an address is not in one allocation");
        }
        DeviceState &device = *call.device;
        Operation operation;
        operation.type = CU_GRAPH_NODE_TYPE_MEMSET;
        operation.work = [=, &device] {
            Driver &driver = Driver::get();
            const sim::Lock lock(driver.scheduler.mutex);
            char *to = view_of(driver, destination.address, covered(destination, extent),
                               destination.place.kind);
            if (to == nullptr) {
                device.device.fault_text = "a fill reached memory that is gone";
                return sim::Status::illegal_address;
            }
            for (size_t row = 0; row < height; ++row) {
                Value *items = reinterpret_cast<Value *>(to + row * pitch);
                std::fill_n(items, width, value);
            }
            return sim::Status::ok;
        };
        const CUresult result = enqueue(call, *stream, std::move(operation));
        // On the device a fill never waits, whatever its name says.
        const bool waits = synchronous && is_host(destination) && stream->capture == nullptr;
        return result != CUDA_SUCCESS || !waits
                   ? result
                   : wait_for(call, {{stream->queue, stream->queue->submitted}});
    });
}

} // namespace

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
    return linear(__func__, hStream, false, device_side(dstDevice), true, host_side(srcHost), false,
                  ByteCount);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
    return linear(__func__, hStream, false, host_side(dstHost), false, device_side(srcDevice), true,
                  ByteCount);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
    return linear(__func__, hStream, false, device_side(dstDevice), true, device_side(srcDevice),
                  true, ByteCount);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return linear(__func__, hStream, false, device_side(dst), false, device_side(src), false,
                  ByteCount);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    {
        Driver &driver = Driver::get();
        const sim::Lock lock(driver.scheduler.mutex);
        if (driver.contexts.find(dstContext) == nullptr ||
            driver.contexts.find(srcContext) == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
    }
    return linear(__func__, hStream, false, device_side(dstDevice), true, device_side(srcDevice),
                  true, ByteCount);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    return linear(__func__, nullptr, true, device_side(dstDevice), true, host_side(srcHost), false,
                  ByteCount);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return linear(__func__, nullptr, true, host_side(dstHost), false, device_side(srcDevice), true,
                  ByteCount);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return linear(__func__, nullptr, true, device_side(dstDevice), true, device_side(srcDevice),
                  true, ByteCount);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return linear(__func__, nullptr, true, device_side(dst), false, device_side(src), false,
                  ByteCount);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
    return cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, nullptr);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    return rectangle(__func__, pCopy, hStream, false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) {
    return rectangle(__func__, pCopy, nullptr, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) {
    return rectangle(__func__, pCopy, nullptr, true);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return fill(__func__, dstDevice, 0, uc, N, 1, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    return fill(__func__, dstDevice, 0, us, N, 1, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return fill(__func__, dstDevice, 0, ui, N, 1, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
    return fill(__func__, dstDevice, dstPitch, uc, Width, Height, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
    return fill(__func__, dstDevice, dstPitch, us, Width, Height, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
    return fill(__func__, dstDevice, dstPitch, ui, Width, Height, hStream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return fill(__func__, dstDevice, 0, uc, N, 1, nullptr, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return fill(__func__, dstDevice, 0, us, N, 1, nullptr, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return fill(__func__, dstDevice, 0, ui, N, 1, nullptr, true);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
    return fill(__func__, dstDevice, dstPitch, uc, Width, Height, nullptr, true);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
    return fill(__func__, dstDevice, dstPitch, us, Width, Height, nullptr, true);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
    return fill(__func__, dstDevice, dstPitch, ui, Width, Height, nullptr, true);
}
