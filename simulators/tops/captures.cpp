// Stream capture: streams that record into a graph instead of running.
#include "operations.h"

using namespace tops_sim;

namespace {

template <class Body> topsError_t with_stream(const char *name, topsStream_t handle, Body body) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? topsErrorInvalidHandle : body(call, *stream);
    });
}

topsStreamCaptureStatus status_of(const Stream &stream) {
    return static_cast<topsStreamCaptureStatus>(sim::capture_status(stream));
}

} // namespace

topsError_t tops_sim::to_result(sim::CaptureAnswer answer) {
    switch (answer) {
    case sim::CaptureAnswer::ok:
        return topsSuccess;
    case sim::CaptureAnswer::captured_event:
        return topsErrorCapturedEvent;
    case sim::CaptureAnswer::illegal_state:
        return topsErrorIllegalState;
    case sim::CaptureAnswer::implicit:
        return topsErrorStreamCaptureImplicit;
    case sim::CaptureAnswer::invalid_value:
        return topsErrorInvalidValue;
    case sim::CaptureAnswer::invalidated:
        return topsErrorStreamCaptureInvalidated;
    case sim::CaptureAnswer::merge:
        return topsErrorStreamCaptureMerge;
    case sim::CaptureAnswer::unjoined:
        return topsErrorStreamCaptureUnjoined;
    case sim::CaptureAnswer::unmatched:
        return topsErrorStreamCaptureUnmatched;
    case sim::CaptureAnswer::unsupported:
        return topsErrorStreamCaptureUnsupported;
    case sim::CaptureAnswer::wrong_thread:
        return topsErrorStreamCaptureWrongThread;
    }
    return topsErrorUnknown;
}

topsError_t topsStreamBeginCapture(topsStream_t handle, topsStreamCaptureMode mode) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        const sim::CaptureAnswer answer = sim::may_begin_capture(stream, mode);
        if (answer != sim::CaptureAnswer::ok) {
            return to_result(answer);
        }
        const auto graph = std::make_shared<Graph>();
        call.runtime.graphs.add(graph);
        sim::begin_capture<Capture>(stream, mode, graph);
        return topsSuccess;
    });
}

topsError_t topsStreamEndCapture(topsStream_t handle, topsGraph_t *graph) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        if (graph == nullptr) {
            return topsErrorInvalidValue;
        }
        *graph = nullptr;
        sim::CaptureAnswer answer = sim::may_end_capture(stream);
        if (answer != sim::CaptureAnswer::ok) {
            return to_result(answer);
        }
        const std::shared_ptr<Graph> made = stream.capture->graph;
        answer = sim::end_capture(stream);
        if (answer != sim::CaptureAnswer::ok) {
            call.runtime.graphs.remove(made->handle);
            return to_result(answer);
        }
        *graph = made->handle;
        return topsSuccess;
    });
}

topsError_t topsStreamIsCapturing(topsStream_t handle, topsStreamCaptureStatus *status) {
    return with_stream(__func__, handle, [&](Call &, Stream &stream) {
        if (status == nullptr) {
            return topsErrorInvalidValue;
        }
        *status = status_of(stream);
        return topsSuccess;
    });
}

topsError_t topsStreamGetCaptureInfo(topsStream_t handle, topsStreamCaptureStatus *status,
                                     unsigned long long *id) {
    return with_stream(__func__, handle, [&](Call &, Stream &stream) {
        if (status == nullptr) {
            return topsErrorInvalidValue;
        }
        *status = status_of(stream);
        if (id != nullptr && *status == topsStreamCaptureStatusActive) {
            *id = stream.capture->id;
        }
        return topsSuccess;
    });
}

topsError_t topsThreadExchangeStreamCaptureMode(topsStreamCaptureMode *mode) {
    return in_process(__func__,
                      [&](Call &) { return to_result(sim::exchange_capture_mode(mode)); });
}
