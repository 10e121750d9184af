// Stream capture: streams that record into a graph instead of running.
#include <algorithm>

#include "graph_calls.h"

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
              CUgraph *graph, const CUgraphNode **dependencies, size_t *count,
              const CUgraphEdgeData **edges = nullptr) {
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
        if (edges != nullptr) {
            capture.answered_edges.assign(capture.answered.size(), {});
            *edges = capture.answered_edges.data();
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
        graph->id = next_graph_id();
        call.driver.graphs.add(graph);
        sim::begin_capture<Capture>(stream, mode, graph);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamBeginCapture(CUstream hStream) {
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        const sim::CaptureAnswer answer = sim::may_begin_capture(stream, mode);
        if (answer != sim::CaptureAnswer::ok) {
            return to_result(answer);
        }
        const CUresult plain = check_edges(dependencyData, numDependencies);
        if (plain != CUDA_SUCCESS) {
            return plain;
        }
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(hGraph);
        std::vector<size_t> after;
        if (graph == nullptr ||
            !find_steps(call.driver, graph, dependencies, numDependencies, after)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto other = graph->capture.lock();
        if (other != nullptr && !other->streams.empty()) {
            return refuse(CUDA_ERROR_INVALID_VALUE,
                          "a stream is capturing into this graph already");
        }
        sim::begin_capture<Capture>(stream, mode, graph, std::move(after));
        stream.capture->into_given = true;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        // A capture into the program's own graph needs no output parameter.
        const bool into_given = stream.capture != nullptr && stream.capture->into_given;
        if (phGraph == nullptr && !into_given) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        CUgraph ignored = nullptr;
        CUgraph &made = phGraph == nullptr ? ignored : *phGraph;
        made = nullptr;
        sim::CaptureAnswer answer = sim::may_end_capture(stream);
        if (answer != sim::CaptureAnswer::ok) {
            return to_result(answer);
        }
        const std::shared_ptr<Graph> graph = stream.capture->graph;
        answer = sim::end_capture(stream);
        name_nodes(call.driver, graph);
        if (answer != sim::CaptureAnswer::ok) {
            if (!into_given) {
                forget_graph(call.driver, *graph);
            }
            return to_result(answer);
        }
        made = graph->handle;
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
    return info(__func__, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out, edgeData_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out) {
    return info(__func__, hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, unsigned int flags) {
    return with_stream(__func__, hStream, [&](Call &call, Stream &stream) {
        if (stream.capture == nullptr) {
            return CUDA_ERROR_ILLEGAL_STATE;
        }
        Capture &capture = *stream.capture;
        if (!capture.valid) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        const CUresult plain = check_edges(dependencyData, numDependencies);
        if (plain != CUDA_SUCCESS) {
            return plain;
        }
        std::vector<size_t> given;
        if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES ||
            !find_steps(call.driver, capture.graph, dependencies, numDependencies, given)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::vector<size_t> &ends = stream.capture_ends;
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
            // The manual says that the first stream need not wait for nodes removed from the set.
            capture.excused.insert(capture.excused.end(), ends.begin(), ends.end());
            ends.clear();
        }
        for (const size_t step : given) {
            if (std::find(ends.begin(), ends.end(), step) == ends.end()) {
                ends.push_back(step);
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags) {
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies,
                                                flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    return initialized(__func__,
                       [&](Call &) { return to_result(sim::exchange_capture_mode(mode)); });
}
