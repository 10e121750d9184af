#include "operations.h"

#include "../engine/printed.h"

#include "kernel_work.h"

namespace cuda_sim {

namespace {

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::shared_ptr<Stream> per_thread_stream(Call &call) {
    std::shared_ptr<Stream> &stream = call.context->per_thread[std::this_thread::get_id()];
    if (stream == nullptr) {
        stream = call.driver.make_stream(call.context, Stream::Kind::blocking);
        stream->implicit = true;
    }
    return stream;
}

// The captures of streams that an operation on the legacy stream would have to wait for.
CUresult check_implicit_order(Call &call, const Stream &stream) {
    if (stream.kind != Stream::Kind::legacy) {
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    for (const auto &[handle, other] : call.driver.streams.all()) {
        if (other->capture != nullptr && other->context == stream.context &&
            other->kind == Stream::Kind::blocking) {
            other->capture->valid = false;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
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
    if (stream.kind == Stream::Kind::legacy) {
        for (const auto &queue : stream.context->blocking) {
            add(queue);
        }
    } else if (stream.kind == Stream::Kind::blocking && stream.context->legacy != nullptr) {
        add(stream.context->legacy->queue);
    }
    return points;
}

CUresult record(Stream &stream, Operation operation) {
    Capture &capture = *stream.capture;
    if (!capture.valid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    std::vector<GraphStep> &steps = capture.graph->steps;
    steps.push_back({std::move(operation), stream.capture_ends, nullptr, {}});
    stream.capture_ends = {steps.size() - 1};
    return CUDA_SUCCESS;
}

} // namespace

std::shared_ptr<Stream> stream_of(Call &call, CUstream handle) {
    const uint64_t value = reinterpret_cast<uint64_t>(handle);
    if (value == CU_STREAM_PER_THREAD || (value == 0 && PerThreadDefault::active())) {
        return per_thread_stream(call);
    }
    if (value == CU_STREAM_LEGACY || value == 0) {
        return call.context->legacy;
    }
    return call.driver.streams.find(handle);
}

CUresult enqueue(Call &call, Stream &stream, Operation operation, std::vector<sim::Point> after) {
    const CUresult implicit = check_implicit_order(call, stream);
    if (implicit != CUDA_SUCCESS) {
        return implicit;
    }
    if (stream.capture != nullptr) {
        return record(stream, std::move(operation));
    }
    sim::Task task;
    task.work = work_of(operation);
    task.after = implicit_order(stream);
    task.after.insert(task.after.end(), after.begin(), after.end());
    task.calls_back = operation.calls_back;
    call.driver.scheduler.submit(call.lock, stream.queue, std::move(task));
    return CUDA_SUCCESS;
}

std::vector<sim::Point> ends_of(Stream &stream) {
    std::vector<sim::Point> points;
    if (stream.kind == Stream::Kind::legacy) {
        points = implicit_order(stream);
    }
    points.push_back({stream.queue, stream.queue->submitted});
    return points;
}

std::function<sim::Status()> work_of(const Operation &operation) {
    if (operation.kernel != nullptr) {
        return kernel_work(operation.kernel);
    }
    return operation.work ? operation.work : [] { return sim::Status::ok; };
}

CUresult wait_for(Call &call, const std::vector<sim::Point> &points) {
    call.driver.scheduler.wait(call.lock, points);
    sim::print_now();
    const CUresult fault = call.fault();
    return fault == CUDA_SUCCESS ? fault : refuse(fault, call.device->device.fault_text);
}

CUresult check_capture_unsafe(Call &call) {
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    for (const auto &[handle, graph] : call.driver.graphs.all()) {
        const std::shared_ptr<Capture> captured = graph->capture.lock();
        if (captured == nullptr || captured->streams.empty()) {
            continue;
        }
        Capture &capture = *captured;
        const bool everywhere = capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        const bool here = capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                          capture.thread == std::this_thread::get_id();
        if (everywhere || here) {
            capture.valid = false;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult check_not_capturing(Stream &stream) {
    if (stream.capture == nullptr) {
        return CUDA_SUCCESS;
    }
    stream.capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUstreamCaptureMode &thread_capture_mode() {
    return capture_mode;
}

} // namespace cuda_sim
