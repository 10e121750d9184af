#include "call.h"

#include <unistd.h>

namespace tops_sim {

namespace {

thread_local topsError_t refused_with = topsSuccess;
thread_local topsError_t last = topsSuccess;
thread_local int current = 0;

const pid_t first_process = getpid();

// Results after which a device is lost. A test may inject such a result.
sim::Status sticky_status(topsError_t code) {
    switch (code) {
    case topsErrorIllegalAddress:
        return sim::Status::illegal_address;
    case topsErrorLaunchFailure:
        return sim::Status::launch_failed;
    default:
        return sim::Status::ok;
    }
}

} // namespace

Call::Call(const char *name, Need need)
    : runtime(Runtime::get()), lock(runtime.scheduler.mutex, std::defer_lock),
      refusal_(check(name, need)) {}

topsError_t Call::check(const char *name, Need need) {
    refused_with = topsSuccess;
    // A forked child has neither the threads nor the device.
    if (getpid() != first_process) {
        return refuse(topsErrorNotInitialized, "this process was forked from one using a GCU");
    }
    if (sim::Scheduler::calling_back()) {
        return refuse(topsErrorNotSupported, "a host function must not call the runtime");
    }
    lock.lock();
    if (!runtime.complaint().empty()) {
        return refuse(topsErrorNotInitialized, runtime.complaint());
    }
    if (need == Need::device) {
        device = runtime.device(current);
        if (device == nullptr) {
            return topsErrorNoDevice;
        }
        const topsError_t lost = fault();
        if (lost != topsSuccess) {
            return lost;
        }
    }
    const auto planned = static_cast<topsError_t>(runtime.instruments.on_call(name));
    if (planned != topsSuccess && device != nullptr && sticky_status(planned) != sim::Status::ok) {
        device->device.fault = sticky_status(planned);
        device->device.fault_text = std::string("injected into ") + name;
        return fault();
    }
    return planned;
}

topsError_t Call::fault() const {
    if (device == nullptr || device->device.fault == sim::Status::ok) {
        return topsSuccess;
    }
    const topsError_t result =
        refuse_fault(to_result(device->device.fault), device->device.fault_text);
    if (!runtime.readings.faults_stay) {
        device->device.fault = sim::Status::ok;
    }
    return result;
}

topsError_t to_result(sim::Status status) {
    switch (status) {
    case sim::Status::ok:
        return topsSuccess;
    case sim::Status::out_of_memory:
        return topsErrorOutOfMemory;
    case sim::Status::illegal_address:
    case sim::Status::misaligned_address:
        return topsErrorIllegalAddress;
    case sim::Status::launch_failed:
        return topsErrorLaunchFailure;
    case sim::Status::launch_timeout:
        return topsErrorLaunchTimeOut;
    case sim::Status::assertion_failed:
        return topsErrorAssert;
    }
    return topsErrorUnknown;
}

topsError_t refuse(topsError_t code, const std::string &words) {
    refused_with = code;
    sim::Instruments::say(words);
    return code;
}

topsError_t refuse_fault(topsError_t code, const std::string &words) {
    sim::Instruments::say_fault(code, words);
    return refuse(code, words);
}

std::string words_for(topsError_t code) {
    return refused_with == code ? sim::Instruments::said() : sim::Instruments::fault_said(code);
}

topsError_t remember(topsError_t result) {
    last = result == topsSuccess ? last : result;
    return result;
}

topsError_t last_error(bool clear) {
    const topsError_t told = last;
    last = clear ? topsSuccess : last;
    return told;
}

int &current_device() {
    return current;
}

} // namespace tops_sim
