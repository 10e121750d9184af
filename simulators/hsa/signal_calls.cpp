// Signals: counters that packets and copies count down, and doorbells.
#include "call.h"

using namespace hsa_sim;

namespace {

// Runs `body` with a signal and the lock; returns its result.
template <class Body>
hsa_signal_value_t with_signal(const char *name, hsa_signal_t handle, Body body) {
    Runtime &runtime = Runtime::get();
    if (forked()) {
        misuse(name, "this process was forked from one using the runtime");
    }
    Lock lock(runtime.mutex);
    const auto signal = runtime.signals.find(handle);
    if (signal == nullptr) {
        misuse(name, "handle " + std::to_string(handle.handle) + " is no signal, or no longer");
    }
    return body(runtime, lock, signal);
}

template <class Change>
hsa_signal_value_t change(const char *name, hsa_signal_t handle, Change changed) {
    return with_signal(name, handle,
                       [&](Runtime &runtime, Lock &, const std::shared_ptr<Signal> &signal) {
                           const hsa_signal_value_t before = signal->value;
                           const hsa_signal_value_t after = changed(before);
                           runtime.processor.set(*signal, after);
                           const auto queue = signal->rings.lock();
                           if (queue != nullptr) {
                               runtime.processor.ring(queue, static_cast<uint64_t>(after));
                           }
                           return before;
                       });
}

void store(const char *name, hsa_signal_t handle, hsa_signal_value_t value) {
    change(name, handle, [&](hsa_signal_value_t) { return value; });
}

void add(const char *name, hsa_signal_t handle, hsa_signal_value_t value) {
    change(name, handle, [&](hsa_signal_value_t before) {
        return static_cast<hsa_signal_value_t>(static_cast<uint64_t>(before) +
                                               static_cast<uint64_t>(value));
    });
}

void subtract(const char *name, hsa_signal_t handle, hsa_signal_value_t value) {
    change(name, handle, [&](hsa_signal_value_t before) {
        return static_cast<hsa_signal_value_t>(static_cast<uint64_t>(before) -
                                               static_cast<uint64_t>(value));
    });
}

hsa_signal_value_t load(const char *name, hsa_signal_t handle) {
    return with_signal(name, handle,
                       [](Runtime &runtime, Lock &, const std::shared_ptr<Signal> &signal) {
                           runtime.processor.poll(*signal);
                           return signal->value;
                       });
}

hsa_signal_value_t wait(const char *name, hsa_signal_t handle, hsa_signal_condition_t condition,
                        hsa_signal_value_t compared, uint64_t timeout) {
    return with_signal(
        name, handle, [&](Runtime &runtime, Lock &lock, const std::shared_ptr<Signal> &signal) {
            return runtime.processor.wait(lock, signal, condition, compared, timeout);
        });
}

hsa_status_t create(Call &call, hsa_signal_value_t initial, uint32_t count,
                    const hsa_agent_t *consumers, hsa_signal_t *signal) {
    if (signal == nullptr || (count != 0 && consumers == nullptr)) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    for (uint32_t index = 0; index < count; ++index) {
        if (call.runtime.find_agent(consumers[index]) == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
    }
    const auto made = std::make_shared<Signal>();
    made->value = initial;
    call.runtime.signals.add(made);
    *signal = made->handle;
    return HSA_STATUS_SUCCESS;
}

} // namespace

hsa_status_t hsa_signal_create(hsa_signal_value_t initial, uint32_t consumer_count,
                               const hsa_agent_t *consumers, hsa_signal_t *signal) {
    return in_runtime("hsa_signal_create", [&](Call &call) {
        return create(call, initial, consumer_count, consumers, signal);
    });
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t initial, uint32_t consumer_count,
                                   const hsa_agent_t *consumers, uint64_t attributes,
                                   hsa_signal_t *signal) {
    return in_runtime("hsa_amd_signal_create", [&](Call &call) {
        constexpr uint64_t known = HSA_AMD_SIGNAL_AMD_GPU_ONLY | HSA_AMD_SIGNAL_IPC;
        if ((attributes & ~known) != 0) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        return create(call, initial, consumer_count, consumers, signal);
    });
}

hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
    return in_runtime("hsa_signal_destroy", [&](Call &call) {
        const auto found = call.runtime.signals.find(signal);
        if (found == nullptr || found->rings.lock() != nullptr) {
            return HSA_STATUS_ERROR_INVALID_SIGNAL;
        }
        call.runtime.signals.remove(signal);
        return HSA_STATUS_SUCCESS;
    });
}

hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal) {
    return load("hsa_signal_load_relaxed", signal);
}

hsa_signal_value_t hsa_signal_load_scacquire(hsa_signal_t signal) {
    return load("hsa_signal_load_scacquire", signal);
}

void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    store("hsa_signal_store_relaxed", signal, value);
}

void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
    store("hsa_signal_store_screlease", signal, value);
}

void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    add("hsa_signal_add_relaxed", signal, value);
}

void hsa_signal_add_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
    add("hsa_signal_add_screlease", signal, value);
}

void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    subtract("hsa_signal_subtract_relaxed", signal, value);
}

void hsa_signal_subtract_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
    subtract("hsa_signal_subtract_screlease", signal, value);
}

hsa_signal_value_t hsa_signal_exchange_scacq_screl(hsa_signal_t signal, hsa_signal_value_t value) {
    return change("hsa_signal_exchange_scacq_screl", signal,
                  [&](hsa_signal_value_t) { return value; });
}

hsa_signal_value_t hsa_signal_cas_scacq_screl(hsa_signal_t signal, hsa_signal_value_t expected,
                                              hsa_signal_value_t value) {
    return change("hsa_signal_cas_scacq_screl", signal,
                  [&](hsa_signal_value_t before) { return before == expected ? value : before; });
}

hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
                                             hsa_signal_value_t compared, uint64_t timeout,
                                             hsa_wait_state_t) {
    return wait("hsa_signal_wait_scacquire", signal, condition, compared, timeout);
}

hsa_signal_value_t hsa_signal_wait_relaxed(hsa_signal_t signal, hsa_signal_condition_t condition,
                                           hsa_signal_value_t compared, uint64_t timeout,
                                           hsa_wait_state_t) {
    return wait("hsa_signal_wait_relaxed", signal, condition, compared, timeout);
}

hsa_status_t hsa_amd_signal_async_handler(hsa_signal_t signal, hsa_signal_condition_t condition,
                                          hsa_signal_value_t value, hsa_amd_signal_handler handler,
                                          void *data) {
    return in_runtime("hsa_amd_signal_async_handler", [&](Call &call) {
        const auto found = call.runtime.signals.find(signal);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_SIGNAL;
        }
        if (handler == nullptr || condition < HSA_SIGNAL_CONDITION_EQ ||
            condition > HSA_SIGNAL_CONDITION_GTE) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        call.runtime.processor.add_handler(found, {condition, value, handler, data});
        return HSA_STATUS_SUCCESS;
    });
}
