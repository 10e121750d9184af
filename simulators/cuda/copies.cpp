// Copies.
//
// Pageable sources are read during the call, as the manual promises, and everything else when the
// stream gets there: memory that is changed or freed too early shows.
#include <algorithm>
#include <cstring>

#include "copies.h"
#include "pointers.h"

using namespace cuda_sim;

namespace {

// One side of a copy: rows, and slices of them.
struct Side {
    uint64_t address = 0;
    uint64_t pitch = 0; // bytes from one row to the next
    uint64_t slice = 0; // and from one slice to the next
    Place place = {Place::Kind::invalid, nullptr};
    std::shared_ptr<std::vector<char>> staged; // rows without gaps, when already read
};

struct Extent {
    uint64_t width; // bytes
    uint64_t height = 1;
    uint64_t depth = 1;

    bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

uint64_t covered(const Side &side, const Extent &extent) {
    return side.slice * (extent.depth - 1) + side.pitch * (extent.height - 1) + extent.width;
}

bool locate(Driver &driver, Side &side, const Extent &extent) {
    side.place = place_of(driver, side.address, covered(side, extent));
    return side.place.kind != Place::Kind::invalid && side.address != 0 &&
           (extent.height == 1 || side.pitch >= extent.width) &&
           (extent.depth == 1 || side.slice >= side.pitch * extent.height);
}

bool is_host(const Side &side) {
    return side.place.kind != Place::Kind::device;
}

void copy_rows(char *destination, const Side &to, const char *source, const Side &from,
               const Extent &extent) {
    for (uint64_t slice = 0; slice < extent.depth; ++slice) {
        for (uint64_t row = 0; row < extent.height; ++row) {
            std::memmove(destination + slice * to.slice + row * to.pitch,
                         source + slice * from.slice + row * from.pitch, extent.width);
        }
    }
}

void read_now(Side &side, const Extent &extent) {
    Side packed;
    packed.pitch = extent.width;
    packed.slice = extent.width * extent.height;
    packed.staged = std::make_shared<std::vector<char>>(packed.slice * extent.depth);
    copy_rows(packed.staged->data(), packed, reinterpret_cast<const char *>(side.address), side,
              extent);
    packed.address = side.address;
    packed.place = side.place;
    side = packed;
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
        sim::Status status = sim::Status::illegal_address;
        if (to != nullptr && from != nullptr) {
            status =
                sim::run_guarded([&] { copy_rows(to, destination, from, source, extent); }).status;
        }
        if (status != sim::Status::ok) {
            const sim::Lock lock(driver.scheduler.mutex);
            device.device.fault_text = "a copy reached memory that is gone";
        }
        return status;
    };
}

// What a query of the copy's node answers.
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

// When the source may be read: in the stream's order, before the call is back, or at any time.
enum class Reading { in_order, in_the_call, any_time };

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
    } else if (source.place.kind == Place::Kind::pageable) {
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
    const bool into_pageable = destination.place.kind == Place::Kind::pageable;
    const bool from_pinned = source.place.kind == Place::Kind::pinned;
    const bool waits = into_pageable || (synchronous && (is_host(destination) || from_pinned));
    if (result != CUDA_SUCCESS || capturing || !waits) {
        return result;
    }
    return wait_for(call, {{stream->queue, stream->queue->submitted}});
}

Side device_side(uint64_t address) {
    Side side;
    side.address = address;
    return side;
}

Side host_side(const void *pointer) {
    return device_side(reinterpret_cast<uint64_t>(pointer));
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
        return copy(call, stream_of(call, stream), destination, source, {bytes}, synchronous);
    });
}

// A copy of a batch: in the stream's order unless its source may be read before.
CUresult copy_of_batch(Call &call, Stream &stream, Side destination, Side source, Extent extent,
                       Reading reading) {
    if (!locate(call.driver, destination, extent) || !locate(call.driver, source, extent)) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "an address is not in one allocation");
    }
    const bool early = reading == Reading::in_the_call ||
                       (reading == Reading::any_time && call.driver.scheduler.choose(2) == 0);
    if (early && is_host(source)) {
        read_now(source, extent);
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    operation.work = copy_work(destination, source, extent, *call.device);
    return enqueue(call, stream, std::move(operation));
}

struct Batch {
    const CUdeviceptr *destinations;
    const CUdeviceptr *sources;
    const size_t *sizes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first; // of the copies that each of the attributes is for
    size_t attributes_count;
};

// Whether all of it can be understood; `attributes` are for copies in their order, from the first.
bool well_formed(const Batch &batch) {
    if (batch.destinations == nullptr || batch.sources == nullptr || batch.sizes == nullptr ||
        batch.count == 0 || batch.attributes == nullptr || batch.first == nullptr ||
        batch.attributes_count == 0 || batch.attributes_count > batch.count ||
        batch.first[0] != 0) {
        return false;
    }
    for (size_t index = 0; index < batch.attributes_count; ++index) {
        const CUmemcpySrcAccessOrder order = batch.attributes[index].srcAccessOrder;
        if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
            batch.first[index] >= batch.count ||
            (index != 0 && batch.first[index] <= batch.first[index - 1])) {
            return false;
        }
    }
    return std::find(batch.sizes, batch.sizes + batch.count, 0) == batch.sizes + batch.count;
}

CUresult copy_batch(const char *name, const Batch &batch, CUstream handle) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        if (stream == nullptr || stream->is_default()) {
            return refuse(CUDA_ERROR_INVALID_HANDLE, "a batch of copies needs a stream of its own");
        }
        if (!well_formed(batch)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (stream->capture != nullptr) {
            stream->capture->valid = false;
            return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                          "batches of copies inside graphs are not simulated");
        }
        std::vector<size_t> left(batch.count);
        for (size_t index = 0; index < batch.count; ++index) {
            left[index] = index;
        }
        // The copies of a batch have no order among themselves.
        while (!left.empty()) {
            const size_t place = call.driver.scheduler.choose(left.size());
            const size_t next = left[place];
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(place));
            const size_t *const kind =
                std::upper_bound(batch.first, batch.first + batch.attributes_count, next) - 1;
            const auto reading =
                static_cast<Reading>(batch.attributes[kind - batch.first].srcAccessOrder -
                                     CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
            const CUresult result =
                copy_of_batch(call, *stream, device_side(batch.destinations[next]),
                              device_side(batch.sources[next]), {batch.sizes[next]}, reading);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        return CUDA_SUCCESS;
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
        return known != CUDA_SUCCESS ? known
                                     : copy(call, stream_of(call, stream), destination, source,
                                            extent, synchronous);
    });
}

CUresult rectangle(const char *name, const CUDA_MEMCPY2D *what, CUstream stream,
                   bool synchronous) {
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
        // The contexts stand where the other form has nothing.
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

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
    return copy_batch(__func__, {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, hStream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                            size_t *failIdx, CUstream hStream) {
    const CUresult result =
        copy_batch(__func__, {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, hStream);
    if (result != CUDA_SUCCESS && failIdx != nullptr) {
        *failIdx = SIZE_MAX; // the manual's word for a mistake that no single copy made
    }
    return result;
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                     CUmemcpyAttributes *attr, CUstream hStream) {
    size_t first = 0;
    return copy_batch(__func__, {&dst, &src, &size, 1, attr, &first, 1}, hStream);
}
