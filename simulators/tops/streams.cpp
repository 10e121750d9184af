// Streams and host callbacks. Captures are in captures.cpp.
#include "operations.h"

using namespace tops_sim;

namespace {

constexpr unsigned stream_flags = topsStreamNonBlocking | topsStreamCallbackBlocking;

// Waits and queries accept streams of any device, whichever device is current.
template <class Body> topsError_t with_stream(const char *name, topsStream_t handle, Body body) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? topsErrorInvalidHandle : body(call, *stream);
    });
}

topsError_t fault_of(const Stream &stream) {
    return to_result(stream.device->device.fault);
}

topsError_t create(const char *name, topsStream_t *handle, unsigned flags) {
    return on_device(name, [&](Call &call) {
        if (handle == nullptr || (flags & ~stream_flags) != 0) {
            return topsErrorInvalidValue;
        }
        const Stream::Kind kind = (flags & topsStreamNonBlocking) != 0 ? Stream::Kind::non_blocking
                                                                       : Stream::Kind::blocking;
        *handle = call.runtime.streams.add(call.runtime.make_stream(*call.device, kind));
        return topsSuccess;
    });
}

topsError_t call_back(const char *name, topsStream_t handle, std::function<void()> function,
                      bool may_be_captured) {
    return with_stream(name, handle, [&](Call &call, Stream &stream) {
        if (!may_be_captured) {
            const topsError_t capturing = check_not_capturing(stream);
            if (capturing != topsSuccess) {
                return capturing;
            }
        }
        Operation operation;
        operation.calls_back = true;
        operation.work = [function = std::move(function)] {
            function();
            return sim::Status::ok;
        };
        return enqueue(call, stream, std::move(operation));
    });
}

} // namespace

topsError_t topsStreamCreateWithFlags(topsStream_t *stream, unsigned int flags) {
    return create(__func__, stream, flags);
}

topsError_t topsStreamCreate(topsStream_t *stream) {
    return create(__func__, stream, topsStreamDefault);
}

topsError_t topsStreamDestroy(topsStream_t handle) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        if (stream.implicit) {
            return topsErrorInvalidHandle;
        }
        if (const auto graph = sim::leave_capture(stream)) {
            call.runtime.graphs.remove(graph->handle);
        }
        // Queued work still runs; the queue lives until it is done.
        call.runtime.streams.remove(handle);
        return topsSuccess;
    });
}

topsError_t topsStreamSynchronize(topsStream_t handle) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        const topsError_t capturing = check_not_capturing(stream);
        if (capturing != topsSuccess) {
            return capturing;
        }
        const topsError_t result = wait_for(call, ends_of(stream));
        return result != topsSuccess ? result : fault_of(stream);
    });
}

topsError_t topsStreamQuery(topsStream_t handle) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        const topsError_t capturing = check_not_capturing(stream);
        if (capturing != topsSuccess) {
            return capturing;
        }
        for (const sim::Point &point : ends_of(stream)) {
            if (!call.runtime.scheduler.poll(point)) {
                return topsErrorNotReady;
            }
        }
        return fault_of(stream);
    });
}

topsError_t topsStreamWaitEvent(topsStream_t handle, topsEvent_t event_handle, unsigned int flags) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        const std::shared_ptr<Event> event = call.runtime.events.find(event_handle);
        if (event == nullptr) {
            return topsErrorInvalidHandle;
        }
        if (flags != 0) {
            return topsErrorInvalidValue;
        }
        if (event->capture != nullptr) {
            return to_result(sim::join_capture(stream, *event));
        }
        if (stream.capture != nullptr) {
            stream.capture->valid = false;
            return topsErrorStreamCaptureIsolation;
        }
        Operation operation;
        operation.work = [] { return sim::Status::ok; };
        return enqueue(call, stream, std::move(operation), event->points);
    });
}

topsError_t topsLaunchHostFunc(topsStream_t stream, topsHostFn_t fn, void *userData) {
    if (fn == nullptr) {
        return remember(topsErrorInvalidValue);
    }
    return call_back(__func__, stream, [=] { fn(userData); }, true);
}

topsError_t topsStreamAddCallback(topsStream_t stream, topsStreamCallback_t callback,
                                  void *userData, unsigned int flags) {
    if (callback == nullptr || (flags & ~topsStreamCallbackBlocking) != 0) {
        return remember(topsErrorInvalidValue);
    }
    return call_back(__func__, stream, [=] { callback(stream, topsSuccess, userData); }, false);
}

topsError_t topsStreamSetLaunchLimit(topsStream_t handle, size_t clusterNum, size_t sipNum) {
    return with_stream(__func__, handle, [&](Call &, Stream &stream) {
        if (stream.implicit) {
            return topsErrorInvalidHandle;
        }
        stream.limit_clusters = clusterNum;
        stream.limit_sips = sipNum;
        return topsSuccess;
    });
}

topsError_t topsStreamGetLaunchLimit(topsStream_t handle, size_t *clusterNum, size_t *sipNum) {
    return with_stream(__func__, handle, [&](Call &, Stream &stream) {
        *clusterNum = stream.limit_clusters;
        *sipNum = stream.limit_sips;
        return topsSuccess;
    });
}
