// Puts operations on streams: in what order they run, or into which graph they are recorded.
#pragma once

#include "call.h"

namespace tops_sim {

// The stream a handle names for this thread and the current device; null for a stale handle.
std::shared_ptr<Stream> stream_of(Call &call, topsStream_t handle);

// stream_of, but null also for a stream of another device: work goes to the current one's only.
std::shared_ptr<Stream> own_stream_of(Call &call, topsStream_t handle);

// Queues the operation, or records it when the stream is capturing.
topsError_t enqueue(Call &call, Stream &stream, Operation operation,
                    std::vector<sim::Point> after = {});

// Everything a wait for this stream waits for: for the null stream, the blocking ones too.
std::vector<sim::Point> ends_of(const Stream &stream);

// Waits, then answers with the fault of the current device if there is one.
topsError_t wait_for(Call &call, const std::vector<sim::Point> &points);

// The error for a call that may not be made now because this thread, or in the global mode any,
// is capturing; such a call spoils the captures it endangers. topsSuccess when it may be made.
topsError_t check_capture_unsafe(Call &call);

// The error for waiting on a stream that is capturing, which spoils the capture.
topsError_t check_not_capturing(Stream &stream);

// What a rule of captures answered, in TopsRuntime's words.
topsError_t to_result(sim::CaptureAnswer answer);

} // namespace tops_sim
