// Start and end times of packets and copies.
#include "call.h"

using namespace hsa_sim;

namespace {

template <class Times>
hsa_status_t times_of(Runtime &runtime, hsa_signal_t handle, bool copy, Times *times) {
    const auto signal = runtime.signals.find(handle);
    if (signal == nullptr) {
        return HSA_STATUS_ERROR_INVALID_SIGNAL;
    }
    if (times == nullptr) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    // A real runtime returns the signal's fields unchecked.
    if (!signal->timed || signal->timed_copy != copy) {
        return refuse(HSA_STATUS_ERROR, "nothing that was profiled has counted this signal down");
    }
    times->start = signal->start;
    times->end = signal->end;
    return HSA_STATUS_SUCCESS;
}

} // namespace

hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *queue, int enable) {
    return in_runtime("hsa_amd_profiling_set_profiler_enabled", [&](Call &call) {
        const auto found = call.runtime.find_queue(queue);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_QUEUE;
        }
        found->profiled = enable != 0;
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_amd_profiling_async_copy_enable(bool enable) {
    return in_runtime("hsa_amd_profiling_async_copy_enable", [&](Call &call) {
        call.runtime.copies_profiled = enable;
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t agent, hsa_signal_t signal,
                                                 hsa_amd_profiling_dispatch_time_t *time) {
    return in_runtime("hsa_amd_profiling_get_dispatch_time", [&](Call &call) {
        const Agent *found = call.runtime.find_agent(agent);
        return found == nullptr || !found->gpu() ? HSA_STATUS_ERROR_INVALID_AGENT
                                                 : times_of(call.runtime, signal, false, time);
    });
}

hsa_status_t hsa_amd_profiling_get_async_copy_time(hsa_signal_t signal,
                                                   hsa_amd_profiling_async_copy_time_t *time) {
    return in_runtime("hsa_amd_profiling_get_async_copy_time",
                      [&](Call &call) { return times_of(call.runtime, signal, true, time); });
}

hsa_status_t hsa_amd_profiling_convert_tick_to_system_domain(hsa_agent_t agent, uint64_t agent_tick,
                                                             uint64_t *system_tick) {
    return in_runtime("hsa_amd_profiling_convert_tick_to_system_domain", [&](Call &call) {
        const Agent *found = call.runtime.find_agent(agent);
        if (found == nullptr || !found->gpu()) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        return system_tick == nullptr ? HSA_STATUS_ERROR_INVALID_ARGUMENT
                                      : answer(system_tick, agent_tick);
    });
}
