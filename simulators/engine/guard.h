// Runs code that may cause a fault: touch unmapped memory, divide by zero, throw. The thread
// survives and gets a description of the fault.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "status.h"

namespace sim {

struct Outcome {
    Status status;
    uint64_t address;  // of the faulting access, where there is one
    std::string words; // text about the kernel's action, behind its name
};

// The body must own nothing that needs unwinding: a fault leaves it by a jump.
Outcome run_guarded(const std::function<void()> &body);

} // namespace sim
