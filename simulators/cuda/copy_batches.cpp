// Batches of copies, which have no order among themselves.
#include <algorithm>

#include "copy_work.h"

using namespace cuda_sim;

namespace {

// Time at which the source may be read: in stream order, before the call returns, or any time.
enum class Reading { in_order, in_the_call, any_time };

struct Copy {
    Side destination;
    Side source;
    Extent extent;
    Reading reading;
};

struct Batch {
    const CUdeviceptr *destinations;
    const CUdeviceptr *sources;
    const size_t *sizes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first; // index of the first copy of each attribute
    size_t attributes_count;
};

// Whether the batch is well-formed. The batch's attributes cover the copies in order, from the
// first copy.
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

// Reads all copies of a batch, in order; returns false when an address is wrong.
bool read_batch(Driver &driver, const Batch &batch, std::vector<Copy> &copies) {
    for (size_t index = 0; index < batch.count; ++index) {
        const size_t *const kind =
            std::upper_bound(batch.first, batch.first + batch.attributes_count, index) - 1;
        const CUmemcpySrcAccessOrder order = batch.attributes[kind - batch.first].srcAccessOrder;
        Copy copy = {device_side(batch.destinations[index]),
                     device_side(batch.sources[index]),
                     {batch.sizes[index]},
                     static_cast<Reading>(order - CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
        if (!locate(driver, copy.destination, copy.extent) ||
            !locate(driver, copy.source, copy.extent)) {
            return false;
        }
        copies.push_back(std::move(copy));
    }
    return true;
}

CUresult start(Call &call, Stream &stream, Copy copy) {
    const bool early = copy.reading == Reading::in_the_call ||
                       (copy.reading == Reading::any_time && call.driver.scheduler.choose(2) == 0);
    if (early && is_host(copy.source)) {
        read_now(copy.source, copy.extent);
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    operation.work = copy_work(copy.destination, copy.source, copy.extent, *call.device);
    return enqueue(call, stream, std::move(operation));
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
        std::vector<Copy> copies;
        if (!read_batch(call.driver, batch, copies)) {
            return refuse(CUDA_ERROR_INVALID_VALUE, "an address is not in one allocation");
        }
        CUresult result = CUDA_SUCCESS;
        while (!copies.empty() && result == CUDA_SUCCESS) {
            const size_t next = call.driver.scheduler.choose(copies.size());
            std::swap(copies[next], copies.back());
            result = start(call, *stream, std::move(copies.back()));
            copies.pop_back();
        }
        return result;
    });
}

} // namespace

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
        *failIdx = SIZE_MAX; // the manual's value for an error that belongs to no single copy
    }
    return result;
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                     CUmemcpyAttributes *attr, CUstream hStream) {
    size_t first = 0;
    return copy_batch(__func__, {&dst, &src, &size, 1, attr, &first, 1}, hStream);
}
