// Stream operations that write a word of memory, or wait until a word has a given value.
#include <chrono>
#include <thread>

#include "../engine/report.h"
#include "memory_operations.h"
#include "pointers.h"

using namespace cuda_sim;

namespace {

using Clock = std::chrono::steady_clock;

// A wait or a write of one word, after its memory has been located.
struct WordOperation {
    bool waits;
    bool wide; // 64 bits
    uint64_t address;
    uint64_t value;
    unsigned condition;
    AddressInfo::Kind kind;
};

template <class Word> bool holds(Word found, Word wanted, unsigned condition) {
    switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<std::make_signed_t<Word>>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & wanted) != 0;
    default:
        return static_cast<Word>(~(found | wanted)) != 0;
    }
}

template <class Word> bool try_word(const WordOperation &what, char *view) {
    Word *const word = reinterpret_cast<Word *>(view);
    const Word value = static_cast<Word>(what.value);
    if (what.waits) {
        return holds<Word>(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, what.condition);
    }
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    return true;
}

// Tries the operation; `done` says whether a wait is over.
sim::Status attempt(const WordOperation &what, DeviceState &device, bool &done) {
    Driver &driver = Driver::get();
    const sim::Lock lock(driver.scheduler.mutex);
    char *const view = view_of(driver, what.address, what.wide ? 8 : 4, what.kind);
    if (view == nullptr) {
        device.device.fault_text = "a stream's operation on memory reached memory that is gone";
        return sim::Status::illegal_address;
    }
    done = what.wide ? try_word<uint64_t>(what, view) : try_word<uint32_t>(what, view);
    done = done || device.device.fault != sim::Status::ok;
    if (!done) {
        // The write may be queued after the wait, on any stream.
        driver.scheduler.make_all_due();
    }
    return sim::Status::ok;
}

sim::Status run(const WordOperation &what, DeviceState &device) {
    constexpr std::chrono::milliseconds patience{1};
    const uint64_t limit = Driver::get().ptx_kernels.milliseconds_of_launch();
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(limit);
    for (;;) {
        bool done = false;
        const sim::Status status = attempt(what, device, done);
        if (status != sim::Status::ok || done) {
            return status;
        }
        if (limit != 0 && Clock::now() > end) {
            const std::string words = "a stream waited " + std::to_string(limit / 1000) +
                                      " s for a value that nobody wrote";
            sim::report("uhal simulator: wait without end\n  what      " + words + "\n");
            const sim::Lock lock(Driver::get().scheduler.mutex);
            device.device.fault_text = words;
            return sim::Status::launch_timeout;
        }
        std::this_thread::sleep_for(patience);
    }
}

CUresult read_word(Call &call, const CUstreamMemOpValueParams &from, bool waits, bool wide,
                   std::vector<WordOperation> &words) {
    const unsigned condition = from.flags & ~CU_STREAM_WAIT_VALUE_FLUSH;
    const unsigned most = waits ? CU_STREAM_WAIT_VALUE_NOR : 1;
    const uint64_t bytes = wide ? 8 : 4;
    if (condition > most || from.address % bytes != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((from.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) {
        return refuse(CUDA_ERROR_NOT_SUPPORTED, "there are no remote writes to a simulated device");
    }
    const AddressInfo info = info_of(call.driver, from.address, bytes);
    if (info.kind == AddressInfo::Kind::invalid || info.kind == AddressInfo::Kind::pageable ||
        is_managed(call.driver, from.address)) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "the word is neither the device's nor page-locked");
    }
    words.push_back(
        {waits, wide, from.address, wide ? from.value64 : from.value, condition, info.kind});
    return CUDA_SUCCESS;
}

CUresult read(Call &call, const CUstreamBatchMemOpParams &from, std::vector<WordOperation> &words) {
    switch (from.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return read_word(call, from.waitValue, true,
                         from.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64, words);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return read_word(call, from.writeValue, false,
                         from.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64, words);
    case CU_STREAM_MEM_OP_BARRIER:
        return CUDA_SUCCESS; // words are written in order anyway
    default:
        return refuse(CUDA_ERROR_NOT_SUPPORTED, "this operation on memory is not simulated");
    }
}

CUresult put(const char *name, CUstream handle, unsigned count,
             CUstreamBatchMemOpParams *operations, unsigned flags) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Stream> stream = stream_of(call, handle);
        if (stream == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        Operation operation;
        const CUresult result =
            make_memory_operations(call, {nullptr, count, operations, flags}, operation);
        return result == CUDA_SUCCESS ? enqueue(call, *stream, std::move(operation)) : result;
    });
}

CUresult put_one(const char *name, CUstream stream, CUstreamBatchMemOpType type,
                 CUdeviceptr address, uint64_t value, unsigned flags) {
    CUstreamBatchMemOpParams one = {};
    one.waitValue.operation = type;
    one.waitValue.address = address;
    one.waitValue.value64 = value;
    one.waitValue.flags = flags;
    return put(name, stream, 1, &one, 0);
}

} // namespace

CUresult cuda_sim::make_memory_operations(Call &call, const CUDA_BATCH_MEM_OP_NODE_PARAMS &what,
                                          Operation &operation) {
    constexpr unsigned most = 256; // the manual's limit
    if (what.paramArray == nullptr || what.count == 0 || what.count > most || what.flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<WordOperation> words;
    for (unsigned index = 0; index < what.count; ++index) {
        const CUresult result = read(call, what.paramArray[index], words);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    DeviceState &device = *call.device;
    operation.type = static_cast<CUgraphNodeType>(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    operation.work = [words = std::move(words), &device] {
        sim::Status status = sim::Status::ok;
        for (size_t index = 0; index < words.size() && status == sim::Status::ok; ++index) {
            status = run(words[index], device);
        }
        return status;
    };
    operation.details = std::make_shared<NodeDetails>();
    NodeDetails &details = *operation.details;
    details.memory_operations.assign(what.paramArray, what.paramArray + what.count);
    details.parameters.type = operation.type;
    details.parameters.memOp = what;
    details.parameters.memOp.paramArray = details.memory_operations.data();
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    return put(__func__, stream, count, paramArray, flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
    return put_one(__func__, stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    return put(__func__, stream, count, paramArray, flags);
}
