// Managed memory: host memory that devices reach. A program may advise where managed memory should
// lie. The advice has no effect here: it is kept for each page, and queries return it.
#include <algorithm>
#include <cstring>

#include "managed.h"
#include "pointers.h"

using namespace cuda_sim;

namespace {

constexpr uint64_t page = 4096;

// The pages of a range of managed memory.
class Pages {
  public:
    Pages(Driver &driver, uint64_t address, uint64_t bytes) {
        const sim::HostRange *range = driver.host_memory.find(address, bytes);
        const auto found = range == nullptr || bytes == 0 ? driver.managed.end()
                                                          : driver.managed.find(range->address);
        if (found != driver.managed.end()) {
            std::vector<PageAdvice> &all = found->second.pages;
            first_ = all.data() + (address - range->address) / page;
            last_ = all.data() + (address - range->address + bytes - 1) / page + 1;
        }
    }

    explicit operator bool() const { return first_ != nullptr; }
    PageAdvice *begin() const { return first_; }
    PageAdvice *end() const { return last_; }

    // The device that all pages name in this member; CU_DEVICE_INVALID if the pages differ.
    CUdevice common(CUdevice PageAdvice::*member) const {
        const CUdevice of_first = first_->*member;
        const bool same = std::all_of(
            first_, last_, [&](const PageAdvice &one) { return one.*member == of_first; });
        return same ? of_first : CU_DEVICE_INVALID;
    }

  private:
    PageAdvice *first_ = nullptr;
    PageAdvice *last_ = nullptr;
};

CUresult not_managed() {
    return refuse(CUDA_ERROR_INVALID_VALUE, "the range is not in one allocation of managed memory");
}

CUresult freed_already() {
    return refuse(CUDA_ERROR_INVALID_VALUE, "no allocation starts at this address");
}

void release(Driver &driver, CUdeviceptr address) {
    const auto found = driver.managed.find(address);
    if (found->second.pool != nullptr) {
        found->second.pool->used -= driver.host_memory.find(address)->bytes;
    }
    driver.managed.erase(found);
    driver.host_memory.release(address);
}

// A location as the older forms of these calls give it: a device, or CU_DEVICE_CPU.
CUresult read_location(Call &call, const CUmemLocation &location, CUdevice &ordinal) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        ordinal = location.id;
        return call.driver.device(ordinal) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    }
    ordinal = CU_DEVICE_CPU;
    return location.type == CU_MEM_LOCATION_TYPE_HOST
               ? CUDA_SUCCESS
               : refuse(CUDA_ERROR_NOT_SUPPORTED, "parts of the host's memory are not told apart");
}

CUmemLocation location_of(CUdevice device) {
    return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                   : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

uint32_t bit_of(CUdevice ordinal) {
    return uint32_t{1} << (ordinal == CU_DEVICE_CPU ? 31 : ordinal);
}

CUresult advise(const char *name, CUdeviceptr address, size_t bytes, CUmem_advise advice,
                CUmemLocation location) {
    return in_context(name, [&](Call &call) {
        const Pages pages(call.driver, address, bytes);
        if (!pages) {
            return not_managed();
        }
        const bool has_location = advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
                                  advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
        CUdevice ordinal = CU_DEVICE_INVALID;
        const CUresult known = has_location ? read_location(call, location, ordinal) : CUDA_SUCCESS;
        if (known != CUDA_SUCCESS) {
            return known;
        }
        for (PageAdvice &one : pages) {
            switch (advice) {
            case CU_MEM_ADVISE_SET_READ_MOSTLY:
            case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
                one.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
                break;
            case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
            case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
                one.preferred = ordinal;
                break;
            case CU_MEM_ADVISE_SET_ACCESSED_BY:
                one.accessed_by |= bit_of(ordinal);
                break;
            case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
                one.accessed_by &= ~bit_of(ordinal);
                break;
            default:
                return CUDA_ERROR_INVALID_VALUE;
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult prefetch(Call &call, Stream &stream, CUdeviceptr address, size_t bytes,
                  const CUmemLocation &location) {
    const Pages pages(call.driver, address, bytes);
    if (!pages) {
        return not_managed();
    }
    CUdevice ordinal = CU_DEVICE_INVALID;
    const CUresult known = read_location(call, location, ordinal);
    if (known != CUDA_SUCCESS) {
        return known;
    }
    if (stream.capture != nullptr) {
        stream.capture->valid = false;
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a graph cannot hold a prefetch");
    }
    for (PageAdvice &one : pages) {
        one.prefetched = ordinal;
    }
    return enqueue(call, stream, {}); // an empty operation keeps the stream's order
}

CUresult prefetch_one(const char *name, CUdeviceptr address, size_t bytes,
                      const CUmemLocation &location, CUstream handle) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                 : prefetch(call, *stream, address, bytes, location);
    });
}

// Lists the devices that access all pages, as many as fit.
void answer_accessed_by(const Pages &pages, size_t devices, CUdevice *out, size_t room) {
    uint32_t common = ~uint32_t{0};
    for (const PageAdvice &one : pages) {
        common &= one.accessed_by;
    }
    std::vector<CUdevice> found;
    for (CUdevice device = 0; device < static_cast<CUdevice>(devices); ++device) {
        if ((common & bit_of(device)) != 0) {
            found.push_back(device);
        }
    }
    if ((common & bit_of(CU_DEVICE_CPU)) != 0) {
        found.push_back(CU_DEVICE_CPU);
    }
    for (size_t index = 0; index < room; ++index) {
        out[index] = index < found.size() ? found[index] : CU_DEVICE_INVALID;
    }
}

CUresult answer(Call &call, void *data, size_t bytes, CUmem_range_attribute attribute,
                const Pages &pages) {
    const bool is_list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    if (data == nullptr || bytes == 0 || bytes % sizeof(CUdevice) != 0 ||
        (!is_list && bytes != sizeof(CUdevice))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUdevice *const out = static_cast<CUdevice *>(data);
    const CUdevice preferred = pages.common(&PageAdvice::preferred);
    const CUdevice prefetched = pages.common(&PageAdvice::prefetched);
    const auto type = [](CUdevice ordinal) {
        return ordinal == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
                                            : location_of(ordinal).type;
    };
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *out = std::all_of(pages.begin(), pages.end(),
                           [](const PageAdvice &one) { return one.read_mostly; });
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        answer_accessed_by(pages, call.driver.devices.size(), out, bytes / sizeof(CUdevice));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *out = preferred;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *out = prefetched;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *out = type(preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *out = type(prefetched);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

} // namespace

CUresult cuda_sim::allocate_managed(Call &call, CUdeviceptr *address, size_t bytes,
                                    const std::shared_ptr<Pool> &pool) {
    void *const memory = call.driver.host_memory.allocate(bytes, 0);
    if (memory == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = reinterpret_cast<uint64_t>(memory);
    Managed &managed = call.driver.managed[*address];
    managed.ordinal = call.device->device.ordinal;
    managed.pages.resize((bytes + page - 1) / page);
    managed.pool = pool;
    if (pool != nullptr) {
        pool->used += bytes;
        pool->used_high = std::max(pool->used_high, pool->used);
        for (PageAdvice &one : managed.pages) {
            one.preferred = pool->device;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuda_sim::free_managed(Call &call, CUdeviceptr address) {
    if (call.driver.managed[address].leaving) {
        return freed_already();
    }
    for (const auto &device : call.driver.devices) {
        call.driver.scheduler.wait(call.lock, call.driver.scheduler.pending(device->device));
    }
    if (call.driver.managed.count(address) == 0) {
        return freed_already(); // another thread freed it during the wait
    }
    release(call.driver, address);
    return call.fault();
}

CUresult cuda_sim::free_managed(Call &call, CUdeviceptr address, Stream &stream) {
    Managed &managed = call.driver.managed[address];
    if (managed.leaving) {
        return freed_already();
    }
    managed.leaving = true;
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    operation.work = [address] {
        Driver &driver = Driver::get();
        const sim::Lock lock(driver.scheduler.mutex);
        release(driver, address);
        return sim::Status::ok;
    };
    return enqueue(call, stream, std::move(operation));
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    return in_context(__func__, [&](Call &call) {
        const CUresult unsafe = check_capture_unsafe(call);
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
        const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
        return dptr == nullptr || bytesize == 0 || !known
                   ? CUDA_ERROR_INVALID_VALUE
                   : allocate_managed(call, dptr, bytesize, nullptr);
    });
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
    return in_context(__func__, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, hStream);
        const sim::HostRange *range = call.driver.host_memory.find(dptr);
        if (stream == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (!is_managed(call.driver, dptr) || range->address != dptr ||
            (length != 0 && length != range->bytes)) {
            return not_managed();
        }
        const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                           flags == CU_MEM_ATTACH_SINGLE;
        if (!known || (flags == CU_MEM_ATTACH_SINGLE && stream->is_default())) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return enqueue(call, *stream, {}); // attaching has no effect here
    });
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
    return advise(__func__, devPtr, count, advice, location);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return advise(__func__, devPtr, count, advice, location_of(device));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE
                      : prefetch_one(__func__, devPtr, count, location, hStream);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
    return prefetch_one(__func__, devPtr, count, location_of(dstDevice), hStream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                 CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
    return in_context(__func__, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, hStream);
        if (stream == nullptr || stream->is_default()) {
            return refuse(CUDA_ERROR_INVALID_HANDLE, "a batch needs a stream of its own");
        }
        if (dptrs == nullptr || sizes == nullptr || count == 0 || prefetchLocs == nullptr ||
            prefetchLocIdxs == nullptr || numPrefetchLocs == 0 || numPrefetchLocs > count ||
            prefetchLocIdxs[0] != 0 || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (size_t index = 0; index < count; ++index) {
            const size_t *const used =
                std::upper_bound(prefetchLocIdxs, prefetchLocIdxs + numPrefetchLocs, index) - 1;
            const CUresult result = prefetch(call, *stream, dptrs[index], sizes[index],
                                             prefetchLocs[used - prefetchLocIdxs]);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
    return cuMemRangeGetAttributes(&data, &dataSize, &attribute, 1, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    return in_context(__func__, [&](Call &call) {
        const Pages pages(call.driver, devPtr, count);
        if (!pages) {
            return not_managed();
        }
        if (data == nullptr || dataSizes == nullptr || attributes == nullptr ||
            numAttributes == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (size_t index = 0; index < numAttributes; ++index) {
            const CUresult result =
                answer(call, data[index], dataSizes[index], attributes[index], pages);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        return CUDA_SUCCESS;
    });
}
