// A checked call of one rank: it joins the meeting of its ranks and is enqueued on its stream.
#pragma once

#include "ranks.h"

namespace nccl_sim {

struct Call {
    Rank *rank = nullptr;
    Terms terms = {};
    int peer = -1; // of sends and receives
    bool sends = false;
    const void *send = nullptr; // null: no operand
    void *recv = nullptr;       // null: no result
    size_t send_bytes = 0;
    size_t recv_bytes = 0;
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    Meeting *meeting = nullptr;
    size_t place = 0; // in the meeting
};

// Refuses invalid memory, and streams of other devices.
ncclResult_t check(const char *name, Call &call);

// Finds the call's meeting; the calls of all ranks in a meeting must agree. The caller holds the
// mutex.
ncclResult_t meet(const char *name, Call &call);

// Enqueues calls that may wait for each other.
ncclResult_t enqueue(std::vector<Call> &calls);

} // namespace nccl_sim
