// Events: marks in streams, with the time they were reached.
#include <ctime>

#include "operations.h"

using namespace tops_sim;

namespace {

constexpr unsigned event_flags =
    topsEventBlockingSync | topsEventDisableTiming | topsEventInterprocess;

template <class Body> topsError_t with_event(const char *name, topsEvent_t handle, Body body) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Event> event = call.runtime.events.find(handle);
        return event == nullptr ? topsErrorInvalidHandle : body(call, *event);
    });
}

int64_t now() {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

bool reached(const Event &event) {
    for (const sim::Point &point : event.points) {
        if (!point.reached()) {
            return false;
        }
    }
    return true;
}

topsError_t create(const char *name, topsEvent_t *handle, unsigned flags) {
    return on_device(name, [&](Call &call) {
        if (handle == nullptr || (flags & ~event_flags) != 0) {
            return topsErrorInvalidValue;
        }
        const auto event = std::make_shared<Event>();
        event->flags = flags;
        event->device = call.device;
        *handle = call.runtime.events.add(event);
        return topsSuccess;
    });
}

} // namespace

topsError_t topsEventCreateWithFlags(topsEvent_t *event, unsigned int flags) {
    return create(__func__, event, flags);
}

topsError_t topsEventCreate(topsEvent_t *event) {
    return create(__func__, event, topsEventDefault);
}

topsError_t topsEventDestroy(topsEvent_t handle) {
    return with_event(__func__, handle, [&](Call &call, Event &) {
        call.runtime.events.remove(handle);
        return topsSuccess;
    });
}

topsError_t topsEventRecord(topsEvent_t handle, topsStream_t stream_handle) {
    return with_event(__func__, handle, [&](Call &call, Event &event) {
        const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
        if (stream == nullptr || stream->device != event.device) {
            return topsErrorInvalidHandle;
        }
        if (stream->capture != nullptr) {
            event.capture = stream->capture;
            event.capture_ends = stream->capture_ends;
            return stream->capture->valid ? topsSuccess : topsErrorStreamCaptureInvalidated;
        }
        const auto stamp = std::make_shared<Stamp>();
        Operation operation;
        operation.work = [stamp] {
            stamp->nanoseconds = now();
            stamp->reached = true;
            return sim::Status::ok;
        };
        const topsError_t result = enqueue(call, *stream, std::move(operation));
        if (result == topsSuccess) {
            event.stamp = stamp;
            event.capture = nullptr;
            event.points = {{stream->queue, stream->queue->submitted}};
        }
        return result;
    });
}

topsError_t topsEventSynchronize(topsEvent_t handle) {
    return with_event(__func__, handle, [&](Call &call, Event &event) {
        return event.capture != nullptr ? topsErrorCapturedEvent : wait_for(call, event.points);
    });
}

topsError_t topsEventQuery(topsEvent_t handle) {
    return with_event(__func__, handle, [&](Call &call, Event &event) {
        if (event.capture != nullptr) {
            return topsErrorCapturedEvent;
        }
        for (const sim::Point &point : event.points) {
            if (!call.runtime.scheduler.poll(point)) {
                return topsErrorNotReady;
            }
        }
        return topsSuccess;
    });
}

topsError_t topsEventElapsedTime(float *ms, topsEvent_t start_handle, topsEvent_t stop_handle) {
    return with_event(__func__, start_handle, [&](Call &call, Event &start) {
        const std::shared_ptr<Event> stop = call.runtime.events.find(stop_handle);
        if (stop == nullptr || start.stamp == nullptr || stop->stamp == nullptr ||
            ((start.flags | stop->flags) & topsEventDisableTiming) != 0) {
            return topsErrorInvalidHandle;
        }
        if (ms == nullptr) {
            return topsErrorInvalidValue;
        }
        if (!reached(start) || !reached(*stop)) {
            return topsErrorNotReady;
        }
        const int64_t nanoseconds = stop->stamp->nanoseconds - start.stamp->nanoseconds;
        *ms = static_cast<float>(static_cast<double>(nanoseconds) * 1e-6);
        return topsSuccess;
    });
}
