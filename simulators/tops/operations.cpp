#include "operations.h"

#include "kernel_work.h"

namespace tops_sim {

namespace {

thread_local topsStreamCaptureMode capture_mode = topsStreamCaptureModeGlobal;

std::shared_ptr<Stream> per_thread_stream(Call &call) {
    std::shared_ptr<Stream> &stream = call.device->per_thread[std::this_thread::get_id()];
    if (stream == nullptr) {
        stream = call.runtime.make_stream(*call.device, Stream::Kind::blocking);
        stream->implicit = true;
    }
    return stream;
}

// The captures of streams that an operation on the null stream would have to wait for.
topsError_t check_implicit_order(Call &call, const Stream &stream) {
    if (stream.kind != Stream::Kind::null) {
        return topsSuccess;
    }
    topsError_t result = topsSuccess;
    for (const auto &[handle, other] : call.runtime.streams.all()) {
        if (other->capture != nullptr && other->device == stream.device &&
            other->kind == Stream::Kind::blocking) {
            other->capture->valid = false;
            result = topsErrorStreamCaptureImplicit;
        }
    }
    return result;
}

std::vector<sim::Point> implicit_order(const Stream &stream) {
    std::vector<sim::Point> points;
    const auto add = [&](const std::shared_ptr<sim::Queue> &queue) {
        if (!queue->empty()) {
            points.push_back({queue, queue->submitted});
        }
    };
    if (stream.kind == Stream::Kind::null) {
        for (const auto &queue : stream.device->blocking) {
            add(queue);
        }
    } else if (stream.kind == Stream::Kind::blocking) {
        add(stream.device->null_stream->queue);
    }
    return points;
}

topsError_t record(Stream &stream, Operation operation) {
    Capture &capture = *stream.capture;
    if (!capture.valid) {
        return topsErrorStreamCaptureInvalidated;
    }
    std::vector<GraphStep> &steps = capture.graph->steps;
    steps.push_back({std::move(operation), stream.capture_ends});
    stream.capture_ends = {steps.size() - 1};
    return topsSuccess;
}

} // namespace

std::shared_ptr<Stream> stream_of(Call &call, topsStream_t handle) {
    if (handle == nullptr) {
        return call.device->null_stream;
    }
    return handle == topsStreamPerThread ? per_thread_stream(call)
                                         : call.runtime.streams.find(handle);
}

std::shared_ptr<Stream> own_stream_of(Call &call, topsStream_t handle) {
    const std::shared_ptr<Stream> stream = stream_of(call, handle);
    return stream != nullptr && stream->device == call.device ? stream : nullptr;
}

topsError_t enqueue(Call &call, Stream &stream, Operation operation,
                    std::vector<sim::Point> after) {
    const topsError_t implicit = check_implicit_order(call, stream);
    if (implicit != topsSuccess) {
        return implicit;
    }
    if (stream.capture != nullptr) {
        return record(stream, std::move(operation));
    }
    sim::Task task;
    task.work = operation.kernel != nullptr ? kernel_work(operation.kernel) : operation.work;
    task.after = implicit_order(stream);
    task.after.insert(task.after.end(), after.begin(), after.end());
    task.calls_back = operation.calls_back;
    call.runtime.scheduler.submit(call.lock, stream.queue, std::move(task));
    return topsSuccess;
}

std::vector<sim::Point> ends_of(const Stream &stream) {
    std::vector<sim::Point> points;
    if (stream.kind == Stream::Kind::null) {
        points = implicit_order(stream);
    }
    points.push_back({stream.queue, stream.queue->submitted});
    return points;
}

topsError_t wait_for(Call &call, const std::vector<sim::Point> &points) {
    call.runtime.scheduler.wait(call.lock, points);
    return call.fault();
}

topsError_t check_capture_unsafe(Call &call) {
    if (capture_mode == topsStreamCaptureModeRelaxed) {
        return topsSuccess;
    }
    topsError_t result = topsSuccess;
    for (const auto &[handle, graph] : call.runtime.graphs.all()) {
        const std::shared_ptr<Capture> captured = graph->capture.lock();
        if (captured == nullptr || captured->streams.empty()) {
            continue;
        }
        Capture &capture = *captured;
        const bool everywhere = capture.mode == topsStreamCaptureModeGlobal &&
                                capture_mode == topsStreamCaptureModeGlobal;
        const bool here = capture.mode != topsStreamCaptureModeRelaxed &&
                          capture.thread == std::this_thread::get_id();
        if (everywhere || here) {
            capture.valid = false;
            result = topsErrorStreamCaptureUnsupported;
        }
    }
    return result;
}

topsError_t check_not_capturing(Stream &stream) {
    if (stream.capture == nullptr) {
        return topsSuccess;
    }
    stream.capture->valid = false;
    return topsErrorStreamCaptureUnsupported;
}

topsStreamCaptureMode &thread_capture_mode() {
    return capture_mode;
}

} // namespace tops_sim
