#include "ranks.h"

namespace nccl_sim {

namespace {

std::mutex words_mutex;
std::string &words_of_all() {
    static std::string words;
    return words;
}

} // namespace

bool Terms::operator==(const Terms &other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root && captured == other.captured;
}

std::string Terms::text() const {
    constexpr const char *kinds[] = {"AllReduce", "Reduce",        "Broadcast",
                                     "AllGather", "ReduceScatter", "Send and Recv"};
    constexpr const char *ops[] = {"sum", "prod", "max", "min", "avg"};
    const std::string operation =
        kind == Kind::broadcast || kind == Kind::all_gather || kind == Kind::point_to_point
            ? ""
            : std::string(" by ") + ops[op];
    const std::string where =
        kind == Kind::reduce || kind == Kind::broadcast ? " with root " + std::to_string(root) : "";
    return std::string(captured ? "a captured " : "") + kinds[static_cast<int>(kind)] + " of " +
           std::to_string(count) + " " + name_of(type) + operation + where;
}

void Group::fail(const Rank &culprit, ncclResult_t for_others) {
    failed = true;
    for (Rank *const rank : ranks) {
        if (rank != nullptr && rank != &culprit && rank->error == ncclSuccess) {
            rank->error = for_others;
        }
    }
    for (const auto &[key, meeting] : meetings) {
        for (size_t at = 0; at < meeting->operands.size(); ++at) {
            __atomic_store_n(&meeting->words[at], 1, __ATOMIC_RELEASE);
        }
    }
    World::get().changed.notify_all();
}

World &World::get() {
    static World *const world = new World;
    return *world;
}

Rank *World::find(ncclComm_t handle) {
    for (const auto &one : every) {
        if (reinterpret_cast<ncclComm_t>(one.get()) == handle) {
            return one->ended ? nullptr : one.get();
        }
    }
    return nullptr;
}

ncclResult_t refuse(ncclResult_t code, const std::string &words) {
    const std::lock_guard<std::mutex> lock(words_mutex);
    words_of_all() = words;
    return code;
}

const char *last_words() {
    static thread_local std::string kept;
    const std::lock_guard<std::mutex> lock(words_mutex);
    kept = words_of_all();
    return kept.c_str();
}

} // namespace nccl_sim
