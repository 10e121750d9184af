// Puts operations on streams: in what order they run, or into which graph they are recorded.
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

// Everything a wait for this stream waits for: for the legacy stream, the blocking ones too.
std::vector<sim::Point> ends_of(Stream &stream);

// What the operation does when it is reached.
std::function<sim::Status()> work_of(const Operation &operation);

// Waits, then answers with the device's fault if there is one.
CUresult wait_for(Call &call, const std::vector<sim::Point> &points);

// The error for a call that may not be made now because this thread, or in the global mode any,
// is capturing; such a call spoils the captures it endangers. CUDA_SUCCESS when it may be made.
CUresult check_capture_unsafe(Call &call);

// The error for waiting on a stream that is capturing, which spoils the capture.
CUresult check_not_capturing(Stream &stream);

// What a rule of captures answered, in CUDA's words.
CUresult to_result(sim::CaptureAnswer answer);

// Gives handles to the nodes that have none yet.
void name_nodes(Driver &driver, const std::shared_ptr<Graph> &graph);

} // namespace cuda_sim
