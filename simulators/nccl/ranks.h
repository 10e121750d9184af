// The objects behind NCCL's handles: groups of ranks, and meetings at which ranks exchange memory.
//
// All ranks are threads of one process. `mutex` guards everything. No thread holds the mutex while
// it calls the driver, because the driver may wait for a host function that locks the mutex.
#pragma once

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"
#include "values.h"

namespace nccl_sim {

enum class Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, point_to_point };

// Parameters of a call that must be equal on all of its ranks.
struct Terms {
    Kind kind;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    bool captured;

    bool operator==(const Terms &other) const;
    std::string text() const;
};

// Meeting of the ranks of one call. Each rank copies its operand to `operands`, and waits for its
// entry of `words`. The last rank to arrive computes all results. A replayed plan reuses the
// meeting.
struct Meeting {
    Terms terms;
    int first; // the rank that came first, for messages
    std::vector<char *> operands;
    std::vector<char *> results;
    std::vector<size_t> operand_bytes;
    std::vector<size_t> result_bytes;
    uint32_t *words = nullptr; // of all ranks, page-locked
    size_t arrived = 0;
    size_t left = 0;
};

struct Group;

struct Rank {
    Group *group = nullptr;
    int rank = -1;
    int device = -1;
    bool blocking = true;
    bool finalized = false;
    bool ended = false; // destroyed or aborted
    size_t collectives = 0;
    std::map<int, size_t> sent;     // count of sends by receiver
    std::map<int, size_t> received; // count of receives by sender
    size_t running = 0;             // calls that have not ended
    size_t splits = 0;
    ncclResult_t error = ncclSuccess;
};

// The ranks of one communicator.
struct Group {
    std::vector<Rank *> ranks; // null: has not joined
    size_t joined = 0;
    std::map<std::array<size_t, 3>, std::unique_ptr<Meeting>> meetings;
    std::map<size_t, std::map<int, std::array<int, 2>>> splits; // color and key, by rank
    std::map<std::array<size_t, 2>, Group *> parts;             // groups made by splits
    bool failed = false;

    bool complete() const { return joined == ranks.size(); }
    // Lets every stream continue, and reports the failure to the other ranks.
    void fail(const Rank &culprit, ncclResult_t for_others);
};

struct World {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::array<char, 128>, std::unique_ptr<Group>> groups; // by identifier
    std::vector<std::unique_ptr<Group>> split_groups;
    std::vector<std::unique_ptr<Rank>> every; // never freed: host functions may come late
    uint64_t identifiers = 0;

    static World &get();
    // The live rank of a handle; null for any other address.
    Rank *find(ncclComm_t handle);
};

// Stores the message of this thread's last refusal, for ncclGetLastError.
ncclResult_t refuse(ncclResult_t code, const std::string &words);
const char *last_words();

} // namespace nccl_sim
