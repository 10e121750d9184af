// A simulated device: its memory, the devices it may reach, and whether it is lost.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "memory.h"
#include "status.h"

namespace sim {

struct Device {
    Device(int device_ordinal, uint64_t bytes) : ordinal(device_ordinal), memory(bytes) {}

    const int ordinal;
    DeviceMemory memory;
    std::set<const Device *> peers; // devices whose memory its kernels may touch
    Status fault = Status::ok;      // never cleared once set
    std::string fault_text;
};

} // namespace sim
