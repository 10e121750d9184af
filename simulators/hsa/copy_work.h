// Copies and fills: whether an engine may access their memory, and the bytes themselves.
#pragma once

#include "packets.h"
#include "queue.h"

namespace hsa_sim {

// A copy with addresses of this process.
struct CopyWork {
    CopyShape shape;
    char *destination = nullptr;
    const char *source = nullptr;
    uint64_t fault = 0; // the address behind HSA_STATUS_ERROR_MEMORY_FAULT
};

// Prepares an engine's copy of memory that the engine may access. A CPU agent may access all
// memory of the program.
Refusal prepare_copy(Runtime &runtime, const Agent &engine, const CopyShape &shape, CopyWork &work);

// Prepares the program's own copy, which may reach every allocation and the program's memory.
Refusal prepare_program_copy(Runtime &runtime, const CopyShape &shape, CopyWork &work);

// Moves the bytes without the lock; returns `ok` or the memory's error.
sim::Outcome move_bytes(const CopyWork &work);

} // namespace hsa_sim
