// Stream capture: streams that record into a graph instead of running.
#include <algorithm>

#include "operations.h"

using namespace cuda_sim;

namespace {

template <class Body> CUresult with_stream(const char *name, CUstream handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(call, *stream);
    });
}

uint64_t last_capture_id = 0;

CUstreamCaptureStatus status_of(const Stream &stream) {
    if (stream.capture == nullptr) {
        return CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return stream.capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                 : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
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
}

CUresult info(const char *name, CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
              CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    return with_stream(name, handle, [&](Call &call, Stream &stream) {
        if (status == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *status = status_of(stream);
        if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            return CUDA_SUCCESS;
        }
        Capture &capture = *stream.capture;
        name_nodes(call.driver, capture.graph);
        capture.answered.clear();
        for (const size_t end : stream.capture_ends) {
            capture.answered.push_back(capture.graph->steps[end].node->handle);
        }
        if (id != nullptr) {
            *id = capture.id;
        }
        if (graph != nullptr) {
            *graph = capture.graph->handle;
        }
        if (dependencies != nullptr) {
            *dependencies = capture.answered.data();
        }
        if (count != nullptr) {
            *count = capture.answered.size();
        }
        return CUDA_SUCCESS;
    });
}

} // namespace

CUresult cuda_sim::join_capture(Stream &stream, const Event &event) {
    const std::shared_ptr<Capture> &capture = event.capture;
    if (!capture->valid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream.kind == Stream::Kind::legacy) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream.capture != nullptr && stream.capture != capture) {
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    // After the end of a capture its events lead nowhere.
    if (capture->streams.empty()) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    stream.capture = capture;
    capture->streams.insert(&stream);
    for (const size_t end : event.capture_ends) {
        auto &ends = stream.capture_ends;
        if (std::find(ends.begin(), ends.end(), end) == ends.end()) {
            ends.push_back(end);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (stream.kind == Stream::Kind::legacy) {
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        if (stream.capture != nullptr || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            return stream.capture != nullptr ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE;
        }
        const auto capture = std::make_shared<Capture>();
        capture->id = ++last_capture_id;
        capture->mode = mode;
        capture->thread = std::this_thread::get_id();
        capture->graph = std::make_shared<Graph>();
        capture->graph->capture = capture;
        capture->streams = {&stream};
        call.driver.graphs.add(capture->graph);
        stream.capture = capture;
        stream.capture_origin = true;
        stream.capture_ends.clear();
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        const std::shared_ptr<Capture> capture = stream.capture;
        if (phGraph == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *phGraph = nullptr;
        if (capture == nullptr) {
            return CUDA_ERROR_ILLEGAL_STATE;
        }
        if (!stream.capture_origin) {
            capture->valid = false;
            return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
        }
        if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
            capture->thread != std::this_thread::get_id()) {
            return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        }
        const bool joined = all_joined(*capture, stream);
        const bool valid = capture->valid;
        leave(*capture);
        capture->streams.clear();
        if (!valid || !joined) {
            call.driver.graphs.remove(capture->graph->handle);
            return valid ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                         : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        name_nodes(call.driver, capture->graph);
        *phGraph = capture->graph->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    return with_stream(__func__, hStream, [&](Call &, Stream &stream) {
        if (captureStatus == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *captureStatus = status_of(stream);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out) {
    return info(__func__, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out) {
    if (edgeData_out != nullptr) {
        *edgeData_out = nullptr;
    }
    return info(__func__, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    return initialized(__func__, [&](Call &) {
        if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::swap(*mode, thread_capture_mode());
        return CUDA_SUCCESS;
    });
}
