// Messages of status codes, and the start and shutdown of the runtime.
#include <map>

#include "call.h"

using namespace hsa_sim;

// Number of wake-ups of the thread that simulates the devices.
extern "C" __attribute__((visibility("default"))) uint64_t uhal_sim_wakes();

namespace {

// clang-format off
#define NAME(code) {code, #code},
const std::map<int, std::string> names = {
    NAME(HSA_STATUS_SUCCESS)
    NAME(HSA_STATUS_INFO_BREAK)
    NAME(HSA_STATUS_ERROR)
    NAME(HSA_STATUS_ERROR_INVALID_ARGUMENT)
    NAME(HSA_STATUS_ERROR_INVALID_QUEUE_CREATION)
    NAME(HSA_STATUS_ERROR_INVALID_ALLOCATION)
    NAME(HSA_STATUS_ERROR_INVALID_AGENT)
    NAME(HSA_STATUS_ERROR_INVALID_REGION)
    NAME(HSA_STATUS_ERROR_INVALID_SIGNAL)
    NAME(HSA_STATUS_ERROR_INVALID_QUEUE)
    NAME(HSA_STATUS_ERROR_OUT_OF_RESOURCES)
    NAME(HSA_STATUS_ERROR_INVALID_PACKET_FORMAT)
    NAME(HSA_STATUS_ERROR_RESOURCE_FREE)
    NAME(HSA_STATUS_ERROR_NOT_INITIALIZED)
    NAME(HSA_STATUS_ERROR_REFCOUNT_OVERFLOW)
    NAME(HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS)
    NAME(HSA_STATUS_ERROR_INVALID_INDEX)
    NAME(HSA_STATUS_ERROR_INVALID_ISA)
    NAME(HSA_STATUS_ERROR_INVALID_ISA_NAME)
    NAME(HSA_STATUS_ERROR_INVALID_CODE_OBJECT)
    NAME(HSA_STATUS_ERROR_INVALID_EXECUTABLE)
    NAME(HSA_STATUS_ERROR_FROZEN_EXECUTABLE)
    NAME(HSA_STATUS_ERROR_INVALID_SYMBOL_NAME)
    NAME(HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED)
    NAME(HSA_STATUS_ERROR_VARIABLE_UNDEFINED)
    NAME(HSA_STATUS_ERROR_EXCEPTION)
    NAME(HSA_STATUS_ERROR_INVALID_CODE_SYMBOL)
    NAME(HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL)
    NAME(HSA_STATUS_ERROR_INVALID_FILE)
    NAME(HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER)
    NAME(HSA_STATUS_ERROR_INVALID_CACHE)
    NAME(HSA_STATUS_ERROR_INVALID_WAVEFRONT)
    NAME(HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP)
    NAME(HSA_STATUS_ERROR_INVALID_RUNTIME_STATE)
    NAME(HSA_STATUS_ERROR_FATAL)
    NAME(HSA_STATUS_ERROR_INVALID_MEMORY_POOL)
    NAME(HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION)
    NAME(HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION)
    NAME(HSA_STATUS_ERROR_MEMORY_FAULT)
    NAME(HSA_STATUS_CU_MASK_REDUCED)
    NAME(HSA_STATUS_ERROR_OUT_OF_REGISTERS)
    NAME(HSA_STATUS_ERROR_RESOURCE_BUSY)
    NAME(HSA_STATUS_ERROR_NOT_SUPPORTED)
};
// clang-format on
#undef NAME

} // namespace

hsa_status_t hsa_status_string(hsa_status_t status, const char **text) {
    // The text is valid until this thread's next call; programs copy the text.
    thread_local std::string words;
    const auto found = names.find(status);
    if (found == names.end() || text == nullptr) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    const std::string &reason = words_for(status);
    words = found->second + (reason.empty() ? "" : ": " + reason);
    *text = words.c_str();
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_init() {
    Runtime &runtime = Runtime::get();
    if (forked()) {
        return refuse(HSA_STATUS_ERROR_OUT_OF_RESOURCES,
                      "this process was forked from one using the runtime");
    }
    const Lock lock(runtime.mutex);
    if (!runtime.complaint().empty()) {
        return refuse(HSA_STATUS_ERROR_OUT_OF_RESOURCES, runtime.complaint());
    }
    const int planned = runtime.instruments.on_call("hsa_init");
    if (planned != 0) {
        return refuse(static_cast<hsa_status_t>(planned), "injected");
    }
    ++runtime.references;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_shut_down() {
    return in_runtime("hsa_shut_down", [&](Call &call) {
        if (--call.runtime.references == 0) {
            call.runtime.shut_down(call.lock);
        }
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value) {
    return in_runtime("hsa_system_get_info", [&](Call &) {
        if (value == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        switch (static_cast<int>(attribute)) {
        case HSA_SYSTEM_INFO_VERSION_MAJOR:
        case HSA_SYSTEM_INFO_VERSION_MINOR:
        case HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR:
            return answer(value, uint16_t{1});
        case HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR:
            return answer(value, uint16_t{6});
        case HSA_SYSTEM_INFO_TIMESTAMP:
            return answer(value, now());
        case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY:
            return answer(value, ticks_per_second);
        case HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT:
            return answer(value, UINT64_MAX);
        case HSA_SYSTEM_INFO_ENDIANNESS:
            return answer(value, int32_t{0});
        case HSA_SYSTEM_INFO_MACHINE_MODEL:
            return answer(value, int32_t{1});
        case HSA_AMD_SYSTEM_INFO_BUILD_VERSION:
            return answer(value, "simulated by uhal");
        case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
        case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT:
        case HSA_AMD_SYSTEM_INFO_MWAITX_ENABLED:
        case HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED:
        case HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED:
        case HSA_AMD_SYSTEM_INFO_XNACK_ENABLED:
            return answer(value, false);
        default:
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
    });
}

hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t callback,
                                                   void *data) {
    return in_runtime("hsa_amd_register_system_event_handler", [&](Call &call) {
        if (callback == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        call.runtime.event_handlers.push_back({callback, data});
        return HSA_STATUS_SUCCESS;
    });
}

long uhal_sim_live(const char *kind) {
    return Runtime::get().live(kind);
}

void uhal_sim_fail(const char *call, unsigned nth, int code) {
    Runtime::get().instruments.fail(call, nth, code);
}

uint64_t uhal_sim_wakes() {
    Runtime &runtime = Runtime::get();
    const Lock lock(runtime.mutex);
    return runtime.processor.wakes();
}

const char *uhal_sim_message() {
    if (!sim::Instruments::said().empty()) {
        return sim::Instruments::said().c_str();
    }
    // Faults occur on the runtime's threads, but other threads also request the messages.
    Runtime &runtime = Runtime::get();
    thread_local std::string words;
    const Lock lock(runtime.mutex);
    words = runtime.fault_words;
    return words.c_str();
}
