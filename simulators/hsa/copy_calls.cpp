// Copies and fills.
#include <cstring>

#include "../engine/guard.h"
#include "call.h"
#include "copy_work.h"

using namespace hsa_sim;

namespace {

// Checks that an address belongs to the agent that the program names.
hsa_status_t check_owner(Runtime &runtime, const Agent &told, uint64_t address) {
    const Range *range = runtime.ranges.find(address);
    const Agent &owner = range == nullptr ? runtime.cpu() : *range->owner;
    if (runtime.ranges.device_only(address) && range == nullptr) {
        return HSA_STATUS_SUCCESS; // owner unknown: the copy itself faults
    }
    return &owner == &told ? HSA_STATUS_SUCCESS
                           : refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT,
                                    "the memory is not of the agent that was named");
}

hsa_status_t find_dependencies(Runtime &runtime, uint32_t count, const hsa_signal_t *handles,
                               Copy &copy) {
    if ((count == 0) != (handles == nullptr)) {
        return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT,
                      "dependencies must be NULL when there are none, and only then");
    }
    for (uint32_t index = 0; index < count; ++index) {
        const auto signal = runtime.signals.find(handles[index]);
        if (signal == nullptr) {
            return HSA_STATUS_ERROR_INVALID_SIGNAL;
        }
        copy.dependencies.push_back(signal);
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t submit(Runtime &runtime, const std::shared_ptr<Copy> &copy, uint32_t count,
                    const hsa_signal_t *dependencies, hsa_signal_t completion) {
    const hsa_status_t status = find_dependencies(runtime, count, dependencies, *copy);
    if (status != HSA_STATUS_SUCCESS) {
        return status;
    }
    copy->completion = runtime.signals.find(completion);
    if (copy->completion == nullptr) {
        return HSA_STATUS_ERROR_INVALID_SIGNAL;
    }
    copy->profiled = runtime.copies_profiled;
    runtime.processor.submit(copy);
    return HSA_STATUS_SUCCESS;
}

CopyShape::Side side_of(const hsa_pitched_ptr_t &memory, const hsa_dim3_t &offset) {
    return {reinterpret_cast<uint64_t>(memory.base) + offset.x + offset.y * memory.pitch +
                offset.z * memory.slice,
            memory.pitch, memory.slice};
}

bool rows_fit(const hsa_pitched_ptr_t &memory, const hsa_dim3_t &offset, const hsa_dim3_t &range) {
    const bool rows = range.y <= 1 || uint64_t{offset.x} + range.x <= memory.pitch;
    const bool slices =
        range.z <= 1 || (uint64_t{offset.y} + range.y) * memory.pitch <= memory.slice;
    return memory.base != nullptr && rows && slices;
}

} // namespace

hsa_status_t hsa_memory_copy(void *destination, const void *source, size_t size) {
    return in_runtime("hsa_memory_copy", [&](Call &call) {
        if (destination == nullptr || source == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        if (size == 0) {
            return HSA_STATUS_SUCCESS;
        }
        CopyShape shape;
        shape.destination.address = reinterpret_cast<uint64_t>(destination);
        shape.source.address = reinterpret_cast<uint64_t>(source);
        shape.width = size;
        CopyWork work;
        const Refusal refusal = prepare_program_copy(call.runtime, shape, work);
        if (refusal) {
            return refuse(refusal.status == memory_fault ? HSA_STATUS_ERROR_INVALID_ARGUMENT
                                                         : refusal.status,
                          refusal.words);
        }
        if (move_bytes(work).status != sim::Status::ok) {
            return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT, "there is no such memory");
        }
        call.runtime.fences.copied_to(shape.destination.address, size);
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_amd_memory_async_copy(void *destination, hsa_agent_t destination_agent,
                                       const void *source, hsa_agent_t source_agent, size_t size,
                                       uint32_t dependency_count, const hsa_signal_t *dependencies,
                                       hsa_signal_t completion) {
    return in_runtime("hsa_amd_memory_async_copy", [&](Call &call) {
        Runtime &runtime = call.runtime;
        Agent *to = runtime.find_agent(destination_agent);
        Agent *from = runtime.find_agent(source_agent);
        if (to == nullptr || from == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (destination == nullptr || source == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        if (size == 0) {
            // The completion signal does not change, so a wait for the signal never ends.
            return HSA_STATUS_SUCCESS;
        }
        const auto copy = std::make_shared<Copy>();
        copy->shape.destination.address = reinterpret_cast<uint64_t>(destination);
        copy->shape.source.address = reinterpret_cast<uint64_t>(source);
        copy->shape.width = size;
        copy->engine = from->gpu() ? from : to;
        hsa_status_t status = check_owner(runtime, *to, copy->shape.destination.address);
        if (status == HSA_STATUS_SUCCESS) {
            status = check_owner(runtime, *from, copy->shape.source.address);
        }
        return status != HSA_STATUS_SUCCESS
                   ? status
                   : submit(runtime, copy, dependency_count, dependencies, completion);
    });
}

hsa_status_t hsa_amd_memory_async_copy_rect(
    const hsa_pitched_ptr_t *destination, const hsa_dim3_t *destination_offset,
    const hsa_pitched_ptr_t *source, const hsa_dim3_t *source_offset, const hsa_dim3_t *range,
    hsa_agent_t copy_agent, hsa_amd_copy_direction_t direction, uint32_t dependency_count,
    const hsa_signal_t *dependencies, hsa_signal_t completion) {
    return in_runtime("hsa_amd_memory_async_copy_rect", [&](Call &call) {
        Agent *engine = call.runtime.find_agent(copy_agent);
        if (engine == nullptr || !engine->gpu()) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (destination == nullptr || destination_offset == nullptr || source == nullptr ||
            source_offset == nullptr || range == nullptr || direction < hsaHostToHost ||
            direction > hsaDeviceToDevice || !rows_fit(*destination, *destination_offset, *range) ||
            !rows_fit(*source, *source_offset, *range)) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        if (range->x == 0 || range->y == 0 || range->z == 0) {
            return HSA_STATUS_SUCCESS;
        }
        const auto copy = std::make_shared<Copy>();
        copy->shape.destination = side_of(*destination, *destination_offset);
        copy->shape.source = side_of(*source, *source_offset);
        copy->shape.width = range->x;
        copy->shape.height = range->y;
        copy->shape.depth = range->z;
        copy->engine = engine;
        return submit(call.runtime, copy, dependency_count, dependencies, completion);
    });
}

hsa_status_t hsa_amd_memory_fill(void *pointer, uint32_t value, size_t count) {
    return in_runtime("hsa_amd_memory_fill", [&](Call &call) {
        const auto address = reinterpret_cast<uint64_t>(pointer);
        if (pointer == nullptr || address % sizeof value != 0 || count > SIZE_MAX / sizeof value) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        if (count == 0) {
            return HSA_STATUS_SUCCESS;
        }
        Runtime &runtime = call.runtime;
        const uint64_t bytes = count * sizeof value;
        const Range *range = runtime.ranges.find(address, bytes);
        if (range == nullptr) {
            return refuse(HSA_STATUS_ERROR_INVALID_ALLOCATION,
                          "the words are not all in one allocation");
        }
        char *filled = static_cast<char *>(runtime.ranges.view(*range, address));
        const bool by_device = range->owner->gpu() || range->allowed.size() > 1;
        const sim::Outcome outcome = sim::run_guarded([&] {
            if (!by_device) {
                // For memory that no GPU uses, the real runtime repeats the value's lowest byte.
                std::memset(filled, static_cast<int>(value & 0xFF), bytes);
                return;
            }
            for (size_t index = 0; index < count; ++index) {
                std::memcpy(filled + index * sizeof value, &value, sizeof value);
            }
        });
        runtime.fences.copied_to(address, bytes);
        return outcome.status == sim::Status::ok ? HSA_STATUS_SUCCESS
                                                 : HSA_STATUS_ERROR_INVALID_ALLOCATION;
    });
}
