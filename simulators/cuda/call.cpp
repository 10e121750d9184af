#include "call.h"

#include <algorithm>

namespace cuda_sim {

namespace {

thread_local CUresult refused_with = CUDA_SUCCESS;
thread_local std::vector<CUcontext> stack;
thread_local unsigned per_thread_depth = 0;

// Results after which every call in the context fails. A test may inject such a result.
sim::Status sticky_status(CUresult code) {
    switch (code) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        return sim::Status::illegal_address;
    case CUDA_ERROR_MISALIGNED_ADDRESS:
        return sim::Status::misaligned_address;
    case CUDA_ERROR_LAUNCH_FAILED:
        return sim::Status::launch_failed;
    case CUDA_ERROR_LAUNCH_TIMEOUT:
        return sim::Status::launch_timeout;
    case CUDA_ERROR_ASSERT:
        return sim::Status::assertion_failed;
    default:
        return sim::Status::ok;
    }
}

} // namespace

Call::Call(const char *name, Need need)
    : driver(Driver::get()), lock(driver.scheduler.mutex, std::defer_lock),
      refusal_(check(name, need)) {}

CUresult Call::check(const char *name, Need need) {
    refused_with = CUDA_SUCCESS;
    if (driver.left_in_parent()) {
        return refuse(CUDA_ERROR_NOT_INITIALIZED, "this process was forked from one using CUDA");
    }
    if (sim::Scheduler::calling_back()) {
        return refuse(CUDA_ERROR_NOT_PERMITTED, "a host function must not call CUDA");
    }
    lock.lock();
    if (driver.initialized_in == 0) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (since(name) > driver.version()) {
        return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
    }
    if (need == Need::context) {
        if (stack.empty() || stack.back() == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        context = driver.contexts.find(stack.back());
        if (context == nullptr || !context->alive) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        device = context->device;
        if (fault() != CUDA_SUCCESS) {
            return refuse_fault(fault(), device->device.fault_text);
        }
    }
    const CUresult planned = static_cast<CUresult>(driver.instruments.on_call(name));
    if (planned != CUDA_SUCCESS && device != nullptr && sticky_status(planned) != sim::Status::ok) {
        device->device.fault = sticky_status(planned);
        device->device.fault_text = std::string("injected into ") + name;
    }
    return planned;
}

CUresult Call::fault() const {
    return device == nullptr ? CUDA_SUCCESS : to_result(device->device.fault);
}

CUresult to_result(sim::Status status) {
    switch (status) {
    case sim::Status::ok:
        return CUDA_SUCCESS;
    case sim::Status::out_of_memory:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case sim::Status::illegal_address:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case sim::Status::misaligned_address:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case sim::Status::launch_failed:
        return CUDA_ERROR_LAUNCH_FAILED;
    case sim::Status::launch_timeout:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case sim::Status::assertion_failed:
        return CUDA_ERROR_ASSERT;
    }
    return CUDA_ERROR_UNKNOWN;
}

CUresult refuse(CUresult code, const std::string &words) {
    refused_with = code;
    sim::Instruments::say(words);
    return code;
}

CUresult refuse_fault(CUresult code, const std::string &words) {
    sim::Instruments::say_fault(code, words);
    return refuse(code, words);
}

std::string words_for(CUresult code) {
    return refused_with == code ? sim::Instruments::said() : sim::Instruments::fault_said(code);
}

std::vector<CUcontext> &context_stack() {
    return stack;
}

PerThreadDefault::PerThreadDefault() {
    ++per_thread_depth;
}

PerThreadDefault::~PerThreadDefault() {
    --per_thread_depth;
}

bool PerThreadDefault::active() {
    return per_thread_depth != 0;
}

} // namespace cuda_sim
