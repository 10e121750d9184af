// NCCL's functions over the simulated CUDA driver. The functions check what NCCL leaves undefined:
// memory, streams, the order of calls, and equal counts, types, roots and operations on all ranks.
#include <algorithm>
#include <cstring>

#include "exchange.h"

using namespace nccl_sim;

namespace {

constexpr int version_number = 21805;

thread_local unsigned group_depth = 0;
thread_local std::vector<Call> grouped;
thread_local ncclResult_t group_error = ncclSuccess;

std::string number(long long value) {
    return std::to_string(value);
}

ncclResult_t find_rank(const char *name, ncclComm_t handle, Rank *&rank) {
    rank = handle == nullptr ? nullptr : World::get().find(handle);
    if (rank == nullptr) {
        return refuse(ncclInvalidArgument, std::string(name) +
                                               ", comm: expected a live communicator, got " +
                                               (handle == nullptr ? "null" : "one that is gone"));
    }
    return ncclSuccess;
}

// Finds a communicator that may take a call.
ncclResult_t find_ready(const char *name, ncclComm_t handle, Rank *&rank) {
    const ncclResult_t result = find_rank(name, handle, rank);
    if (result != ncclSuccess) {
        return result;
    }
    if (!rank->group->complete()) {
        return refuse(ncclInvalidUsage, std::string(name) +
                                            ": expected a communicator that all ranks have "
                                            "joined; ask ncclCommGetAsyncError");
    }
    if (rank->finalized) {
        return refuse(ncclInvalidUsage,
                      std::string(name) + ": expected a communicator before ncclCommFinalize");
    }
    if (rank->group->failed) {
        return refuse(rank->error == ncclSuccess ? ncclInvalidUsage : rank->error,
                      std::string(name) + ": the communicator has failed");
    }
    return ncclSuccess;
}

ncclResult_t flush(std::vector<Call> calls) {
    {
        const std::lock_guard<std::mutex> lock(World::get().mutex);
        for (Call &call : calls) {
            const ncclResult_t result = meet("ncclGroupEnd", call);
            if (result != ncclSuccess) {
                return result;
            }
        }
        for (const Call &call : calls) {
            const bool to_self = call.peer == call.rank->rank;
            if (to_self && call.rank->sent[call.peer] != call.rank->received[call.peer]) {
                return refuse(ncclInvalidUsage, "ncclGroupEnd: expected a receive for each send "
                                                "of a rank to itself");
            }
        }
    }
    return enqueue(calls);
}

ncclResult_t submit(const char *name, ncclComm_t handle, Call call, bool reduces) {
    Rank *rank = nullptr;
    {
        const std::lock_guard<std::mutex> lock(World::get().mutex);
        const ncclResult_t result = find_ready(name, handle, rank);
        if (result != ncclSuccess) {
            return result;
        }
    }
    call.rank = rank;
    const size_t width = bytes_of(call.terms.type);
    const int ranks = static_cast<int>(rank->group->ranks.size());
    const std::string where = std::string(name) + ", ";
    if (width == 0) {
        return refuse(ncclInvalidArgument,
                      where + "datatype: expected 0 to 9, got " + number(call.terms.type));
    }
    if (reduces && call.terms.op > ncclAvg) {
        return refuse(ncclInvalidArgument,
                      where + "op: expected 0 to 4, got " + number(call.terms.op));
    }
    const int peer = call.terms.kind == Kind::point_to_point ? call.peer : call.terms.root;
    if (peer < 0 || peer >= ranks) {
        return refuse(ncclInvalidArgument, where + "root or peer: expected 0 to " +
                                               number(ranks - 1) + ", got " + number(peer));
    }
    if (call.terms.count > (size_t{1} << 48)) {
        return refuse(ncclInvalidArgument, where + "count: expected fewer elements");
    }
    call.send_bytes *= call.terms.count * width;
    call.recv_bytes *= call.terms.count * width;
    const char *const send = static_cast<const char *>(call.send);
    const char *const recv = static_cast<const char *>(call.recv);
    const size_t part = static_cast<size_t>(rank->rank) * call.terms.count * width;
    const bool in_place = call.terms.kind == Kind::all_gather       ? send == recv + part
                          : call.terms.kind == Kind::reduce_scatter ? recv == send + part
                                                                    : send == recv;
    if (call.send_bytes != 0 && call.recv_bytes != 0 && !in_place &&
        send < recv + call.recv_bytes && recv < send + call.send_bytes) {
        return refuse(ncclInvalidArgument,
                      where + "recvbuff: expected memory apart from sendbuff, or its place in it");
    }
    const ncclResult_t result = check(name, call);
    if (result != ncclSuccess) {
        return result;
    }
    if (group_depth > 0) {
        grouped.push_back(call);
        return ncclSuccess;
    }
    if (call.peer == rank->rank) {
        return refuse(ncclInvalidUsage, where + "peer: a rank sends to itself inside a group only");
    }
    return flush({call});
}

ncclResult_t noted(ncclResult_t result) {
    if (group_depth > 0 && result != ncclSuccess) {
        group_error = result;
    }
    return result;
}

Call make_call(Kind kind, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
               const void *send, size_t send_parts, void *recv, size_t recv_parts,
               ncclStream_t stream) {
    Call call;
    call.terms = {kind, count, type, op, root, false};
    call.send = send;
    call.recv = recv;
    call.send_bytes = send_parts;
    call.recv_bytes = recv_parts;
    call.stream = reinterpret_cast<CUstream>(stream);
    return call;
}

size_t ranks_of(ncclComm_t handle) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    const Rank *const rank = World::get().find(handle);
    return rank == nullptr ? 0 : rank->group->ranks.size();
}

int rank_of(ncclComm_t handle) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    const Rank *const rank = World::get().find(handle);
    return rank == nullptr ? -1 : rank->rank;
}

ncclComm_t join(Group &group, int rank, int device, bool blocking) {
    World &world = World::get();
    world.every.push_back(std::make_unique<Rank>());
    Rank *const made = world.every.back().get();
    made->group = &group;
    made->rank = rank;
    made->device = device;
    made->blocking = blocking;
    group.ranks[rank] = made;
    ++group.joined;
    world.changed.notify_all();
    return reinterpret_cast<ncclComm_t>(made);
}

ncclResult_t init(const char *name, ncclComm_t *comm, int nranks, const ncclUniqueId &id, int rank,
                  bool blocking) {
    const CudaDriver *const cuda = CudaDriver::get();
    CUdevice device = -1;
    if (comm == nullptr || nranks < 1 || rank < 0 || rank >= nranks) {
        return refuse(ncclInvalidArgument, std::string(name) +
                                               ": expected a rank below nranks, "
                                               "got " +
                                               number(rank) + " of " + number(nranks));
    }
    if (cuda == nullptr || cuda->ctx_get_device(&device) != CUDA_SUCCESS) {
        return refuse(ncclUnhandledCudaError, std::string(name) + ": expected a current device");
    }
    World &world = World::get();
    std::unique_lock<std::mutex> lock(world.mutex);
    std::array<char, 128> key;
    std::memcpy(key.data(), id.internal, key.size());
    const auto found = world.groups.find(key);
    if (found == world.groups.end()) {
        return refuse(ncclInvalidArgument,
                      std::string(name) + ", commId: expected an id of ncclGetUniqueId");
    }
    Group &group = *found->second;
    if (group.ranks.empty()) {
        group.ranks.resize(nranks);
    }
    if (group.ranks.size() != static_cast<size_t>(nranks)) {
        return refuse(ncclInvalidArgument, std::string(name) + ", nranks: expected " +
                                               number(group.ranks.size()) +
                                               ", as another rank, got " + number(nranks));
    }
    if (group.ranks[rank] != nullptr) {
        return refuse(ncclInvalidUsage,
                      std::string(name) + ": rank " + number(rank) + " has joined already");
    }
    for (const Rank *const other : group.ranks) {
        if (other != nullptr && other->device == device) {
            return refuse(ncclInvalidUsage, std::string(name) + ": duplicate GPU: ranks " +
                                                number(other->rank) + " and " + number(rank) +
                                                " are on device " + number(device));
        }
    }
    *comm = join(group, rank, device, blocking);
    if (blocking) {
        world.changed.wait(lock, [&] { return group.complete(); });
    }
    return group.complete() ? ncclSuccess : ncclInProgress;
}

} // namespace

ncclResult_t ncclGetVersion(int *version) {
    if (version == nullptr) {
        return refuse(ncclInvalidArgument, "ncclGetVersion, version: expected an address");
    }
    *version = version_number;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    if (id == nullptr) {
        return refuse(ncclInvalidArgument, "ncclGetUniqueId, uniqueId: expected an address");
    }
    World &world = World::get();
    const std::lock_guard<std::mutex> lock(world.mutex);
    std::array<char, 128> key = {};
    ++world.identifiers;
    std::memcpy(key.data(), &world.identifiers, sizeof world.identifiers);
    std::memcpy(key.data() + 8, "uhal-sim", 8);
    world.groups[key] = std::make_unique<Group>();
    std::memcpy(id->internal, key.data(), key.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    return init(__func__, comm, nranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    if (config != nullptr &&
        (config->magic != NCCL_CONFIG_MAGIC || config->size < sizeof(ncclConfig_t))) {
        return refuse(ncclInvalidArgument,
                      "ncclCommInitRankConfig, config: expected NCCL_CONFIG_INITIALIZER's fields");
    }
    return init(__func__, comm, nranks, id, rank, config == nullptr || config->blocking != 0);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *) {
    World &world = World::get();
    std::unique_lock<std::mutex> lock(world.mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_ready(__func__, comm, rank);
    if (result != ncclSuccess) {
        return result;
    }
    if (made == nullptr || color < -1) {
        return refuse(ncclInvalidArgument, "ncclCommSplit: expected a color from 0, or -1");
    }
    Group &group = *rank->group;
    const size_t turn = rank->splits++;
    group.splits[turn][rank->rank] = {color, key};
    world.changed.notify_all();
    world.changed.wait(
        lock, [&] { return group.splits[turn].size() == group.ranks.size() || group.failed; });
    *made = nullptr;
    if (group.failed) {
        return refuse(ncclRemoteError, "ncclCommSplit: another rank has failed");
    }
    if (color < 0) {
        return ncclSuccess;
    }
    std::vector<std::array<int, 2>> members; // key and rank
    for (const auto &[other, told] : group.splits[turn]) {
        if (told[0] == color) {
            members.push_back({told[1], other});
        }
    }
    std::sort(members.begin(), members.end());
    Group *&part = group.parts[{turn, static_cast<size_t>(color)}];
    if (part == nullptr) {
        world.split_groups.push_back(std::make_unique<Group>());
        part = world.split_groups.back().get();
        part->ranks.resize(members.size());
    }
    const auto self =
        std::find(members.begin(), members.end(), std::array<int, 2>{key, rank->rank});
    *made = join(*part, static_cast<int>(self - members.begin()), rank->device, rank->blocking);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_rank(__func__, comm, rank);
    if (result == ncclSuccess && count != nullptr) {
        *count = static_cast<int>(rank->group->ranks.size());
    }
    return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *number) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_rank(__func__, comm, rank);
    if (result == ncclSuccess && number != nullptr) {
        *number = rank->rank;
    }
    return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    World &world = World::get();
    std::unique_lock<std::mutex> lock(world.mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_ready(__func__, comm, rank);
    if (result != ncclSuccess) {
        return result;
    }
    rank->finalized = true;
    if (rank->blocking) {
        world.changed.wait(lock, [&] { return rank->running == 0 || rank->group->failed; });
    }
    return rank->running == 0 ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_rank(__func__, comm, rank);
    if (result != ncclSuccess) {
        return result;
    }
    if (rank->running != 0) {
        return refuse(ncclInvalidUsage, "ncclCommDestroy: " + number(rank->running) +
                                            " calls have not ended; call ncclCommFinalize");
    }
    if (group_depth > 0) {
        return refuse(ncclInvalidUsage, "ncclCommDestroy: expected no open group");
    }
    rank->ended = true;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_rank(__func__, comm, rank);
    if (result == ncclSuccess) {
        rank->ended = true;
        rank->group->fail(*rank, ncclRemoteError);
    }
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    Rank *rank = nullptr;
    const ncclResult_t result = find_rank(__func__, comm, rank);
    if (result != ncclSuccess || error == nullptr) {
        return result;
    }
    const bool finalizing = rank->finalized && rank->running != 0;
    *error = rank->error != ncclSuccess               ? rank->error
             : !rank->group->complete() || finalizing ? ncclInProgress
                                                      : ncclSuccess;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t) {
    return last_words();
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, ncclStream_t stream) {
    const bool is_root = rank_of(comm) == root;
    return noted(submit(
        __func__, comm,
        make_call(Kind::broadcast, count, type, ncclSum, root, send, is_root, recv, 1, stream),
        false));
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, ncclStream_t stream) {
    const bool is_root = rank_of(comm) == root;
    return noted(submit(
        __func__, comm,
        make_call(Kind::reduce, count, type, op, root, send, 1, recv, is_root, stream), true));
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream) {
    return noted(submit(__func__, comm,
                        make_call(Kind::all_reduce, count, type, op, 0, send, 1, recv, 1, stream),
                        true));
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream) {
    return noted(submit(__func__, comm,
                        make_call(Kind::reduce_scatter, recvcount, type, op, 0, send,
                                  ranks_of(comm), recv, 1, stream),
                        true));
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type,
                           ncclComm_t comm, ncclStream_t stream) {
    return noted(submit(__func__, comm,
                        make_call(Kind::all_gather, sendcount, type, ncclSum, 0, send, 1, recv,
                                  ranks_of(comm), stream),
                        false));
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, ncclStream_t stream) {
    Call call =
        make_call(Kind::point_to_point, count, type, ncclSum, 0, send, 1, nullptr, 0, stream);
    call.peer = peer;
    call.sends = true;
    return noted(submit(__func__, comm, call, false));
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      ncclStream_t stream) {
    Call call =
        make_call(Kind::point_to_point, count, type, ncclSum, 0, nullptr, 0, recv, 1, stream);
    call.peer = peer;
    return noted(submit(__func__, comm, call, false));
}

ncclResult_t ncclGroupStart(void) {
    ++group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (group_depth == 0) {
        return refuse(ncclInvalidUsage, "ncclGroupEnd: expected a group that was started");
    }
    if (--group_depth > 0) {
        return ncclSuccess;
    }
    std::vector<Call> calls;
    calls.swap(grouped);
    const ncclResult_t error = group_error;
    group_error = ncclSuccess;
    return error != ncclSuccess ? error : flush(std::move(calls));
}
