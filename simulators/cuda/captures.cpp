// Stream capture: streams that record into a graph instead of running.
#include "operations.h"

using namespace cuda_sim;

namespace {

template <class Body> CUresult with_stream(const char *name, CUstream handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(call, *stream);
    });
}

CUstreamCaptureStatus status_of(const Stream &stream) {
    return static_cast<CUstreamCaptureStatus>(sim::capture_status(stream));
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

CUresult cuda_sim::to_result(sim::CaptureAnswer answer) {
    switch (answer) {
    case sim::CaptureAnswer::ok:
        return CUDA_SUCCESS;
    case sim::CaptureAnswer::captured_event:
        return CUDA_ERROR_CAPTURED_EVENT;
    case sim::CaptureAnswer::illegal_state:
        return CUDA_ERROR_ILLEGAL_STATE;
    case sim::CaptureAnswer::implicit:
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    case sim::CaptureAnswer::invalid_value:
        return CUDA_ERROR_INVALID_VALUE;
    case sim::CaptureAnswer::invalidated:
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    case sim::CaptureAnswer::merge:
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    case sim::CaptureAnswer::unjoined:
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    case sim::CaptureAnswer::unmatched:
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    case sim::CaptureAnswer::unsupported:
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    case sim::CaptureAnswer::wrong_thread:
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    return CUDA_ERROR_UNKNOWN;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        const sim::CaptureAnswer answer = sim::may_begin_capture(stream, mode);
        if (answer != sim::CaptureAnswer::ok) {
            return to_result(answer);
        }
        const auto graph = std::make_shared<Graph>();
        call.driver.graphs.add(graph);
        sim::begin_capture<Capture>(stream, mode, graph);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (phGraph == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *phGraph = nullptr;
        sim::CaptureAnswer answer = sim::may_end_capture(stream);
        if (answer != sim::CaptureAnswer::ok) {
            return to_result(answer);
        }
        const std::shared_ptr<Graph> graph = stream.capture->graph;
        answer = sim::end_capture(stream);
        if (answer != sim::CaptureAnswer::ok) {
            call.driver.graphs.remove(graph->handle);
            return to_result(answer);
        }
        name_nodes(call.driver, graph);
        *phGraph = graph->handle;
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
    return initialized(__func__,
                       [&](Call &) { return to_result(sim::exchange_capture_mode(mode)); });
}
