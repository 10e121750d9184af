// Checks that every entry point makes first: this thread may call, no test makes the call fail,
// and the current device is not lost.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime.h"

namespace tops_sim {

class Call {
  public:
    enum class Need { nothing, device };

    Call(const char *name, Need need);

    // topsSuccess when the entry point may continue.
    topsError_t refusal() const { return refusal_; }

    // The error of the current device; topsSuccess if there is none. A setting in readings.h
    // decides whether the device reports an error once or in every later call.
    topsError_t fault() const;

    Runtime &runtime;
    sim::Lock lock;
    DeviceState *device = nullptr; // current on this thread

  private:
    topsError_t check(const char *name, Need need);

    topsError_t refusal_;
};

topsError_t to_result(sim::Status status);

// Returns `code` and stores the message `words` for this thread's next topsGetErrorString.
topsError_t refuse(topsError_t code, const std::string &words);

// Returns the code of a device's fault, and stores its message `words` for every thread.
topsError_t refuse_fault(topsError_t code, const std::string &words);

// Message of this thread's last refusal if the refusal had this code, else message of a fault.
std::string words_for(topsError_t code);

// Keeps a call's result for topsGetLastError.
topsError_t remember(topsError_t result);

// This thread's last error; `clear` resets it to topsSuccess.
topsError_t last_error(bool clear);

// Ordinal of this thread's device.
int &current_device();

template <class Body> topsError_t in_process(const char *name, Body body) {
    Call call(name, Call::Need::nothing);
    return remember(call.refusal() != topsSuccess ? call.refusal() : body(call));
}

template <class Body> topsError_t on_device(const char *name, Body body) {
    Call call(name, Call::Need::device);
    return remember(call.refusal() != topsSuccess ? call.refusal() : body(call));
}

} // namespace tops_sim
