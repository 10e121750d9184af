// User-mode queues, the packets in them, and copies, as the packet processor sees them.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "fences.h"
#include "objects.h"

namespace hsa_sim {

union Packet {
    uint32_t start; // header and setup
    hsa_kernel_dispatch_packet_t dispatch;
    hsa_barrier_and_packet_t barrier;

    unsigned type() const { return start & 0xFF; }
    bool ordered() const { return (start >> HSA_PACKET_HEADER_BARRIER & 1) != 0; }
    unsigned acquire() const { return start >> HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE & 3; }
    unsigned release() const { return start >> HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE & 3; }
    bool is_barrier() const {
        return type() == HSA_PACKET_TYPE_BARRIER_AND || type() == HSA_PACKET_TYPE_BARRIER_OR;
    }
};

static_assert(sizeof(Packet) == 64, "packets are 64 bytes in every queue");

// A launched kernel that has not run.
struct Dispatch {
    Packet packet = {};
    uint64_t index = 0;
    uint64_t announcement = 0;
    QueueFences acquired; // the queue's acquires at the launch
    std::shared_ptr<Symbol> kernel;
};

struct Queue {
    hsa_queue_t *abi = nullptr; // the program's view; never freed, so its address stays unique
    Agent *agent = nullptr;
    hsa_queue_callback_t callback = nullptr;
    void *data = nullptr;
    std::shared_ptr<Signal> doorbell;
    bool profiled = false;
    bool failed = false; // no more packets are taken from it

    // Each field is the index of the first packet that has not reached the field's state.
    uint64_t written = 0;   // reserved by the program
    uint64_t announced = 0; // announced by the doorbell
    uint64_t seen = 0;      // complete in memory, completion signal recorded
    uint64_t due = 0;       // the schedule lets it start
    uint64_t taken = 0;     // started; its slot is free

    std::deque<uint64_t> announcements; // `announced` after each ring, until the packets are taken
    std::vector<std::shared_ptr<Dispatch>> started;
    QueueFences fences;

    Packet *slot(uint64_t index) const {
        return static_cast<Packet *>(abi->base_address) + index % abi->size;
    }
    // Reads a slot, header first, because the program may still be writing the slot.
    Packet read(uint64_t index) const {
        Packet packet;
        const uint32_t start = __atomic_load_n(&slot(index)->start, __ATOMIC_ACQUIRE);
        packet = *slot(index);
        packet.start = start;
        return packet;
    }
};

// Memory of the packets: page-aligned, and inaccessible without the queue, so late writes fault.
bool make_ring(Queue &queue);
void free_ring(Queue &queue);

// A copy of `depth` slices of `height` rows of `width` bytes.
struct CopyShape {
    struct Side {
        uint64_t address = 0;
        uint64_t pitch = 0; // bytes from row to row
        uint64_t slice = 0; // and from slice to slice
    };

    Side destination;
    Side source;
    uint64_t width = 0;
    uint64_t height = 1;
    uint64_t depth = 1;

    // Number of bytes from the first to the last byte of a side.
    uint64_t extent(const Side &side) const {
        return (depth - 1) * side.slice + (height - 1) * side.pitch + width;
    }
};

struct Copy {
    CopyShape shape;
    Agent *engine = nullptr; // its copy engine does the work
    std::vector<std::shared_ptr<Signal>> dependencies;
    std::shared_ptr<Signal> completion;
    bool due = false;
    bool profiled = false;
};

} // namespace hsa_sim
