// Streams and host callbacks. Captures are in captures.cpp.
#include <algorithm>

#include "operations.h"

using namespace cuda_sim;

namespace {

constexpr int greatest_priority = -5;

// Waiting and asking are allowed from any context; the stream brings its own.
template <class Body> CUresult with_stream(const char *name, CUstream handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(call, *stream);
    });
}

CUresult fault_of(const Stream &stream) {
    return to_result(stream.context->device->device.fault);
}

CUresult create(const char *name, CUstream *handle, unsigned flags, int priority) {
    return in_context(name, [&](Call &call) {
        if (handle == nullptr || flags > CU_STREAM_NON_BLOCKING) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const Stream::Kind kind =
            flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::non_blocking : Stream::Kind::blocking;
        const std::shared_ptr<Stream> stream = call.driver.make_stream(call.context, kind);
        stream->priority = std::clamp(priority, greatest_priority, 0);
        *handle = call.driver.streams.add(stream);
        return CUDA_SUCCESS;
    });
}

} // namespace

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return create(__func__, phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    return create(__func__, phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (stream.implicit) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (const auto graph = sim::leave_capture(stream)) {
            call.driver.graphs.remove(graph->handle);
        }
        // Work that is queued runs on; the queue lives until it is done.
        call.driver.streams.remove(hStream);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamSynchronize(CUstream hStream) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        const CUresult capturing = check_not_capturing(stream);
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        const CUresult result = wait_for(call, ends_of(stream));
        return result != CUDA_SUCCESS ? result : fault_of(stream);
    });
}

CUresult cuStreamQuery(CUstream hStream) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        const CUresult capturing = check_not_capturing(stream);
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        for (const sim::Point &point : ends_of(stream)) {
            if (!call.driver.scheduler.poll(point)) {
                return CUDA_ERROR_NOT_READY;
            }
        }
        return fault_of(stream);
    });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        const std::shared_ptr<Event> event = call.driver.events.find(hEvent);
        if (event == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (Flags > 1) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (event->capture != nullptr) {
            return to_result(sim::join_capture(stream, *event));
        }
        if (stream.capture != nullptr) {
            stream.capture->valid = false;
            return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        sim::Task task;
        task.work = [] { return sim::Status::ok; };
        task.after = event->points;
        for (const sim::Point &point : ends_of(stream)) {
            if (point.queue != stream.queue) {
                task.after.push_back(point);
            }
        }
        call.driver.scheduler.submit(call.lock, stream.queue, std::move(task));
        return CUDA_SUCCESS;
    });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (fn == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Operation operation;
        operation.type = CU_GRAPH_NODE_TYPE_HOST;
        operation.calls_back = true;
        operation.work = [fn, userData] {
            fn(userData);
            return sim::Status::ok;
        };
        return enqueue(call, stream, std::move(operation));
    });
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (callback == nullptr || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult capturing = check_not_capturing(stream);
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        Operation operation;
        operation.type = CU_GRAPH_NODE_TYPE_HOST;
        operation.calls_back = true;
        operation.work = [hStream, callback, userData] {
            callback(hStream, CUDA_SUCCESS, userData);
            return sim::Status::ok;
        };
        return enqueue(call, stream, std::move(operation));
    });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        *flags =
            stream.kind == Stream::Kind::non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        *priority = stream.priority;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        *pctx = stream.context->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        *device = stream.context->device->device.ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        *streamId = stream.id;
        return CUDA_SUCCESS;
    });
}
