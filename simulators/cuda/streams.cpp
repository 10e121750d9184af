// Streams and host callbacks. Captures are in captures.cpp.
#include <algorithm>
#include <cstring>

#include "graph_calls.h"

using namespace cuda_sim;

namespace {

constexpr int greatest_priority = -5;

// Launch attributes that streams may have too.
bool is_stream_attribute(CUstreamAttrID attribute) {
    constexpr int access_policy_window = 1;
    constexpr int synchronization_policy = 3;
    constexpr int synchronization_domain_map = 9;
    constexpr int synchronization_domain = 10;
    return attribute == access_policy_window || attribute == synchronization_policy ||
           attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY || attribute == synchronization_domain_map ||
           attribute == synchronization_domain;
}

// Streams may be waited for and queried from any context.
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

void cuda_sim::wait_for_event(Call &call, Stream &stream, const Event &event) {
    sim::Task task;
    task.work = [] { return sim::Status::ok; };
    task.after = event.points;
    for (const sim::Point &point : ends_of(stream)) {
        if (point.queue != stream.queue) {
            task.after.push_back(point);
        }
    }
    call.driver.scheduler.submit(call.lock, stream.queue, std::move(task));
}

Operation cuda_sim::make_host_call(const CUDA_HOST_NODE_PARAMS_v2 &what) {
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_HOST;
    operation.calls_back = true;
    operation.work = [what] {
        what.fn(what.userData);
        return sim::Status::ok;
    };
    operation.details = std::make_shared<NodeDetails>();
    operation.details->parameters.type = CU_GRAPH_NODE_TYPE_HOST;
    operation.details->parameters.host = what;
    return operation;
}

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
        const bool into_given = stream.capture != nullptr && stream.capture->into_given;
        const auto graph = sim::leave_capture(stream);
        if (graph != nullptr && !into_given) {
            forget_graph(call.driver, *graph);
        }
        // Queued work still runs; the queue lives until it is done.
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
        if (Flags == CU_EVENT_WAIT_EXTERNAL) {
            if (stream.capture == nullptr) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            Operation operation;
            operation.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
            operation.event = event;
            return enqueue(call, stream, std::move(operation));
        }
        if (event->capture != nullptr) {
            return to_result(sim::join_capture(stream, *event));
        }
        if (stream.capture != nullptr) {
            stream.capture->valid = false;
            return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        wait_for_event(call, stream, *event);
        return CUDA_SUCCESS;
    });
}

CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode) {
    constexpr unsigned known_modes = 2; // wait by blocking, or by spinning
    return syncMode >= known_modes ? CUDA_ERROR_INVALID_VALUE
                                   : cuLaunchHostFunc(hStream, fn, userData);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (fn == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return enqueue(call, stream, make_host_call({fn, userData}));
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

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    if (pGreenCtx != nullptr) {
        *pGreenCtx = nullptr; // green contexts are not simulated
    }
    return cuStreamGetCtx(hStream, pCtx);
}

// Attributes are hints to hardware and have no effect here; queries return them.
CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue *value) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        if (value == nullptr || !is_stream_attribute(attr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            return refuse(CUDA_ERROR_NOT_SUPPORTED, "a stream has its priority from the start");
        }
        stream.attributes[attr] = *value;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        if (value_out == nullptr || !is_stream_attribute(attr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto found = stream.attributes.find(attr);
        *value_out = found == stream.attributes.end() ? CUstreamAttrValue{} : found->second;
        if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            std::memcpy(value_out, &stream.priority, sizeof stream.priority);
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
    return with_stream(__func__, src, [&](Call &call, Stream &source) {
        const std::shared_ptr<Stream> destination = stream_of(call, dst);
        if (destination == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        destination->attributes = source.attributes;
        return CUDA_SUCCESS;
    });
}
