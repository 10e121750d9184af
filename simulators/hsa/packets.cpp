#include "packets.h"

#include "runtime.h"

namespace hsa_sim {

namespace {

constexpr uint32_t reserved_header_bits = 0xE000;
constexpr uint16_t kernarg_alignment = 16;
constexpr unsigned dimensions_mask = 3;

std::string number(uint64_t value) {
    return std::to_string(value);
}

Refusal check_extents(const hsa_kernel_dispatch_packet_t &packet) {
    const unsigned dimensions = dimensions_of(packet);
    const auto grid = grid_of(packet);
    const auto group = group_of(packet);
    if (dimensions == 0) {
        return {HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS, "its setup says 0 dimensions"};
    }
    for (unsigned axis = 0; axis < 3; ++axis) {
        const std::string name(1, static_cast<char>('x' + axis));
        if (grid[axis] == 0 || group[axis] == 0) {
            return {HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS,
                    "its grid or work-group is 0 along " + name};
        }
        if (axis >= dimensions && (grid[axis] != 1 || group[axis] != 1)) {
            return {HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS,
                    "it has " + number(dimensions) +
                        " dimensions and an extent other than 1 along " + name};
        }
    }
    const uint64_t items = uint64_t{group[0]} * group[1] * group[2];
    if (items > max_group_items) {
        return {HSA_STATUS_ERROR_INVALID_ARGUMENT, "its work-group has " + number(items) +
                                                       " work-items, the device takes " +
                                                       number(max_group_items)};
    }
    return {};
}

Refusal check_segments(const hsa_kernel_dispatch_packet_t &packet, const sim::HsacoKernel &kernel) {
    if (packet.group_segment_size > group_bytes || packet.group_segment_size < kernel.group_bytes) {
        return {HSA_STATUS_ERROR_INVALID_ALLOCATION,
                "it has " + number(packet.group_segment_size) + " bytes of LDS, the kernel needs " +
                    number(kernel.group_bytes) + " and the device has " + number(group_bytes)};
    }
    if (packet.private_segment_size > max_private_bytes ||
        packet.private_segment_size < kernel.private_bytes) {
        return {HSA_STATUS_ERROR_OUT_OF_RESOURCES,
                "it has " + number(packet.private_segment_size) +
                    " bytes of scratch a work-item, the kernel needs " +
                    number(kernel.private_bytes) + " and the device has " +
                    number(max_private_bytes)};
    }
    if (kernel.dynamic_stack && packet.private_segment_size == kernel.private_bytes) {
        return {HSA_STATUS_ERROR_OUT_OF_RESOURCES,
                "the kernel's stack grows and the packet adds nothing for it"};
    }
    return {};
}

Refusal check_kernel(const hsa_kernel_dispatch_packet_t &packet, const Symbol &symbol) {
    const sim::HsacoKernel &kernel = *symbol.kernel;
    const auto group = group_of(packet);
    const uint64_t items = uint64_t{group[0]} * group[1] * group[2];
    const uint32_t most = std::min(kernel.max_work_items, symbol.code->max_threads());
    if (items > most) {
        return {HSA_STATUS_ERROR_INVALID_ARGUMENT, "its work-group has " + number(items) +
                                                       " work-items, the kernel takes " +
                                                       number(most)};
    }
    if (kernel.required_group[0] != 0 && kernel.required_group != group) {
        return {HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS,
                "its work-group is not the one the kernel was compiled for"};
    }
    const auto grid = grid_of(packet);
    for (size_t axis = 0; axis < 3; ++axis) {
        if (grid[axis] % group[axis] != 0) {
            return {HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS,
                    "its last work-group is partial, which kernels for whole ones do not expect"};
        }
    }
    return {};
}

} // namespace

std::array<uint32_t, 3> grid_of(const hsa_kernel_dispatch_packet_t &packet) {
    return {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z};
}

std::array<uint32_t, 3> group_of(const hsa_kernel_dispatch_packet_t &packet) {
    return {packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z};
}

unsigned dimensions_of(const hsa_kernel_dispatch_packet_t &packet) {
    return packet.setup >> HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS & dimensions_mask;
}

Refusal check_packet(const Runtime &runtime, const Packet &packet) {
    const auto malformed = [](const std::string &words) {
        return Refusal{HSA_STATUS_ERROR_INVALID_PACKET_FORMAT, words};
    };
    const bool dispatch = packet.type() == HSA_PACKET_TYPE_KERNEL_DISPATCH;
    if (!dispatch && !packet.is_barrier()) {
        return malformed("packets of type " + number(packet.type()) + " are not for this queue");
    }
    if ((packet.start & reserved_header_bits) != 0 || packet.acquire() > HSA_FENCE_SCOPE_SYSTEM ||
        packet.release() > HSA_FENCE_SCOPE_SYSTEM) {
        return malformed("its header has bits or fence scopes that mean nothing");
    }
    const auto &launch = packet.dispatch;
    const auto &barrier = packet.barrier;
    const bool reserved =
        dispatch ? launch.reserved0 != 0 || launch.reserved2 != 0 || launch.setup > dimensions_mask
                 : barrier.reserved0 != 0 || barrier.reserved1 != 0 || barrier.reserved2 != 0;
    if (reserved) {
        return malformed("a reserved field of it is not 0");
    }
    const auto stale = [&](hsa_signal_t handle) {
        return handle.handle != 0 && runtime.signals.find(handle) == nullptr;
    };
    bool unknown = stale(launch.completion_signal);
    for (const hsa_signal_t handle : barrier.dep_signal) {
        unknown = unknown || (packet.is_barrier() && stale(handle));
    }
    if (unknown) {
        return {HSA_STATUS_ERROR_INVALID_SIGNAL, "a signal of it does not exist, or no longer"};
    }
    return {};
}

Refusal check_dispatch(const Runtime &runtime, const Queue &queue,
                       const hsa_kernel_dispatch_packet_t &packet,
                       std::shared_ptr<Symbol> &kernel) {
    const Refusal refusal = check_extents(packet);
    if (refusal) {
        return refusal;
    }
    kernel = runtime.find_kernel(packet.kernel_object);
    if (kernel == nullptr || kernel->agent != queue.agent) {
        return {HSA_STATUS_ERROR_INVALID_CODE_OBJECT,
                kernel == nullptr ? "its kernel object is none of a frozen executable"
                                  : "its kernel was loaded for another agent"};
    }
    const auto kernarg = reinterpret_cast<uint64_t>(packet.kernarg_address);
    if (kernel->kernel->kernarg_bytes != 0 && kernarg % kernarg_alignment != 0) {
        return {HSA_STATUS_ERROR_INVALID_ARGUMENT,
                "its kernel arguments do not lie at a multiple of " + number(kernarg_alignment)};
    }
    const Refusal segments = check_segments(packet, *kernel->kernel);
    return segments ? segments : check_kernel(packet, *kernel);
}

} // namespace hsa_sim
