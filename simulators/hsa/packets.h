// Checks packets before they start, as a packet processor does.
#pragma once

#include <string>

#include "queue.h"

namespace hsa_sim {

class Runtime;

// Why a queue stops, with the status for its error callback.
struct Refusal {
    hsa_status_t status = HSA_STATUS_SUCCESS;
    std::string words;

    explicit operator bool() const { return status != HSA_STATUS_SUCCESS; }
};

// Checks type, reserved fields and signals.
Refusal check_packet(const Runtime &runtime, const Packet &packet);

// Checks the rest of a kernel's packet. Sets `kernel` to the kernel to launch.
Refusal check_dispatch(const Runtime &runtime, const Queue &queue,
                       const hsa_kernel_dispatch_packet_t &packet, std::shared_ptr<Symbol> &kernel);

// The extents of a packet, including unused dimensions.
std::array<uint32_t, 3> grid_of(const hsa_kernel_dispatch_packet_t &packet);
std::array<uint32_t, 3> group_of(const hsa_kernel_dispatch_packet_t &packet);
unsigned dimensions_of(const hsa_kernel_dispatch_packet_t &packet);

} // namespace hsa_sim
