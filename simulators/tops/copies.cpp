// Copies and fills. Pageable sources are read during the call, page-locked sources when the copy
// runs. Tests thus detect a source that is changed or freed too early.
#include <algorithm>
#include <cstring>

#include "operations.h"
#include "pointers.h"

using namespace tops_sim;

namespace {

using Kind = AddressInfo::Kind;

// Kinds of memory that a call states for its source and its destination.
enum class Expected { device, host, either };

struct Side {
    uint64_t pointer;
    Expected expected;
    DeviceState *device = nullptr; // owner of the memory, if any
    Kind kind = Kind::invalid;
    std::shared_ptr<std::vector<char>> staged; // content, if already read
};

Side side(const void *pointer, Expected expected) {
    return {reinterpret_cast<uint64_t>(pointer), expected, nullptr, Kind::invalid, nullptr};
}

bool locate(Call &call, Side &side, uint64_t bytes) {
    side.device = call.device;
    side.kind = info_of(call, side.pointer, bytes).kind;
    const bool fits =
        side.expected == Expected::either ||
        (side.expected == Expected::device ? side.kind == Kind::device || side.kind == Kind::pinned
                                           : side.kind != Kind::device);
    return side.pointer != 0 && side.kind != Kind::invalid && fits;
}

std::function<sim::Status()> copy_work(Side destination, Side source, uint64_t bytes,
                                       DeviceState &device) {
    return [=, &device] {
        Runtime &runtime = Runtime::get();
        char *to = nullptr;
        const char *from = nullptr;
        {
            const sim::Lock lock(runtime.scheduler.mutex);
            to =
                view_of(runtime, *destination.device, destination.pointer, bytes, destination.kind);
            from = source.staged != nullptr
                       ? source.staged->data()
                       : view_of(runtime, *source.device, source.pointer, bytes, source.kind);
        }
        sim::Status status = sim::Status::illegal_address;
        if (to != nullptr && from != nullptr) {
            status = sim::run_guarded([&] { std::memmove(to, from, bytes); }).status;
        }
        if (status != sim::Status::ok) {
            const sim::Lock lock(runtime.scheduler.mutex);
            device.device.fault_text = "a copy reached memory that is gone";
        }
        return status;
    };
}

// Queues a copy whose sides are located.
topsError_t submit(Call &call, Stream &stream, Side destination, Side source, uint64_t bytes,
                   bool synchronous) {
    const bool capturing = stream.capture != nullptr;
    if (source.kind == Kind::pageable && !capturing) {
        if (synchronous) {
            const topsError_t earlier = wait_for(call, ends_of(stream));
            if (earlier != topsSuccess) {
                return earlier;
            }
        }
        source.staged = std::make_shared<std::vector<char>>(bytes);
        std::memcpy(source.staged->data(), reinterpret_cast<const void *>(source.pointer), bytes);
    }
    Operation operation;
    operation.work = copy_work(destination, source, bytes, *call.device);
    const topsError_t result = enqueue(call, stream, std::move(operation));
    const bool waits = destination.kind == Kind::pageable || synchronous;
    if (result != topsSuccess || capturing || !waits) {
        return result;
    }
    return wait_for(call, {{stream.queue, stream.queue->submitted}});
}

topsError_t copy(const char *name, Side destination, Side source, size_t bytes,
                 topsStream_t stream_handle, bool synchronous) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = own_stream_of(call, stream_handle);
        if (stream == nullptr) {
            return refuse(topsErrorInvalidHandle, "the stream is not of the current device");
        }
        if (synchronous) {
            const topsError_t unsafe = check_capture_unsafe(call);
            if (unsafe != topsSuccess) {
                return unsafe;
            }
        }
        if (bytes == 0) {
            return topsSuccess;
        }
        if (!locate(call, destination, bytes) || !locate(call, source, bytes)) {
            return refuse(topsErrorInvalidDevicePointer,
                          "an address is not in one allocation of the current device");
        }
        return submit(call, *stream, destination, source, bytes, synchronous);
    });
}

// The source's device is current, and one of its streams takes the copy.
topsError_t copy_peer(const char *name, void *dst, int dst_device, const void *src, int src_device,
                      size_t bytes, topsStream_t stream_handle, bool synchronous) {
    return on_device(name, [&](Call &call) {
        DeviceState *owner = call.runtime.device(dst_device);
        const std::shared_ptr<Stream> stream = own_stream_of(call, stream_handle);
        if (owner == nullptr || call.runtime.device(src_device) != call.device ||
            stream == nullptr) {
            return refuse(topsErrorInvalidValue, "the source's device and stream must be current");
        }
        Side destination = side(dst, Expected::device);
        Side source = side(src, Expected::device);
        const bool there = owner->device.memory.find(destination.pointer, bytes) != nullptr;
        if (bytes == 0) {
            return topsSuccess;
        }
        if (!there || !locate(call, source, bytes)) {
            return refuse(topsErrorInvalidDevicePointer, "an address is not in one allocation");
        }
        destination.device = owner;
        destination.kind = Kind::device;
        return submit(call, *stream, destination, source, bytes, synchronous);
    });
}

bool sides_of(topsMemcpyKind kind, Expected &destination, Expected &source) {
    const bool known = kind >= topsMemcpyHostToHost && kind <= topsMemcpyDefault;
    const bool free = kind == topsMemcpyDefault;
    const bool to = kind == topsMemcpyHostToDevice || kind == topsMemcpyDeviceToDevice;
    const bool from = kind == topsMemcpyDeviceToHost || kind == topsMemcpyDeviceToDevice;
    destination = free ? Expected::either : to ? Expected::device : Expected::host;
    source = free ? Expected::either : from ? Expected::device : Expected::host;
    return known;
}

topsError_t copy_kind(const char *name, void *dst, const void *src, size_t bytes,
                      topsMemcpyKind kind, topsStream_t stream, bool synchronous) {
    Expected to;
    Expected from;
    if (!sides_of(kind, to, from)) {
        return remember(topsErrorInvalidMemcpyDirection);
    }
    return copy(name, side(dst, to), side(src, from), bytes, stream, synchronous);
}

// Fills `count` elements of the value's size.
template <class Value>
topsError_t fill(const char *name, void *pointer, Value value, size_t count,
                 topsStream_t stream_handle) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = own_stream_of(call, stream_handle);
        if (stream == nullptr) {
            return refuse(topsErrorInvalidHandle, "the stream is not of the current device");
        }
        if (count == 0) {
            return topsSuccess;
        }
        Side to = side(pointer, Expected::device);
        const uint64_t bytes = count * sizeof value;
        if (count > UINT64_MAX / sizeof value || to.pointer % sizeof value != 0 ||
            !locate(call, to, bytes)) {
            return refuse(topsErrorInvalidDevicePointer,
                          "an address is not in one allocation of the current device");
        }
        Operation operation;
        operation.work = [=] {
            Runtime &runtime = Runtime::get();
            const sim::Lock lock(runtime.scheduler.mutex);
            char *items = view_of(runtime, *to.device, to.pointer, bytes, to.kind);
            if (items == nullptr) {
                to.device->device.fault_text = "a fill reached memory that is gone";
                return sim::Status::illegal_address;
            }
            std::fill_n(reinterpret_cast<Value *>(items), count, value);
            return sim::Status::ok;
        };
        return enqueue(call, *stream, std::move(operation));
    });
}

} // namespace

topsError_t topsMemcpyHtoDAsync(topsDeviceptr_t dst, void *src, size_t sizeBytes,
                                topsStream_t stream) {
    return copy(__func__, side(dst, Expected::device), side(src, Expected::host), sizeBytes, stream,
                false);
}

topsError_t topsMemcpyDtoHAsync(void *dst, topsDeviceptr_t src, size_t sizeBytes,
                                topsStream_t stream) {
    return copy(__func__, side(dst, Expected::host), side(src, Expected::device), sizeBytes, stream,
                false);
}

topsError_t topsMemcpyDtoDAsync(topsDeviceptr_t dst, topsDeviceptr_t src, size_t sizeBytes,
                                topsStream_t stream) {
    return copy(__func__, side(dst, Expected::device), side(src, Expected::device), sizeBytes,
                stream, false);
}

topsError_t topsMemcpyAsync(void *dst, const void *src, size_t sizeBytes, topsMemcpyKind kind,
                            topsStream_t stream) {
    return copy_kind(__func__, dst, src, sizeBytes, kind, stream, false);
}

topsError_t topsMemcpy(void *dst, const void *src, size_t sizeBytes, topsMemcpyKind kind) {
    return copy_kind(__func__, dst, src, sizeBytes, kind, nullptr, true);
}

topsError_t topsMemcpyHtoD(topsDeviceptr_t dst, void *src, size_t sizeBytes) {
    return copy(__func__, side(dst, Expected::device), side(src, Expected::host), sizeBytes,
                nullptr, true);
}

topsError_t topsMemcpyDtoH(void *dst, topsDeviceptr_t src, size_t sizeBytes) {
    return copy(__func__, side(dst, Expected::host), side(src, Expected::device), sizeBytes,
                nullptr, true);
}

topsError_t topsMemcpyDtoD(topsDeviceptr_t dst, topsDeviceptr_t src, size_t sizeBytes) {
    return copy(__func__, side(dst, Expected::device), side(src, Expected::device), sizeBytes,
                nullptr, true);
}

topsError_t topsMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                size_t sizeBytes, topsStream_t stream) {
    return copy_peer(__func__, dst, dstDevice, src, srcDevice, sizeBytes, stream, false);
}

topsError_t topsMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
                           size_t sizeBytes) {
    return copy_peer(__func__, dst, dstDevice, src, srcDevice, sizeBytes, nullptr, true);
}

topsError_t topsMemsetAsync(void *dst, int value, size_t sizeBytes, topsStream_t stream) {
    return fill(__func__, dst, static_cast<uint8_t>(value), sizeBytes, stream);
}

topsError_t topsMemset(void *dst, int value, size_t sizeBytes) {
    return fill(__func__, dst, static_cast<uint8_t>(value), sizeBytes, nullptr);
}

topsError_t topsMemsetD8Async(topsDeviceptr_t dest, unsigned char value, size_t count,
                              topsStream_t stream) {
    return fill(__func__, dest, value, count, stream);
}

topsError_t topsMemsetD16Async(topsDeviceptr_t dest, unsigned short value, size_t count,
                               topsStream_t stream) {
    return fill(__func__, dest, value, count, stream);
}

topsError_t topsMemsetD32Async(topsDeviceptr_t dst, int value, size_t count, topsStream_t stream) {
    return fill(__func__, dst, value, count, stream);
}

topsError_t topsMemsetD8(topsDeviceptr_t dest, unsigned char value, size_t count) {
    return fill(__func__, dest, value, count, nullptr);
}

topsError_t topsMemsetD16(topsDeviceptr_t dest, unsigned short value, size_t count) {
    return fill(__func__, dest, value, count, nullptr);
}

topsError_t topsMemsetD32(topsDeviceptr_t dest, int value, size_t count) {
    return fill(__func__, dest, value, count, nullptr);
}
