#include "exchange.h"

#include <cstring>

namespace nccl_sim {

namespace {

// Data for a call's host functions. It lives as long as a plan may call these functions.
struct Visit {
    Rank *rank;
    Meeting *meeting;
    size_t place;
    bool captured;
};

void compute(Meeting &meeting) {
    const Terms &terms = meeting.terms;
    const size_t width = bytes_of(terms.type);
    const std::vector<const char *> operands(meeting.operands.begin(), meeting.operands.end());
    for (size_t place = 0; place < meeting.results.size(); ++place) {
        char *const result = meeting.results[place];
        if (meeting.result_bytes[place] == 0) {
            continue;
        }
        switch (terms.kind) {
        case Kind::all_reduce:
        case Kind::reduce:
            reduce(operands, 0, terms.count, terms.type, terms.op, result);
            break;
        case Kind::reduce_scatter:
            reduce(operands, place * terms.count, terms.count, terms.type, terms.op, result);
            break;
        case Kind::broadcast:
            std::memcpy(result, operands[terms.root], terms.count * width);
            break;
        case Kind::all_gather:
            for (size_t rank = 0; rank < operands.size(); ++rank) {
                std::memcpy(result + rank * terms.count * width, operands[rank],
                            terms.count * width);
            }
            break;
        case Kind::point_to_point:
            std::memcpy(result, operands[0], terms.count * width);
            break;
        }
    }
}

void arrive(void *data) {
    const Visit &visit = *static_cast<Visit *>(data);
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    Meeting &meeting = *visit.meeting;
    visit.rank->running += visit.captured;
    if (++meeting.arrived < meeting.operands.size()) {
        return;
    }
    meeting.arrived = 0;
    compute(meeting);
    for (size_t place = 0; place < meeting.operands.size(); ++place) {
        __atomic_store_n(&meeting.words[place], 1, __ATOMIC_RELEASE);
    }
}

void go(void *data) {
    const Visit &visit = *static_cast<Visit *>(data);
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    if (!visit.rank->group->failed) {
        __atomic_store_n(&visit.meeting->words[visit.place], 0, __ATOMIC_RELEASE);
    }
}

void leave(void *data) {
    const Visit &visit = *static_cast<Visit *>(data);
    const std::lock_guard<std::mutex> lock(World::get().mutex);
    --visit.rank->running;
    World::get().changed.notify_all();
}

bool is_device_memory(const CudaDriver &cuda, const void *memory, size_t bytes, int device,
                      std::string &found) {
    const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(memory);
    unsigned kind = 0;
    int ordinal = -1;
    CUdeviceptr start = 0;
    size_t size = 0;
    if (cuda.attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
        kind != CU_MEMORYTYPE_DEVICE) {
        found = "memory that is not a device's";
        return false;
    }
    cuda.attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    if (ordinal != device) {
        found = "memory of device " + std::to_string(ordinal);
        return false;
    }
    cuda.attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    cuda.attribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    found = std::to_string(start + size - address) + " bytes";
    return bytes <= start + size - address;
}

ncclResult_t check_memory(const CudaDriver &cuda, const std::string &name, const char *part,
                          const void *memory, size_t bytes, const Rank &rank) {
    std::string found;
    if (bytes == 0 || is_device_memory(cuda, memory, bytes, rank.device, found)) {
        return ncclSuccess;
    }
    return refuse(ncclInvalidArgument, name + ", " + part + ": expected " + std::to_string(bytes) +
                                           " bytes of device " + std::to_string(rank.device) +
                                           ", got " + found);
}

Meeting *make_meeting(const CudaDriver &cuda, const Call &call, size_t places) {
    auto meeting = std::make_unique<Meeting>();
    meeting->terms = call.terms;
    meeting->first = call.rank->rank;
    void *words = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuda.exchange_capture_mode(&mode);
    cuda.host_alloc(&words, places * sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE);
    cuda.exchange_capture_mode(&mode);
    if (words == nullptr) {
        return nullptr;
    }
    std::memset(words, 0, places * sizeof(uint32_t));
    meeting->words = static_cast<uint32_t *>(words);
    meeting->operands.resize(places);
    meeting->results.resize(places);
    meeting->operand_bytes.resize(places);
    meeting->result_bytes.resize(places);
    return meeting.release();
}

// Allocates page-locked memory for a call, so that its copies run in stream order.
bool allocate(const CudaDriver &cuda, size_t bytes, char *&memory) {
    void *made = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuda.exchange_capture_mode(&mode);
    const CUresult result = cuda.host_alloc(&made, bytes + 1, CU_MEMHOSTALLOC_PORTABLE);
    cuda.exchange_capture_mode(&mode);
    memory = static_cast<char *>(made);
    return result == CUDA_SUCCESS;
}

ncclResult_t to_result(CUresult result) {
    return result == CUDA_SUCCESS
               ? ncclSuccess
               : refuse(ncclUnhandledCudaError,
                        "the driver answered " + std::to_string(static_cast<int>(result)));
}

} // namespace

ncclResult_t check(const char *name, Call &call) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUdevice device = -1;
    if (cuda.stream_context(call.stream, &call.context) != CUDA_SUCCESS) {
        return refuse(ncclInvalidArgument, std::string(name) + ", stream: expected a live stream");
    }
    cuda.ctx_push(call.context);
    cuda.ctx_get_device(&device);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    cuda.is_capturing(call.stream, &capture);
    CUcontext popped = nullptr;
    cuda.ctx_pop(&popped);
    if (device != call.rank->device) {
        return refuse(ncclInvalidArgument,
                      std::string(name) + ", stream: expected a stream of device " +
                          std::to_string(call.rank->device) + ", the communicator's, got one of " +
                          std::to_string(device));
    }
    call.terms.captured = capture != CU_STREAM_CAPTURE_STATUS_NONE;
    ncclResult_t result = check_memory(cuda, name, "send", call.send, call.send_bytes, *call.rank);
    if (result == ncclSuccess) {
        result = check_memory(cuda, name, "recv", call.recv, call.recv_bytes, *call.rank);
    }
    return result;
}

ncclResult_t meet(const char *name, Call &call) {
    const CudaDriver &cuda = *CudaDriver::get();
    Rank &rank = *call.rank;
    Group &group = *rank.group;
    std::array<size_t, 3> key = {0, 0, 0};
    size_t places = group.ranks.size();
    call.place = static_cast<size_t>(rank.rank);
    if (call.peer < 0) {
        key[0] = rank.collectives++;
    } else {
        const size_t index = call.sends ? rank.sent[call.peer]++ : rank.received[call.peer]++;
        const int from = call.sends ? rank.rank : call.peer;
        const int to = call.sends ? call.peer : rank.rank;
        key = {index, static_cast<size_t>(from) + 1, static_cast<size_t>(to) + 1};
        places = 2;
        call.place = call.sends ? 0 : 1;
    }
    std::unique_ptr<Meeting> &slot = group.meetings[key];
    if (slot == nullptr) {
        slot.reset(make_meeting(cuda, call, places));
        if (slot == nullptr) {
            return refuse(ncclSystemError, "no page-locked memory");
        }
    }
    Meeting &meeting = *slot;
    if (!(meeting.terms == call.terms)) {
        group.fail(rank, ncclRemoteError);
        return refuse(ncclInvalidUsage, std::string(name) + ": expected " + meeting.terms.text() +
                                            ", as rank " + std::to_string(meeting.first) +
                                            ", as call " + std::to_string(key[0] + 1) + ", got " +
                                            call.terms.text() + " from rank " +
                                            std::to_string(rank.rank));
    }
    meeting.operand_bytes[call.place] = call.send_bytes;
    meeting.result_bytes[call.place] = call.recv_bytes;
    if (!allocate(cuda, call.send_bytes, meeting.operands[call.place]) ||
        !allocate(cuda, call.recv_bytes, meeting.results[call.place])) {
        return refuse(ncclSystemError, "no page-locked memory");
    }
    call.meeting = &meeting;
    rank.running += !call.terms.captured;
    return ncclSuccess;
}

ncclResult_t enqueue(std::vector<Call> &calls) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUresult result = CUDA_SUCCESS;
    const auto run = [&](const Call &call, auto body) {
        CUcontext popped = nullptr;
        cuda.ctx_push(call.context);
        result = result == CUDA_SUCCESS ? body() : result;
        cuda.ctx_pop(&popped);
    };
    std::vector<Visit *> visits;
    for (const Call &call : calls) {
        Meeting &meeting = *call.meeting;
        visits.push_back(new Visit{call.rank, &meeting, call.place, call.terms.captured});
        run(call, [&] {
            const CUresult copied = call.send_bytes == 0
                                        ? CUDA_SUCCESS
                                        : cuda.to_host(meeting.operands[call.place],
                                                       reinterpret_cast<CUdeviceptr>(call.send),
                                                       call.send_bytes, call.stream);
            return copied == CUDA_SUCCESS ? cuda.call_host(call.stream, arrive, visits.back())
                                          : copied;
        });
    }
    for (size_t index = 0; index < calls.size(); ++index) {
        const Call &call = calls[index];
        const Meeting &meeting = *call.meeting;
        run(call, [&] {
            return cuda.wait_value(call.stream,
                                   reinterpret_cast<CUdeviceptr>(&meeting.words[call.place]), 1,
                                   CU_STREAM_WAIT_VALUE_EQ);
        });
        run(call, [&] { return cuda.call_host(call.stream, go, visits[index]); });
        if (call.recv_bytes != 0) {
            run(call, [&] {
                return cuda.to_device(reinterpret_cast<CUdeviceptr>(call.recv),
                                      meeting.results[call.place], call.recv_bytes, call.stream);
            });
        }
        run(call, [&] { return cuda.call_host(call.stream, leave, visits[index]); });
    }
    return to_result(result);
}

} // namespace nccl_sim
