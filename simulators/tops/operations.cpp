#include "operations.h"

#include "kernel_work.h"

namespace tops_sim {

namespace {

std::shared_ptr<Stream> per_thread_stream(Call &call) {
    std::shared_ptr<Stream> &stream = call.device->per_thread[std::this_thread::get_id()];
    if (stream == nullptr) {
        stream = call.runtime.make_stream(*call.device, Stream::Kind::blocking);
        stream->implicit = true;
    }
    return stream;
}

std::vector<sim::Point> implicit_order(const Stream &stream) {
    return sim::implicit_order(stream, stream.device->blocking, stream.device->null_stream);
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
    const sim::CaptureAnswer implicit =
        sim::check_implicit_order(call.runtime.streams.all(), stream, [&](const Stream &other) {
            return other.device == stream.device;
        });
    if (implicit != sim::CaptureAnswer::ok) {
        return to_result(implicit);
    }
    if (stream.capture != nullptr) {
        return to_result(sim::record_in_capture(stream, std::move(operation)));
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
    return to_result(sim::check_capture_unsafe(call.runtime.graphs.all()));
}

topsError_t check_not_capturing(Stream &stream) {
    return to_result(sim::check_not_capturing(stream));
}

} // namespace tops_sim
