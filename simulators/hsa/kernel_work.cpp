#include "kernel_work.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "runtime.h"

namespace hsa_sim {

namespace {

// Replaces addresses that the agent may not use. Each address gets its own unmapped range, which
// is so wide that indexing from the address faults too.
constexpr uint64_t forbidden_stretch = uint64_t{1} << 36;
constexpr uint64_t forbidden_stretches = 16;

uint64_t forbidden() {
    static void *const range = mmap(nullptr, forbidden_stretch * forbidden_stretches, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(range);
}

uint64_t read_number(const std::vector<unsigned char> &block, const sim::HsacoArgument &argument) {
    uint64_t value = 0;
    std::memcpy(&value, block.data() + argument.offset,
                std::min<size_t>(argument.size, sizeof value));
    return value;
}

// The value that a packet's hidden argument must have; false if any value is valid.
bool expected_hidden(const std::string &kind, const Queue &queue, const Symbol &kernel,
                     const hsa_kernel_dispatch_packet_t &packet, uint64_t &expected) {
    const auto grid = grid_of(packet);
    const auto group = group_of(packet);
    const size_t axis = static_cast<size_t>(kind.back() - 'x');
    const auto is = [&](const char *name) { return kind.compare(0, kind.size() - 1, name) == 0; };
    if (axis < 3 && is("hidden_block_count_")) {
        expected = grid[axis] / group[axis];
    } else if (axis < 3 && is("hidden_group_size_")) {
        expected = group[axis];
    } else if (axis < 3 && is("hidden_remainder_")) {
        expected = grid[axis] % group[axis];
    } else if (kind == "hidden_grid_dims") {
        expected = dimensions_of(packet);
    } else if (kind == "hidden_dynamic_lds_size") {
        expected = packet.group_segment_size - kernel.kernel->group_bytes;
    } else if (kind == "hidden_queue_ptr") {
        expected = reinterpret_cast<uint64_t>(queue.abi);
    } else {
        // Arguments of services that are not simulated, grid offsets, and padding must be 0.
        expected = 0;
        return kind != "hidden_none" && kind != "hidden_private_base" &&
               kind != "hidden_shared_base";
    }
    return true;
}

Refusal check_hidden(const Queue &queue, const Symbol &kernel,
                     const hsa_kernel_dispatch_packet_t &packet,
                     const std::vector<unsigned char> &block) {
    for (const sim::HsacoArgument &argument : kernel.kernel->arguments) {
        uint64_t expected = 0;
        if (!argument.hidden() ||
            !expected_hidden(argument.kind, queue, kernel, packet, expected)) {
            continue;
        }
        const uint64_t given = read_number(block, argument);
        if (given != expected) {
            return {HSA_STATUS_ERROR_INVALID_ARGUMENT,
                    argument.kind + " at byte " + std::to_string(argument.offset) +
                        " of the arguments is " + std::to_string(given) + ", the packet says " +
                        std::to_string(expected)};
        }
    }
    return {};
}

// Copies the kernarg segment, as the device sees it.
Refusal read_arguments(Runtime &runtime, const Queue &queue, const Dispatch &dispatch,
                       KernelWork &work) {
    const uint64_t bytes = dispatch.kernel->kernel->kernarg_bytes;
    const auto address = reinterpret_cast<uint64_t>(dispatch.packet.dispatch.kernarg_address);
    if (bytes == 0) {
        return {};
    }
    const Range *range = runtime.ranges.find(address, bytes);
    if (range == nullptr || !range->allows(*queue.agent)) {
        work.fault = address;
        return {memory_fault, "the kernel's arguments lie where the agent may not read"};
    }
    const bool by_program = range->by_program();
    const std::string unseen = runtime.fences.kernel_reads(*queue.agent, dispatch.acquired, address,
                                                           by_program, dispatch.announcement);
    if (!unseen.empty()) {
        return {HSA_STATUS_ERROR_EXCEPTION, "its arguments may be old: " + unseen};
    }
    const auto *source = static_cast<const unsigned char *>(runtime.ranges.view(*range, address));
    work.arguments.assign(source, source + bytes);
    return {};
}

Refusal check_pointers(Runtime &runtime, const Queue &queue, const Dispatch &dispatch,
                       KernelWork &work) {
    const Symbol &kernel = *dispatch.kernel;
    for (size_t index = 0; index < kernel.explicit_arguments.size(); ++index) {
        const auto &argument = kernel.kernel->arguments[kernel.explicit_arguments[index]];
        const uint64_t address = read_number(work.arguments, argument);
        if (!work.code->is_pointer(index) || address == 0) {
            continue;
        }
        const Range *range = runtime.ranges.find(address);
        const bool by_program = range != nullptr && range->by_program();
        const std::string unseen = runtime.fences.kernel_reads(
            *queue.agent, dispatch.acquired, address, by_program, dispatch.announcement);
        if (!unseen.empty()) {
            return {HSA_STATUS_ERROR_EXCEPTION,
                    "argument " + std::to_string(index) + " may be old: " + unseen};
        }
        if (work.code->may_write(index)) {
            work.written.push_back(address);
        }
    }
    return {};
}

} // namespace

void *AgentAddresses::translate(uint64_t address) const {
    const Range *range = ranges_.find(address);
    if (range != nullptr && range->allows(agent_)) {
        return ranges_.view(*range, address);
    }
    const uint64_t stretch = refused_.size() % forbidden_stretches;
    refused_.push_back(address);
    // Take the middle of the range, because a kernel may also index backwards.
    return reinterpret_cast<void *>(forbidden() + stretch * forbidden_stretch +
                                    forbidden_stretch / 2);
}

uint64_t AgentAddresses::address_of(uint64_t viewed) const {
    const uint64_t offset = viewed - forbidden();
    const uint64_t stretch = offset / forbidden_stretch;
    if (stretch < forbidden_stretches && stretch < refused_.size()) {
        return refused_[stretch] + offset % forbidden_stretch - forbidden_stretch / 2;
    }
    for (const sim::DeviceMemory *memory : ranges_.devices) {
        const uint64_t address = memory->address_of(viewed);
        if (address != 0) {
            return address;
        }
    }
    return viewed;
}

Refusal prepare_kernel(Runtime &runtime, const Queue &queue, const Dispatch &dispatch,
                       KernelWork &work) {
    const hsa_kernel_dispatch_packet_t &packet = dispatch.packet.dispatch;
    const Symbol &kernel = *dispatch.kernel;
    if (runtime.find_kernel(packet.kernel_object) != dispatch.kernel) {
        return {HSA_STATUS_ERROR_INVALID_CODE_OBJECT,
                "its executable was destroyed before the kernel ran"};
    }
    work.code = kernel.code;
    Refusal refusal = read_arguments(runtime, queue, dispatch, work);
    if (!refusal) {
        refusal = check_hidden(queue, kernel, packet, work.arguments);
    }
    if (!refusal) {
        refusal = check_pointers(runtime, queue, dispatch, work);
    }
    if (refusal) {
        return refusal;
    }
    const auto grid = grid_of(packet);
    const auto group = group_of(packet);
    work.shape = {{grid[0] / group[0], grid[1] / group[1], grid[2] / group[2]},
                  group,
                  packet.group_segment_size - kernel.kernel->group_bytes};
    work.run = work.code->prepare(work.shape, work.arguments, work.addresses);
    return {};
}

} // namespace hsa_sim
