#include "capture.h"

namespace sim {

CaptureMode &thread_capture_mode() {
    thread_local CaptureMode mode = CaptureMode::global;
    return mode;
}

uint64_t next_capture_id() {
    // The caller holds the scheduler's mutex.
    static uint64_t last = 0;
    return ++last;
}

} // namespace sim
