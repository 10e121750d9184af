// Captures: streams that record their work instead of running it.
//
// A capture begins and ends on one stream. Another stream joins by waiting for an event recorded in
// the capture. The first stream must wait for the other stream's last work before the capture
// ends. All steps go into one list, in the order of the calls. An event is recorded before a
// stream waits for it, so this order respects every dependency.
//
// One lock serves all captures, Runtime::capture_lock. Only calls on capturing streams and events
// take it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph.h"

namespace uhal_host {

class Event;
class Stream;

class Capture {
  public:
    // Number of steps before a point for each stream of a capture, in the order of joining.
    using Behind = std::vector<uint64_t>;

    // Results are codes of abi.h; the calling thread keeps the error text.
    static int begin(Stream &origin);
    // `graph` is null on failure. Failure also ends the capture, unless it began on another
    // stream.
    static int end(Stream &origin, std::unique_ptr<Graph> &graph);
    // One of UHAL_HOST_STREAM_CAPTURE_STATUS_…
    static int status(Stream &stream);

    template <class Work> static int record(Stream &stream, const Work &work);
    static int record(Stream &stream, Event &event);
    // Call this when the event is recorded outside of the capture.
    static void forget(Event &event);
    // Makes the stream wait for the event; at least one of them is in a capture.
    static int wait(Stream &stream, Event &event);
    // Invalidates the capture of the stream, because of the call `what`.
    static int refuse(Stream &stream, const char *what);
    // Removes a stream that is being destroyed.
    static void leave(Stream &stream);

  private:
    struct Member {
        Stream *stream; // null once it is destroyed
        Behind behind;
    };

    explicit Capture(Stream &origin);
    Member &member(Stream &stream);
    int spoil(int code, const std::string &words);
    int join(Stream &stream, const CapturePoint &point);
    std::string unjoined() const;
    void finish();

    std::unique_ptr<Graph> graph_; // null when the capture is over
    std::vector<Member> members_;  // the one it began on first
    std::string spoilt_;           // by what; empty while all is well
};

// The position of an event's record in a capture.
struct CapturePoint {
    std::shared_ptr<Capture> capture;
    Capture::Behind behind;
};

} // namespace uhal_host
