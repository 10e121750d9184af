// Streams and events.

#include <utility>

#include "api.h"
#include "capture.h"
#include "event.h"
#include "reductions.h"

namespace uhal_host {

namespace {

template <class Body> uhalHostResult with_event(void *handle, Body &&body) noexcept {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Event &event = *static_cast<Event *>(handle);
        if (const int error = check_device(event.device())) {
            return error;
        }
        return body(event);
    });
}

// Calls body with the event, if its record has a time of its own.
template <class Body> uhalHostResult with_uncaptured(void *handle, Body &&body) noexcept {
    return with_event(handle, [&](Event &event) -> int {
        if (event.captured()) {
            set_error_text("the event was recorded on a stream that captured");
            return UHAL_HOST_ERROR_CAPTURED_EVENT;
        }
        return body(event);
    });
}

// Waits as long as the caller and the device's deadline allow.
template <class Wait> int wait_within(Device &device, Patience patience, Wait &&wait) {
    patience.deadline = device.deadline();
    const bool done = wait(patience);
    if (!done && patience.is_over()) {
        device.give_up();
    }
    const int error = check_device(device);
    return error != 0 || done ? error : UHAL_HOST_ERROR_NOT_READY;
}

uhalHostResult synchronize_stream(void *handle, const Patience &patience) {
    return with_stream(handle, [&](Stream &stream) -> int {
        if (stream.capturing()) {
            return Capture::refuse(stream, "waiting for the host");
        }
        return wait_within(stream.device(), patience,
                           [&](const Patience &within) { return stream.synchronize(within); });
    });
}

uhalHostResult synchronize_event(void *handle, const Patience &patience) {
    return with_uncaptured(handle, [&](Event &event) -> int {
        return wait_within(event.device(), patience,
                           [&](const Patience &within) { return event.wait(within); });
    });
}

} // namespace

} // namespace uhal_host

using namespace uhal_host;

extern "C" {

uhalHostResult uhalHostStreamCreateWithPriority(void **stream, unsigned int flags, int priority) {
    return with_device([&](Device &device) -> int {
        if (flags > UHAL_HOST_STREAM_NON_BLOCKING) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        const bool high = priority <= UHAL_HOST_STREAM_PRIORITY_GREATEST;
        *stream = new Stream(device, high ? UHAL_HOST_STREAM_PRIORITY_GREATEST
                                          : UHAL_HOST_STREAM_PRIORITY_LEAST);
        device.runtime.live_streams.fetch_add(1);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostStreamDestroy(void *handle) {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Stream *const stream = static_cast<Stream *>(handle);
        if (stream->capturing()) {
            Capture::leave(*stream);
        }
        stream->device().runtime.live_streams.fetch_sub(1);
        stream->drop();
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostStreamSynchronize(void *stream) { return synchronize_stream(stream, {}); }

uhalHostResult uhalHostStreamSynchronizeWhile(void *stream, uhal_go_on go_on, void *user_data) {
    return synchronize_stream(stream, {go_on, user_data});
}

uhalHostResult uhalHostStreamQuery(void *handle) {
    return with_stream(handle, [](Stream &stream) -> int {
        if (stream.capturing()) {
            return Capture::refuse(stream, "asking whether work is done");
        }
        return stream.idle() ? UHAL_HOST_SUCCESS : UHAL_HOST_ERROR_NOT_READY;
    });
}

uhalHostResult uhalHostStreamProgress(void *handle, uint64_t *completed, uint64_t *begun,
                                      uint64_t *index) {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        // This call does not refuse a lost device, because callers use it to look up the device's
        // fault.
        const Stream &stream = *static_cast<Stream *>(handle);
        const auto failed = stream.device().failed_index(stream);
        *completed = stream.launches_done();
        const bool runs_on = stream.device().gave_up() && !stream.idle();
        *begun = *completed + (failed.has_value() || runs_on ? 1 : 0);
        *index = failed.value_or(UINT64_MAX);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostStreamWaitEvent(void *handle, void *event, unsigned int flags) {
    return with_stream(handle, [&](Stream &stream) -> int {
        if (event == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        if (flags != 0) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        Event &awaited = *static_cast<Event *>(event);
        if (stream.capturing() || awaited.captured()) {
            return Capture::wait(stream, awaited);
        }
        if (MarkHold mark = awaited.latest()) {
            stream.wait_for(std::move(mark));
        }
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostLaunchHostFunc(void *handle, uhal_host_function function, void *user_data) {
    return with_stream(handle, [&](Stream &stream) -> int {
        if (function == nullptr) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        if (stream.capturing()) {
            return Capture::record(stream, Callback{function, user_data});
        }
        stream.callback({function, user_data});
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostLaunchCall(void *handle, const uhalHostCall *call) {
    return with_stream(handle, [&](Stream &stream) -> int {
        if (call == nullptr || call->function == 0 || call->status == 0) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        if (stream.capturing()) {
            return Capture::record(stream, *call);
        }
        stream.call(*call);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostGetReduction(uint64_t *function, const char *dtype, const char *op) {
    *function = reduction(dtype, op);
    return *function != 0 ? UHAL_HOST_SUCCESS : UHAL_HOST_ERROR_INVALID_VALUE;
}

uhalHostResult uhalHostEventCreate(void **event, unsigned int flags) {
    return with_device([&](Device &device) -> int {
        constexpr unsigned known = UHAL_HOST_EVENT_BLOCKING_SYNC | UHAL_HOST_EVENT_DISABLE_TIMING |
                                   UHAL_HOST_EVENT_INTERPROCESS;
        if ((flags & ~known) != 0) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        if ((flags & UHAL_HOST_EVENT_INTERPROCESS) != 0) {
            return UHAL_HOST_ERROR_NOT_SUPPORTED;
        }
        *event = new Event(device, flags);
        device.runtime.live_events.fetch_add(1);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostEventDestroy(void *handle) {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Event *const event = static_cast<Event *>(handle);
        event->device().runtime.live_events.fetch_sub(1);
        delete event;
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostEventRecord(void *handle, void *stream) {
    return with_event(handle, [&](Event &event) {
        return with_stream(stream, [&](Stream &into) -> int {
            if (&into.device() != &event.device()) {
                return UHAL_HOST_ERROR_INVALID_HANDLE;
            }
            if (into.capturing()) {
                return Capture::record(into, event);
            }
            if (event.captured()) {
                Capture::forget(event);
            }
            event.record(into);
            return UHAL_HOST_SUCCESS;
        });
    });
}

uhalHostResult uhalHostEventSynchronize(void *event) { return synchronize_event(event, {}); }

uhalHostResult uhalHostEventSynchronizeWhile(void *event, uhal_go_on go_on, void *user_data) {
    return synchronize_event(event, {go_on, user_data});
}

uhalHostResult uhalHostEventQuery(void *handle) {
    return with_uncaptured(handle, [](Event &event) -> int {
        return event.complete() ? UHAL_HOST_SUCCESS : UHAL_HOST_ERROR_NOT_READY;
    });
}

uhalHostResult uhalHostEventElapsedTime(float *milliseconds, void *start, void *end) {
    return with_uncaptured(start, [&](Event &first) {
        return with_uncaptured(end, [&](Event &second) -> int {
            if (!first.timed() || !second.timed()) {
                return UHAL_HOST_ERROR_INVALID_HANDLE;
            }
            const MarkHold from(first.latest());
            const MarkHold to(second.latest());
            if (!from || !to) {
                return UHAL_HOST_ERROR_INVALID_HANDLE;
            }
            if (!from->done() || !to->done()) {
                return UHAL_HOST_ERROR_NOT_READY;
            }
            const int64_t passed = to->nanoseconds() - from->nanoseconds();
            *milliseconds = static_cast<float>(static_cast<double>(passed) * 1e-6);
            return UHAL_HOST_SUCCESS;
        });
    });
}

} // extern "C"
