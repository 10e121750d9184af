// Puts operations on streams: orders them, or records them into a graph.
#pragma once

#include "call.h"

namespace cuda_sim {

// The stream a handle names for this thread and the current context; null for a stale handle.
std::shared_ptr<Stream> stream_of(Call &call, CUstream handle);

// Queues the operation, or records it when the stream is capturing.
CUresult enqueue(Call &call, Stream &stream, Operation operation,
                 std::vector<sim::Point> after = {});

// Records the event on a stream that is not capturing.
CUresult record_event(Call &call, Stream &stream, Event &event);

// Makes a stream that is not capturing wait for the event's latest record.
void wait_for_event(Call &call, Stream &stream, const Event &event);

Operation make_host_call(const CUDA_HOST_NODE_PARAMS_v2 &what);

// The points that a wait for this stream covers; for the legacy stream, this includes blocking
// streams.
std::vector<sim::Point> ends_of(Stream &stream);

// Work of an operation when the stream reaches it.
std::function<sim::Status()> work_of(const Operation &operation);

// Waits, then returns the device's fault if there is one.
CUresult wait_for(Call &call, const std::vector<sim::Point> &points);

// The error for a call that is forbidden while this thread captures, or while any thread captures
// in global mode. Such a call invalidates these captures. Returns CUDA_SUCCESS if the call is
// allowed.
CUresult check_capture_unsafe(Call &call);

// The error for a wait on a capturing stream, which invalidates the capture.
CUresult check_not_capturing(Stream &stream);

// Converts the answer of a capture rule to CUDA's result.
CUresult to_result(sim::CaptureAnswer answer);

// Gives handles to nodes that have none.
void name_nodes(Driver &driver, const std::shared_ptr<Graph> &graph);

} // namespace cuda_sim
