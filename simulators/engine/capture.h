// The rules of stream capture, which the vendors share: the graph of each operation, errors that
// spoil a capture, and the order of streams that are not captured.
//
// The vendor's classes are template parameters. A Stream has `capture`, `capture_origin`,
// `capture_ends`, `queue`, `is_default()` and `is_blocking()`; an Event `capture` and
// `capture_ends`; a Graph a weak `capture` and `steps`, each with an `operation` and `after`, the
// indices of earlier steps. The vendor converts a rule's answer to its own codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "queue.h"

namespace sim {

enum class CaptureAnswer {
    ok,
    captured_event, // of an ended capture
    illegal_state,
    implicit, // the default stream may not take part
    invalid_value,
    invalidated,
    merge, // of two captures
    unjoined,
    unmatched, // ended on another stream than it began on
    unsupported,
    wrong_thread,
};

// Both vendors' headers have these values.
enum class CaptureMode : unsigned { global, of_thread, relaxed };
enum class CaptureStatus : unsigned { none, active, invalidated };

// A capture in progress, shared by the streams that joined it.
template <class Stream, class Graph> struct CaptureState {
    uint64_t id = 0;
    CaptureMode mode = CaptureMode::global;
    std::thread::id thread;
    bool valid = true;
    std::shared_ptr<Graph> graph;
    std::set<Stream *> streams;
    std::vector<size_t> recorded; // steps of the graph that the streams added
    std::vector<size_t> excused;  // steps that need not be joined, nor their predecessors
};

// Strictness of captures for this thread; a program may change it.
CaptureMode &thread_capture_mode();

uint64_t next_capture_id();

// -- the life of a capture ---------------------------------------------------------------------

template <class Stream> CaptureStatus capture_status(const Stream &stream) {
    if (stream.capture == nullptr) {
        return CaptureStatus::none;
    }
    return stream.capture->valid ? CaptureStatus::active : CaptureStatus::invalidated;
}

template <class Stream> CaptureAnswer may_begin_capture(const Stream &stream, unsigned mode) {
    if (stream.is_default()) {
        return CaptureAnswer::unsupported;
    }
    if (stream.capture != nullptr) {
        return CaptureAnswer::illegal_state;
    }
    return mode > static_cast<unsigned>(CaptureMode::relaxed) ? CaptureAnswer::invalid_value
                                                              : CaptureAnswer::ok;
}

// Called after may_begin_capture. No other capture may add to `graph`. The first operation comes
// after the existing steps `after`.
template <class Capture, class Stream, class Graph>
void begin_capture(Stream &stream, unsigned mode, const std::shared_ptr<Graph> &graph,
                   std::vector<size_t> after = {}) {
    const auto capture = std::make_shared<Capture>();
    capture->id = next_capture_id();
    capture->mode = static_cast<CaptureMode>(mode);
    capture->thread = std::this_thread::get_id();
    capture->graph = graph;
    capture->streams = {&stream};
    graph->capture = capture;
    stream.capture = capture;
    stream.capture_origin = true;
    stream.capture_ends = std::move(after);
}

// Makes a stream wait for a captured event, so that the stream joins the event's capture.
template <class Stream, class Event>
CaptureAnswer join_capture(Stream &stream, const Event &event) {
    const auto &capture = event.capture;
    if (!capture->valid) {
        return CaptureAnswer::invalidated;
    }
    if (stream.is_default()) {
        return CaptureAnswer::implicit;
    }
    if (stream.capture != nullptr && stream.capture != capture) {
        return CaptureAnswer::merge;
    }
    // A stream cannot wait for an event of an ended capture.
    if (capture->streams.empty()) {
        return CaptureAnswer::captured_event;
    }
    stream.capture = capture;
    capture->streams.insert(&stream);
    for (const size_t end : event.capture_ends) {
        auto &ends = stream.capture_ends;
        if (std::find(ends.begin(), ends.end(), end) == ends.end()) {
            ends.push_back(end);
        }
    }
    return CaptureAnswer::ok;
}

// Whether the end of the capture's first stream depends on every captured operation, except the
// excused operations.
template <class Stream> bool all_joined(const Stream &origin) {
    const auto &recorded = origin.capture->recorded;
    const auto &steps = origin.capture->graph->steps;
    std::vector<bool> reached(steps.size(), false);
    std::vector<size_t> todo = origin.capture_ends;
    const auto &excused = origin.capture->excused;
    todo.insert(todo.end(), excused.begin(), excused.end());
    while (!todo.empty()) {
        const size_t step = todo.back();
        todo.pop_back();
        if (!reached[step]) {
            reached[step] = true;
            todo.insert(todo.end(), steps[step].after.begin(), steps[step].after.end());
        }
    }
    return std::all_of(recorded.begin(), recorded.end(),
                       [&](size_t step) { return reached[step]; });
}

template <class Stream> CaptureAnswer may_end_capture(Stream &stream) {
    if (stream.capture == nullptr) {
        return CaptureAnswer::illegal_state;
    }
    auto &capture = *stream.capture;
    if (!stream.capture_origin) {
        capture.valid = false;
        return CaptureAnswer::unmatched;
    }
    const bool elsewhere = capture.thread != std::this_thread::get_id();
    return capture.mode != CaptureMode::relaxed && elsewhere ? CaptureAnswer::wrong_thread
                                                             : CaptureAnswer::ok;
}

template <class Capture> void release_streams(Capture &capture) {
    for (auto *stream : capture.streams) {
        stream->capture_origin = false;
        stream->capture_ends.clear();
        stream->capture = nullptr;
    }
    capture.streams.clear();
}

// Called after may_end_capture. Every stream leaves the capture. The graph is valid only if the
// result is ok.
template <class Stream> CaptureAnswer end_capture(Stream &origin) {
    const auto capture = origin.capture;
    const bool joined = all_joined(origin);
    release_streams(*capture);
    if (!capture->valid) {
        return CaptureAnswer::invalidated;
    }
    return joined ? CaptureAnswer::ok : CaptureAnswer::unjoined;
}

// Called for a stream destroyed while it captures. If the stream joined, the capture stays valid.
// The stream's recorded work stays in the graph, and the first stream must still wait for it. If
// the capture began on this stream, the capture ends, because nobody else can end it. Nothing uses
// the graph that is then returned.
template <class Stream> auto leave_capture(Stream &stream) -> decltype(stream.capture->graph) {
    const auto capture = stream.capture;
    if (capture == nullptr) {
        return nullptr;
    }
    if (stream.capture_origin) {
        release_streams(*capture);
        return capture->graph;
    }
    capture->streams.erase(&stream);
    stream.capture = nullptr;
    return nullptr;
}

// -- captured work, and calls forbidden meanwhile ------------------------------------------------

template <class Stream, class Operation>
CaptureAnswer record_in_capture(Stream &stream, Operation operation) {
    if (!stream.capture->valid) {
        return CaptureAnswer::invalidated;
    }
    auto &steps = stream.capture->graph->steps;
    steps.emplace_back();
    steps.back().operation = std::move(operation);
    steps.back().after = stream.capture_ends;
    stream.capture_ends = {steps.size() - 1};
    stream.capture->recorded.push_back(steps.size() - 1);
    return CaptureAnswer::ok;
}

// For a wait on the host, which no graph can contain.
template <class Stream> CaptureAnswer check_not_capturing(Stream &stream) {
    if (stream.capture == nullptr) {
        return CaptureAnswer::ok;
    }
    stream.capture->valid = false;
    return CaptureAnswer::unsupported;
}

// For a call that endangers the captures of this thread, or of any thread in the global mode.
// `graphs` are pairs whose second is a graph.
template <class Graphs> CaptureAnswer check_capture_unsafe(const Graphs &graphs) {
    const CaptureMode mode = thread_capture_mode();
    CaptureAnswer answer = CaptureAnswer::ok;
    for (const auto &[handle, graph] : graphs) {
        const auto capture = graph->capture.lock();
        if (mode == CaptureMode::relaxed || capture == nullptr || capture->streams.empty()) {
            continue;
        }
        const bool everywhere = capture->mode == CaptureMode::global && mode == CaptureMode::global;
        const bool here =
            capture->mode != CaptureMode::relaxed && capture->thread == std::this_thread::get_id();
        if (everywhere || here) {
            capture->valid = false;
            answer = CaptureAnswer::unsupported;
        }
    }
    return answer;
}

// For an operation on the default stream, because it would have to wait for captures on blocking
// streams. `streams` are pairs with a stream as the second element; `beside` is true for streams
// of the same device.
template <class Streams, class Stream, class Beside>
CaptureAnswer check_implicit_order(const Streams &streams, const Stream &stream, Beside beside) {
    CaptureAnswer answer = CaptureAnswer::ok;
    for (const auto &[handle, other] : streams) {
        if (stream.is_default() && other->capture != nullptr && other->is_blocking() &&
            beside(*other)) {
            other->capture->valid = false;
            answer = CaptureAnswer::implicit;
        }
    }
    return answer;
}

// -- the order of other work ---------------------------------------------------------------------

// Points that an operation waits for besides its own queue. On the default stream, these are the
// `blocking` queues. On a blocking stream, this is the default stream's queue, if that stream
// still exists.
template <class Stream>
std::vector<Point> implicit_order(const Stream &stream,
                                  const std::vector<std::shared_ptr<Queue>> &blocking,
                                  const std::shared_ptr<Stream> &default_stream) {
    std::vector<Point> points;
    const auto add = [&](const std::shared_ptr<Queue> &queue) {
        if (!queue->empty()) {
            points.push_back({queue, queue->submitted});
        }
    };
    if (stream.is_default()) {
        for (const auto &queue : blocking) {
            add(queue);
        }
    } else if (stream.is_blocking() && default_stream != nullptr) {
        add(default_stream->queue);
    }
    return points;
}

// Exchanges this thread's mode with the program's. `Mode` is the vendor's type.
template <class Mode> CaptureAnswer exchange_capture_mode(Mode *mode) {
    if (mode == nullptr ||
        static_cast<unsigned>(*mode) > static_cast<unsigned>(CaptureMode::relaxed)) {
        return CaptureAnswer::invalid_value;
    }
    const CaptureMode before = thread_capture_mode();
    thread_capture_mode() = static_cast<CaptureMode>(*mode);
    *mode = static_cast<Mode>(before);
    return CaptureAnswer::ok;
}

} // namespace sim
