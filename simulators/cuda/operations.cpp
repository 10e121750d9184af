#include "operations.h"

#include "../engine/printed.h"

#include "kernel_work.h"

namespace cuda_sim {

namespace {

std::shared_ptr<Stream> per_thread_stream(Call &call) {
    std::shared_ptr<Stream> &stream = call.context->per_thread[std::this_thread::get_id()];
    if (stream == nullptr) {
        stream = call.driver.make_stream(call.context, Stream::Kind::blocking);
        stream->implicit = true;
    }
    return stream;
}

std::vector<sim::Point> implicit_order(const Stream &stream) {
    return sim::implicit_order(stream, stream.context->blocking, stream.context->legacy);
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
    const sim::CaptureAnswer implicit =
        sim::check_implicit_order(call.driver.streams.all(), stream, [&](const Stream &other) {
            return other.context == stream.context;
        });
    if (implicit != sim::CaptureAnswer::ok) {
        return to_result(implicit);
    }
    if (stream.capture != nullptr) {
        return to_result(sim::record_in_capture(stream, std::move(operation)));
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
    return fault == CUDA_SUCCESS ? fault : refuse_fault(fault, call.device->device.fault_text);
}

CUresult check_capture_unsafe(Call &call) {
    return to_result(sim::check_capture_unsafe(call.driver.graphs.all()));
}

CUresult check_not_capturing(Stream &stream) {
    return to_result(sim::check_not_capturing(stream));
}

} // namespace cuda_sim
