// Captures and graphs.

#include <algorithm>
#include <utility>

#include "api.h"
#include "capture.h"

using namespace uhal_host;

namespace {

// Handles of kernels are the indices of their steps, counted from 1, so that no handle is null.
void *node_of(size_t step) { return reinterpret_cast<void *>(step + 1); }

size_t step_of(void *node) { return reinterpret_cast<size_t>(node) - 1; }

} // namespace

extern "C" {

uhalHostResult uhalHostStreamBeginCapture(void *handle, int mode) {
    return with_stream(handle, [&](Stream &stream) -> int {
        return mode == UHAL_HOST_STREAM_CAPTURE_MODE_RELAXED ? Capture::begin(stream)
                                                             : UHAL_HOST_ERROR_INVALID_VALUE;
    });
}

uhalHostResult uhalHostStreamEndCapture(void *handle, void **graph) {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Stream &stream = *static_cast<Stream *>(handle);
        std::unique_ptr<Graph> captured;
        int error = Capture::end(stream, captured);
        // This check comes after the end of the capture, because a capture must end on a lost
        // device, too.
        if (error == UHAL_HOST_SUCCESS) {
            error = check_device(stream.device());
        }
        if (error == UHAL_HOST_SUCCESS) {
            *graph = captured.release();
        }
        return error;
    });
}

uhalHostResult uhalHostStreamIsCapturing(void *handle, int *status) {
    return with_stream(handle, [&](Stream &stream) {
        *status = Capture::status(stream);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostGraphGetKernels(void *handle, void **nodes, size_t *count) {
    const Steps &steps = static_cast<const Graph *>(handle)->steps;
    *count = 0;
    for (size_t step = 0; step < steps.size(); ++step) {
        if (!steps[step]->is_launch()) {
            continue;
        }
        if (nodes != nullptr) {
            nodes[*count] = node_of(step);
        }
        ++*count;
    }
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostGraphGetCounts(void *handle, size_t *steps, size_t *host_functions) {
    const Steps &all = static_cast<const Graph *>(handle)->steps;
    *steps = all.size();
    *host_functions = static_cast<size_t>(std::count_if(
        all.begin(), all.end(), [](const auto &step) { return step->is_host_function(); }));
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostGraphDestroy(void *handle) {
    return guarded([&]() -> int {
        delete static_cast<Graph *>(handle);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostGraphInstantiate(void **executable, void *handle) {
    return guarded([&]() -> int {
        const Graph &graph = *static_cast<const Graph *>(handle);
        if (const int error = check_device(graph.device)) {
            return error;
        }
        *executable = new Executable(graph);
        graph.device.runtime.live_executables.fetch_add(1);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostGraphExecDestroy(void *handle) {
    return guarded([&]() -> int {
        Executable *const executable = static_cast<Executable *>(handle);
        executable->device().runtime.live_executables.fetch_sub(1);
        executable->drop();
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostGraphLaunch(void *handle, void *stream) {
    return with_stream(stream, [&](Stream &into) -> int {
        Executable &executable = *static_cast<Executable *>(handle);
        if (&executable.device() != &into.device()) {
            set_error_text("the graph is of another device than the stream");
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        if (into.capturing()) {
            return Capture::refuse(into, "the launch of a graph");
        }
        executable.launch(into);
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostGraphExecKernelNodeSetParams(void *handle, void *node, void *function,
                                                    unsigned int grid_x, unsigned int grid_y,
                                                    unsigned int grid_z, unsigned int block_x,
                                                    unsigned int block_y, unsigned int block_z,
                                                    unsigned int shared_bytes, void **parameters) {
    return guarded([&]() -> int {
        Executable &executable = *static_cast<Executable *>(handle);
        if (const int error = check_device(executable.device())) {
            return error;
        }
        const Launch launch = make_launch(function, {grid_x, grid_y, grid_z},
                                          {block_x, block_y, block_z}, shared_bytes, parameters);
        if (const int error = check_launch(launch)) {
            return error;
        }
        executable.change(step_of(node), launch);
        return UHAL_HOST_SUCCESS;
    });
}

} // extern "C"
