// Checks of every entry point before its own work: the driver is initialized, this thread may call,
// no test wants the call to fail, there is a context, and the device is not lost.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "driver.h"

namespace cuda_sim {

class Call {
  public:
    enum class Need { initialized, context };

    Call(const char *name, Need need);

    // CUDA_SUCCESS when the entry point may continue.
    CUresult refusal() const { return refusal_; }

    // The sticky error of the context's device, CUDA_SUCCESS while it has none.
    CUresult fault() const;

    Driver &driver;
    sim::Lock lock;
    std::shared_ptr<Context> context;
    DeviceState *device = nullptr;

  private:
    CUresult check(const char *name, Need need);

    CUresult refusal_;
};

CUresult to_result(sim::Status status);

// Returns `code` and keeps `words` for this thread's next cuGetErrorString.
CUresult refuse(CUresult code, const std::string &words);

// Returns the code of a device's fault. Every thread can query the fault's text.
CUresult refuse_fault(CUresult code, const std::string &words);

// Text of this thread's last refusal if the refusal had this code, else the text of a fault.
std::string words_for(CUresult code);

template <class Body> CUresult initialized(const char *name, Body body) {
    Call call(name, Call::Need::initialized);
    return call.refusal() != CUDA_SUCCESS ? call.refusal() : body(call);
}

template <class Body> CUresult in_context(const char *name, Body body) {
    Call call(name, Call::Need::context);
    return call.refusal() != CUDA_SUCCESS ? call.refusal() : body(call);
}

// The stack of contexts of this thread; its last context is current.
std::vector<CUcontext> &context_stack();

// While an instance lives, a null stream means this thread's own stream, not the legacy stream.
class PerThreadDefault {
  public:
    PerThreadDefault();
    ~PerThreadDefault();
    PerThreadDefault(const PerThreadDefault &) = delete;
    PerThreadDefault &operator=(const PerThreadDefault &) = delete;

    static bool active();
};

// The CUDA version that introduced a symbol; 0 for a symbol of the oldest version.
unsigned since(const std::string &symbol);

} // namespace cuda_sim
