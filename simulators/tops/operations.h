// Puts operations on streams: orders them, or records them into a graph.
#pragma once

#include "call.h"

namespace tops_sim {

// The stream a handle names for this thread and the current device; null for a stale handle.
std::shared_ptr<Stream> stream_of(Call &call, topsStream_t handle);

// Like stream_of, but null also for a stream of another device, which cannot take work.
std::shared_ptr<Stream> own_stream_of(Call &call, topsStream_t handle);

// Queues the operation, or records it when the stream is capturing.
topsError_t enqueue(Call &call, Stream &stream, Operation operation,
                    std::vector<sim::Point> after = {});

// The points that a wait for this stream covers: for the null stream, blocking streams too.
std::vector<sim::Point> ends_of(const Stream &stream);

// Waits, then returns the fault of the current device if there is one.
topsError_t wait_for(Call &call, const std::vector<sim::Point> &points);

// The error for a call that is forbidden during a capture of this thread, or of any thread in
// global mode. Such a call invalidates these captures. topsSuccess when the call is allowed.
topsError_t check_capture_unsafe(Call &call);

// The error for a wait on a capturing stream; such a wait invalidates the capture.
topsError_t check_not_capturing(Stream &stream);

// Converts the answer of a capture rule to TopsRuntime's result.
topsError_t to_result(sim::CaptureAnswer answer);

} // namespace tops_sim
