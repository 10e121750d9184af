// Stream capture: streams that record into a graph instead of running.
#include <algorithm>

#include "operations.h"

using namespace tops_sim;

namespace {

template <class Body> topsError_t with_stream(const char *name, topsStream_t handle, Body body) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? topsErrorInvalidHandle : body(call, *stream);
    });
}

uint64_t last_capture_id = 0;

topsStreamCaptureStatus status_of(const Stream &stream) {
    if (stream.capture == nullptr) {
        return topsStreamCaptureStatusNone;
    }
    return stream.capture->valid ? topsStreamCaptureStatusActive
                                 : topsStreamCaptureStatusInvalidated;
}

// Every captured operation must lead to the end of the stream the capture began on.
bool all_joined(const Capture &capture, const Stream &origin) {
    const std::vector<GraphStep> &steps = capture.graph->steps;
    std::vector<bool> reached(steps.size(), false);
    std::vector<size_t> todo = origin.capture_ends;
    while (!todo.empty()) {
        const size_t step = todo.back();
        todo.pop_back();
        if (!reached[step]) {
            reached[step] = true;
            todo.insert(todo.end(), steps[step].after.begin(), steps[step].after.end());
        }
    }
    return std::all_of(reached.begin(), reached.end(), [](bool yes) { return yes; });
}

void leave(Capture &capture) {
    for (Stream *stream : capture.streams) {
        stream->capture_origin = false;
        stream->capture_ends.clear();
        stream->capture = nullptr;
    }
    capture.streams.clear();
}

} // namespace

topsError_t tops_sim::join_capture(Stream &stream, const Event &event) {
    const std::shared_ptr<Capture> &capture = event.capture;
    if (!capture->valid) {
        return topsErrorStreamCaptureInvalidated;
    }
    if (stream.kind == Stream::Kind::null) {
        return topsErrorStreamCaptureImplicit;
    }
    if (stream.capture != nullptr && stream.capture != capture) {
        return topsErrorStreamCaptureMerge;
    }
    // After the end of a capture its events lead nowhere.
    if (capture->streams.empty()) {
        return topsErrorCapturedEvent;
    }
    stream.capture = capture;
    capture->streams.insert(&stream);
    for (const size_t end : event.capture_ends) {
        auto &ends = stream.capture_ends;
        if (std::find(ends.begin(), ends.end(), end) == ends.end()) {
            ends.push_back(end);
        }
    }
    return topsSuccess;
}

topsError_t topsStreamBeginCapture(topsStream_t handle, topsStreamCaptureMode mode) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        if (stream.kind == Stream::Kind::null) {
            return topsErrorStreamCaptureUnsupported;
        }
        if (stream.capture != nullptr || mode > topsStreamCaptureModeRelaxed) {
            return stream.capture != nullptr ? topsErrorIllegalState : topsErrorInvalidValue;
        }
        const auto capture = std::make_shared<Capture>();
        capture->id = ++last_capture_id;
        capture->mode = mode;
        capture->thread = std::this_thread::get_id();
        capture->graph = std::make_shared<Graph>();
        capture->graph->capture = capture;
        capture->streams = {&stream};
        call.runtime.graphs.add(capture->graph);
        stream.capture = capture;
        stream.capture_origin = true;
        stream.capture_ends.clear();
        return topsSuccess;
    });
}

topsError_t topsStreamEndCapture(topsStream_t handle, topsGraph_t *graph) {
    return with_stream(__func__, handle, [&](Call &call, Stream &stream) {
        const std::shared_ptr<Capture> capture = stream.capture;
        if (graph == nullptr) {
            return topsErrorInvalidValue;
        }
        *graph = nullptr;
        if (capture == nullptr) {
            return topsErrorIllegalState;
        }
        if (!stream.capture_origin) {
            capture->valid = false;
            return topsErrorStreamCaptureUnmatched;
        }
        if (capture->mode != topsStreamCaptureModeRelaxed &&
            capture->thread != std::this_thread::get_id()) {
            return topsErrorStreamCaptureWrongThread;
        }
        const bool joined = all_joined(*capture, stream);
        leave(*capture);
        if (!capture->valid || !joined) {
            call.runtime.graphs.remove(capture->graph->handle);
            return capture->valid ? topsErrorStreamCaptureUnjoined
                                  : topsErrorStreamCaptureInvalidated;
        }
        *graph = capture->graph->handle;
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
    return in_process(__func__, [&](Call &) {
        if (mode == nullptr || *mode > topsStreamCaptureModeRelaxed) {
            return topsErrorInvalidValue;
        }
        std::swap(*mode, thread_capture_mode());
        return topsSuccess;
    });
}
