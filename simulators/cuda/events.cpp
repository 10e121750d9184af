// Events: marks in streams, with the time they were reached.
#include <ctime>

#include "operations.h"

using namespace cuda_sim;

namespace {

constexpr unsigned known_flags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

template <class Body> CUresult with_event(const char *name, CUevent handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Event> event = call.driver.events.find(handle);
        return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(call, *event);
    });
}

int64_t now() {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

CUresult record(const char *name, CUevent handle, CUstream stream_handle, unsigned flags) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Event> event = call.driver.events.find(handle);
        const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
        if (event == nullptr || stream == nullptr || stream->context != event->context) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (flags == CU_EVENT_RECORD_EXTERNAL && stream->capture != nullptr) {
            Operation operation;
            operation.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
            operation.event = event;
            return enqueue(call, *stream, std::move(operation));
        }
        if (stream->capture != nullptr) {
            event->capture = stream->capture;
            event->capture_ends = stream->capture_ends;
            return stream->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        return record_event(call, *stream, *event);
    });
}

bool reached(const Event &event) {
    for (const sim::Point &point : event.points) {
        if (!point.reached()) {
            return false;
        }
    }
    return true;
}

} // namespace

CUresult cuda_sim::record_event(Call &call, Stream &stream, Event &event) {
    const auto stamp = std::make_shared<Stamp>();
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    operation.work = [stamp] {
        stamp->nanoseconds = now();
        stamp->reached = true;
        return sim::Status::ok;
    };
    const CUresult result = enqueue(call, stream, std::move(operation));
    if (result == CUDA_SUCCESS) {
        event.stamp = stamp;
        event.capture = nullptr;
        event.points = {{stream.queue, stream.queue->submitted}};
    }
    return result;
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    return in_context(__func__, [&](Call &call) {
        const bool shared_with_time =
            (Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0;
        if (phEvent == nullptr || (Flags & ~known_flags) != 0 || shared_with_time) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto event = std::make_shared<Event>();
        event->flags = Flags;
        event->context = call.context;
        *phEvent = call.driver.events.add(event);
        return CUDA_SUCCESS;
    });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
    return with_event(__func__, hEvent, [&](Call &call, Event &) {
        call.driver.events.remove(hEvent);
        return CUDA_SUCCESS;
    });
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    return record(__func__, hEvent, hStream, 0);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    return flags > CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
                                            : record(__func__, hEvent, hStream, flags);
}

CUresult cuEventSynchronize(CUevent hEvent) {
    return with_event(__func__, hEvent, [&](Call &call, Event &event) {
        return event.capture != nullptr ? CUDA_ERROR_CAPTURED_EVENT : wait_for(call, event.points);
    });
}

CUresult cuEventQuery(CUevent hEvent) {
    return with_event(__func__, hEvent, [&](Call &call, Event &event) {
        if (event.capture != nullptr) {
            return CUDA_ERROR_CAPTURED_EVENT;
        }
        for (const sim::Point &point : event.points) {
            if (!call.driver.scheduler.poll(point)) {
                return CUDA_ERROR_NOT_READY;
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return with_event(__func__, hStart, [&](Call &call, Event &start) {
        const std::shared_ptr<Event> end = call.driver.events.find(hEnd);
        if (end == nullptr || start.stamp == nullptr || end->stamp == nullptr ||
            ((start.flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (pMilliseconds == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!reached(start) || !reached(*end)) {
            return CUDA_ERROR_NOT_READY;
        }
        const int64_t nanoseconds = end->stamp->nanoseconds - start.stamp->nanoseconds;
        *pMilliseconds = static_cast<float>(static_cast<double>(nanoseconds) * 1e-6);
        return CUDA_SUCCESS;
    });
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return cuEventElapsedTime(pMilliseconds, hStart, hEnd);
}
