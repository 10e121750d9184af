#include "copy_work.h"

#include <cstring>

#include "../engine/guard.h"
#include "runtime.h"

namespace hsa_sim {

namespace {

using Finder = char *(*)(Runtime &, const Agent *, uint64_t, uint64_t);

// Host address of memory for an engine; null where the engine may not access it.
char *find_for_engine(Runtime &runtime, const Agent *engine, uint64_t address, uint64_t bytes) {
    const Range *range = runtime.ranges.find(address, bytes);
    if (range != nullptr && range->allows(*engine)) {
        return static_cast<char *>(runtime.ranges.view(*range, address));
    }
    const bool program = range == nullptr && !engine->gpu() && !runtime.ranges.device_only(address);
    return program ? reinterpret_cast<char *>(address) : nullptr;
}

char *find_for_program(Runtime &runtime, const Agent *, uint64_t address, uint64_t bytes) {
    const Range *range = runtime.ranges.find(address, bytes);
    if (range != nullptr) {
        return static_cast<char *>(runtime.ranges.view(*range, address));
    }
    // The memory of host pools is known: a copy must not leave its allocation, even into other
    // known memory.
    const bool unknown = runtime.ranges.find(address) == nullptr;
    return unknown && !runtime.ranges.device_only(address) ? reinterpret_cast<char *>(address)
                                                           : nullptr;
}

Refusal prepare(Runtime &runtime, const Agent *engine, Finder find, const CopyShape &shape,
                CopyWork &work) {
    work.shape = shape;
    const uint64_t destination_bytes = shape.extent(shape.destination);
    const uint64_t source_bytes = shape.extent(shape.source);
    work.destination = find(runtime, engine, shape.destination.address, destination_bytes);
    work.source = find(runtime, engine, shape.source.address, source_bytes);
    if (work.destination == nullptr || work.source == nullptr) {
        const bool reads = work.source == nullptr;
        work.fault = reads ? shape.source.address : shape.destination.address;
        return {memory_fault, std::string(reads ? "the source" : "the destination") +
                                  " of a copy is not all in memory that may be reached"};
    }
    const std::string unseen = runtime.fences.copy_reads(shape.source.address, source_bytes);
    if (!unseen.empty()) {
        return {HSA_STATUS_ERROR_EXCEPTION, "a copy may read what is old: " + unseen};
    }
    return {};
}

} // namespace

Refusal prepare_copy(Runtime &runtime, const Agent &engine, const CopyShape &shape,
                     CopyWork &work) {
    return prepare(runtime, &engine, find_for_engine, shape, work);
}

Refusal prepare_program_copy(Runtime &runtime, const CopyShape &shape, CopyWork &work) {
    return prepare(runtime, nullptr, find_for_program, shape, work);
}

sim::Outcome move_bytes(const CopyWork &work) {
    const CopyShape &shape = work.shape;
    return sim::run_guarded([&] {
        for (uint64_t z = 0; z < shape.depth; ++z) {
            for (uint64_t y = 0; y < shape.height; ++y) {
                std::memmove(
                    work.destination + z * shape.destination.slice + y * shape.destination.pitch,
                    work.source + z * shape.source.slice + y * shape.source.pitch, shape.width);
            }
        }
    });
}

} // namespace hsa_sim
