#include "capture.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "api.h"
#include "event.h"

namespace uhal_host {

namespace {

// The number of earlier steps of stream `index`.
uint64_t &count_at(Capture::Behind &behind, size_t index) {
    if (behind.size() <= index) {
        behind.resize(index + 1);
    }
    return behind[index];
}

using Guard = std::lock_guard<std::mutex>;

int ended() {
    set_error_text("the capture of the stream was ended by another thread");
    return UHAL_HOST_ERROR_ILLEGAL_STATE;
}

} // namespace

// -- beginning and ending -------------------------------------------------------------------------

Capture::Capture(Stream &origin) : graph_(new Graph(origin.device())) {
    members_.push_back({&origin, {}});
}

int Capture::begin(Stream &origin) {
    const Guard guard(origin.device().runtime.capture_lock);
    if (origin.capture != nullptr) {
        set_error_text("the stream captures already");
        return UHAL_HOST_ERROR_ILLEGAL_STATE;
    }
    origin.capture.reset(new Capture(origin));
    origin.set_capturing(true);
    return UHAL_HOST_SUCCESS;
}

int Capture::end(Stream &origin, std::unique_ptr<Graph> &graph) {
    const Guard guard(origin.device().runtime.capture_lock);
    const std::shared_ptr<Capture> capture = origin.capture;
    if (capture == nullptr) {
        set_error_text("the stream captures nothing");
        return UHAL_HOST_ERROR_ILLEGAL_STATE;
    }
    if (capture->members_.front().stream != &origin) {
        return capture->spoil(UHAL_HOST_ERROR_STREAM_CAPTURE_UNMATCHED,
                              "it was to be ended on a stream it did not begin on");
    }
    int error = UHAL_HOST_SUCCESS;
    const std::string unjoined = capture->unjoined();
    if (!capture->spoilt_.empty()) {
        set_error_text("the capture was spoilt: %s", capture->spoilt_.c_str());
        error = UHAL_HOST_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!unjoined.empty()) {
        set_error_text("%s", unjoined.c_str());
        error = UHAL_HOST_ERROR_STREAM_CAPTURE_UNJOINED;
    } else {
        graph = std::move(capture->graph_);
    }
    capture->finish();
    return error;
}

// Describes a stream whose steps the capture's first stream has not waited for; empty if there is
// none.
std::string Capture::unjoined() const {
    Behind behind = members_.front().behind;
    for (size_t index = 1; index < members_.size(); ++index) {
        Behind own = members_[index].behind;
        if (count_at(behind, index) < count_at(own, index)) {
            return "the stream that joined the capture as number " + std::to_string(index) +
                   " has work that the one it began on does not wait for";
        }
    }
    return "";
}

// Ends recording: the streams run new work again. The caller holds a reference to the capture.
void Capture::finish() {
    const std::vector<Member> members = std::move(members_);
    members_.clear();
    graph_.reset();
    for (const Member &member : members) {
        if (member.stream != nullptr) {
            member.stream->set_capturing(false);
            member.stream->capture.reset();
        }
    }
}

void Capture::leave(Stream &stream) {
    const Guard guard(stream.device().runtime.capture_lock);
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture == nullptr) {
        return;
    }
    if (capture->members_.front().stream == &stream) {
        capture->finish();
        return;
    }
    // As with CUDA, the steps of a joined stream stay, and the first stream must still wait for
    // them.
    capture->member(stream).stream = nullptr;
    stream.capture.reset();
}

int Capture::status(Stream &stream) {
    const Guard guard(stream.device().runtime.capture_lock);
    if (stream.capture == nullptr) {
        return UHAL_HOST_STREAM_CAPTURE_STATUS_NONE;
    }
    return stream.capture->spoilt_.empty() ? UHAL_HOST_STREAM_CAPTURE_STATUS_ACTIVE
                                           : UHAL_HOST_STREAM_CAPTURE_STATUS_INVALIDATED;
}

// -- recording ------------------------------------------------------------------------------------

Capture::Member &Capture::member(Stream &stream) {
    return *std::find_if(members_.begin(), members_.end(),
                         [&](const Member &member) { return member.stream == &stream; });
}

// The first reason is kept, and reported at the end.
int Capture::spoil(int code, const std::string &words) {
    if (spoilt_.empty()) {
        spoilt_ = words;
    }
    set_error_text("%s", words.c_str());
    return code;
}

int Capture::refuse(Stream &stream, const char *what) {
    const Guard guard(stream.device().runtime.capture_lock);
    if (stream.capture == nullptr) {
        return ended();
    }
    return stream.capture->spoil(UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                 std::string(what) + " on a stream that captures");
}

template <class Work> int Capture::record(Stream &stream, const Work &work) {
    const Guard guard(stream.device().runtime.capture_lock);
    Capture *const capture = stream.capture.get();
    if (capture == nullptr) {
        return ended();
    }
    if (!capture->spoilt_.empty()) {
        set_error_text("the capture was spoilt: %s", capture->spoilt_.c_str());
        return UHAL_HOST_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    Member &member = capture->member(stream);
    const size_t index = static_cast<size_t>(&member - capture->members_.data());
    capture->graph_->steps.push_back(std::make_unique<Step>(work));
    ++count_at(member.behind, index);
    return UHAL_HOST_SUCCESS;
}

template int Capture::record(Stream &stream, const Launch &launch);
template int Capture::record(Stream &stream, const Copy &copy);
template int Capture::record(Stream &stream, const Fill &fill);
template int Capture::record(Stream &stream, const Callback &callback);
template int Capture::record(Stream &stream, const Call &call);

int Capture::record(Stream &stream, Event &event) {
    const Guard guard(stream.device().runtime.capture_lock);
    if (stream.capture == nullptr) {
        return ended();
    }
    const Behind &behind = stream.capture->member(stream).behind;
    event.set_point(std::make_shared<CapturePoint>(CapturePoint{stream.capture, behind}));
    return UHAL_HOST_SUCCESS;
}

void Capture::forget(Event &event) {
    const Guard guard(event.device().runtime.capture_lock);
    event.set_point(nullptr);
}

int Capture::wait(Stream &stream, Event &event) {
    const Guard guard(stream.device().runtime.capture_lock);
    if (const std::shared_ptr<const CapturePoint> point = event.point()) {
        return point->capture->join(stream, *point);
    }
    if (event.latest() == nullptr) {
        return UHAL_HOST_SUCCESS; // never recorded: nothing to wait for
    }
    if (stream.capture == nullptr) {
        return ended();
    }
    return stream.capture->spoil(UHAL_HOST_ERROR_STREAM_CAPTURE_ISOLATION,
                                 "a wait for an event that was recorded outside of the capture");
}

// Makes the stream wait for a point in this capture.
int Capture::join(Stream &stream, const CapturePoint &point) {
    if (graph_ == nullptr) {
        const char *const words = "a wait for an event that was recorded in a capture now over";
        if (stream.capture != nullptr) {
            return stream.capture->spoil(UHAL_HOST_ERROR_CAPTURED_EVENT, words);
        }
        set_error_text("%s", words);
        return UHAL_HOST_ERROR_CAPTURED_EVENT;
    }
    if (stream.capture != nullptr && stream.capture.get() != this) {
        const char *const words = "a wait for an event of another capture";
        stream.capture->spoil(UHAL_HOST_ERROR_STREAM_CAPTURE_MERGE, words);
        return spoil(UHAL_HOST_ERROR_STREAM_CAPTURE_MERGE, words);
    }
    if (&stream.device() != &graph_->device) {
        return spoil(UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                     "a wait by a stream of another device");
    }
    if (stream.capture == nullptr) {
        members_.push_back({&stream, {}});
        stream.capture = point.capture;
        stream.set_capturing(true);
    }
    Behind &behind = member(stream).behind;
    for (size_t index = 0; index < point.behind.size(); ++index) {
        uint64_t &count = count_at(behind, index);
        count = std::max(count, point.behind[index]);
    }
    return UHAL_HOST_SUCCESS;
}

} // namespace uhal_host
