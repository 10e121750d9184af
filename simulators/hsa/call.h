// Checks of every entry point before its own work: this process may call, the runtime is
// initialized, and no test wants the call to fail.
#pragma once

#include <string>

#include "runtime.h"

namespace hsa_sim {

class Call {
  public:
    explicit Call(const char *name);

    // HSA_STATUS_SUCCESS when the entry point may continue.
    hsa_status_t refusal() const { return refusal_; }

    Runtime &runtime;
    Lock lock;

  private:
    hsa_status_t refusal_;
};

// Makes a file's text printable in a message: replaces every byte that is not ASCII by '?'.
std::string printable(std::string text);

// Returns `code` and keeps `words` for this thread's next hsa_status_string.
hsa_status_t refuse(hsa_status_t code, const std::string &words);

// Text of this thread's last refusal if the refusal had this code.
const std::string &words_for(hsa_status_t code);

// True in a fork of the process that loaded the library: a fork has none of the library's threads.
bool forked();

// For functions that return no status: prints the error and ends the process. Real hardware would
// corrupt other memory.
[[noreturn]] void misuse(const char *call, const std::string &words);

template <class Body> hsa_status_t in_runtime(const char *name, Body body) {
    Call call(name);
    return call.refusal() != HSA_STATUS_SUCCESS ? call.refusal() : body(call);
}

// Writes the result of a query.
template <class Type> hsa_status_t answer(void *output, const Type &value) {
    __builtin_memcpy(output, &value, sizeof value);
    return HSA_STATUS_SUCCESS;
}

} // namespace hsa_sim
