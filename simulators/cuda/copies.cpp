// Copies.
//
// Pageable sources are read during the call, as the manual promises, and all other memory when the
// stream reaches the copy. Thus, a program that changes or frees memory too early gets a wrong
// result or a fault.
#include "copies.h"
#include "copy_work.h"

using namespace cuda_sim;

namespace {

// Parameters that a query of the copy's node returns.
std::shared_ptr<NodeDetails> details_of(const Side &destination, const Side &source,
                                        const Extent &extent) {
    const auto details = std::make_shared<NodeDetails>();
    details->parameters.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    CUDA_MEMCPY3D &copy = details->parameters.memcpy.copyParams;
    copy.srcMemoryType = is_host(source) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = is_host(source) ? reinterpret_cast<const void *>(source.address) : nullptr;
    copy.srcDevice = is_host(source) ? 0 : source.address;
    copy.srcPitch = source.pitch;
    copy.srcHeight = extent.height;
    copy.dstMemoryType = is_host(destination) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstHost = is_host(destination) ? reinterpret_cast<void *>(destination.address) : nullptr;
    copy.dstDevice = is_host(destination) ? 0 : destination.address;
    copy.dstPitch = destination.pitch;
    copy.dstHeight = extent.height;
    copy.WidthInBytes = extent.width;
    copy.Height = extent.height;
    copy.Depth = extent.depth;
    return details;
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
    if (extent.empty()) {
        return CUDA_SUCCESS;
    }
    if (!locate(call.driver, destination, extent) || !locate(call.driver, source, extent)) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "an address is not in one allocation");
    }
    const bool capturing = stream->capture != nullptr;
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    if (capturing) {
        operation.details = details_of(destination, source, extent);
    } else if (source.info.kind == AddressInfo::Kind::pageable) {
        if (synchronous) {
            const CUresult earlier = wait_for(call, ends_of(*stream));
            if (earlier != CUDA_SUCCESS) {
                return earlier;
            }
        }
        read_now(source, extent);
    }
    operation.work = copy_work(destination, source, extent, *call.device);
    const CUresult result = enqueue(call, *stream, std::move(operation));
    const bool into_pageable = destination.info.kind == AddressInfo::Kind::pageable;
    const bool from_pinned = source.info.kind == AddressInfo::Kind::pinned;
    const bool asked = is_synchronous(call.driver, destination.address) ||
                       is_synchronous(call.driver, source.address);
    const bool waits =
        into_pageable || (synchronous && (is_host(destination) || from_pinned || asked));
    if (result != CUDA_SUCCESS || capturing || !waits) {
        return result;
    }
    return wait_for(call, {{stream->queue, stream->queue->submitted}});
}

// Checks an address that the call names as device memory. Mapped page-locked memory passes too.
CUresult check_device(Call &call, uint64_t address) {
    const AddressInfo info = info_of(call.driver, address, 1);
    const bool fits =
        info.kind == AddressInfo::Kind::device || info.kind == AddressInfo::Kind::pinned;
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
        return copy(call, stream_of(call, stream), destination, source, {bytes}, synchronous);
    });
}

bool side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t z,
             size_t pitch, size_t rows, const Extent &extent, Side &side) {
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE &&
        type != CU_MEMORYTYPE_UNIFIED) {
        return false;
    }
    side.pitch = pitch == 0 ? x + extent.width : pitch;
    side.slice = side.pitch * (rows == 0 ? y + extent.height : rows);
    const uint64_t start = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
    side.address = start + z * side.slice + y * side.pitch + x;
    return true;
}

CUresult sides_of(const CUDA_MEMCPY3D &what, Side &destination, Side &source, Extent &extent) {
    extent = {what.WidthInBytes, what.Height, what.Depth};
    const bool known =
        side_of(what.srcMemoryType, what.srcHost, what.srcDevice, what.srcXInBytes, what.srcY,
                what.srcZ, what.srcPitch, what.srcHeight, extent, source) &&
        side_of(what.dstMemoryType, what.dstHost, what.dstDevice, what.dstXInBytes, what.dstY,
                what.dstZ, what.dstPitch, what.dstHeight, extent, destination);
    return known ? CUDA_SUCCESS : refuse(CUDA_ERROR_NOT_SUPPORTED, "arrays are not simulated");
}

CUresult box(const char *name, const CUDA_MEMCPY3D *what, CUstream stream, bool synchronous) {
    return in_context(name, [&](Call &call) {
        Side source;
        Side destination;
        Extent extent = {0};
        if (what == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult known = sides_of(*what, destination, source, extent);
        return known != CUDA_SUCCESS
                   ? known
                   : copy(call, stream_of(call, stream), destination, source, extent, synchronous);
    });
}

CUresult rectangle(const char *name, const CUDA_MEMCPY2D *what, CUstream stream, bool synchronous) {
    if (what == nullptr) {
        return box(name, nullptr, stream, synchronous);
    }
    CUDA_MEMCPY3D all = {};
    all.srcXInBytes = what->srcXInBytes;
    all.srcY = what->srcY;
    all.srcMemoryType = what->srcMemoryType;
    all.srcHost = what->srcHost;
    all.srcDevice = what->srcDevice;
    all.srcPitch = what->srcPitch;
    all.dstXInBytes = what->dstXInBytes;
    all.dstY = what->dstY;
    all.dstMemoryType = what->dstMemoryType;
    all.dstHost = what->dstHost;
    all.dstDevice = what->dstDevice;
    all.dstPitch = what->dstPitch;
    all.WidthInBytes = what->WidthInBytes;
    all.Height = what->Height;
    all.Depth = 1;
    return box(name, &all, stream, synchronous);
}

CUresult between_contexts(const char *name, const CUDA_MEMCPY3D_PEER *what, CUstream stream,
                          bool synchronous) {
    if (what != nullptr) {
        Driver &driver = Driver::get();
        const sim::Lock lock(driver.scheduler.mutex);
        // This form of the structure has contexts where the other form has reserved fields.
        if (driver.contexts.find(static_cast<CUcontext>(what->reserved0)) == nullptr ||
            driver.contexts.find(static_cast<CUcontext>(what->reserved1)) == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
    }
    return box(name, what, stream, synchronous);
}

} // namespace

CUresult cuda_sim::make_copy(Call &call, const CUDA_MEMCPY3D &what, Operation &operation) {
    Side source;
    Side destination;
    Extent extent = {0};
    const CUresult known = sides_of(what, destination, source, extent);
    if (known != CUDA_SUCCESS) {
        return known;
    }
    if (extent.empty() || !locate(call.driver, destination, extent) ||
        !locate(call.driver, source, extent)) {
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "the copy is empty or an address is not in one allocation");
    }
    operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    operation.work = copy_work(destination, source, extent, *call.device);
    operation.details = std::make_shared<NodeDetails>();
    operation.details->parameters.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    operation.details->parameters.memcpy.copyParams = what;
    return CUDA_SUCCESS;
}

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

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    return box(__func__, pCopy, hStream, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy) {
    return box(__func__, pCopy, nullptr, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream) {
    return between_contexts(__func__, pCopy, hStream, false);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy) {
    return between_contexts(__func__, pCopy, nullptr, true);
}
