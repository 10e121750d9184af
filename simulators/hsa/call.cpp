#include "call.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace hsa_sim {

namespace {

thread_local hsa_status_t refused_with = HSA_STATUS_SUCCESS;

const pid_t first_process = getpid();

} // namespace

Call::Call(const char *name)
    : runtime(Runtime::get()), lock(runtime.mutex, std::defer_lock), refusal_(HSA_STATUS_SUCCESS) {
    refused_with = HSA_STATUS_SUCCESS;
    if (forked()) {
        refusal_ = refuse(HSA_STATUS_ERROR_NOT_INITIALIZED,
                          "this process was forked from one using the runtime");
        return;
    }
    lock.lock();
    if (runtime.references == 0) {
        refusal_ = HSA_STATUS_ERROR_NOT_INITIALIZED;
        return;
    }
    const int planned = runtime.instruments.on_call(name);
    if (planned != 0) {
        refusal_ = refuse(static_cast<hsa_status_t>(planned), "injected");
    }
}

hsa_status_t refuse(hsa_status_t code, const std::string &words) {
    refused_with = code;
    sim::Instruments::say(printable(words));
    return code;
}

std::string printable(std::string text) {
    for (char &c : text) {
        c = c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
}

const std::string &words_for(hsa_status_t code) {
    static const std::string none;
    return refused_with == code ? sim::Instruments::said() : none;
}

bool forked() {
    return getpid() != first_process;
}

void misuse(const char *call, const std::string &words) {
    std::fprintf(stderr, "simulated HSA runtime: %s: %s\n", call, words.c_str());
    std::abort();
}

} // namespace hsa_sim
