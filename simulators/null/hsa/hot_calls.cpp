// Queues and signals of an HSA runtime whose device does nothing: announced packets are taken at
// once, on the thread that rang the doorbell. Launches are counted, their arguments added up, and
// completion signals counted down. These functions are linked before the simulated runtime and
// replace its functions. The rest of the simulated runtime does not know these queues and signals.
#include <sys/mman.h>

#include "../../hsa/queue.h"
#include "../counting.h"

using hsa_sim::Packet;
using null_driver::counts;

namespace {

struct Queue {
    hsa_queue_t abi; // first, so the program's pointer is also a Queue's
    uint64_t written;
    uint64_t taken;
};

struct Signal {
    hsa_signal_value_t value;
    Queue *rings; // the queue whose doorbell it is
};

uint64_t last_queue_id = 0;

Signal *signal_of(hsa_signal_t handle) {
    return reinterpret_cast<Signal *>(handle.handle);
}

Queue *queue_of(const hsa_queue_t *handle) {
    return reinterpret_cast<Queue *>(const_cast<hsa_queue_t *>(handle));
}

hsa_signal_t make_signal(hsa_signal_value_t value, Queue *rings) {
    return {reinterpret_cast<uint64_t>(new Signal{value, rings})};
}

void count_down(hsa_signal_t handle) {
    if (handle.handle != 0) {
        signal_of(handle)->value -= 1;
    }
}

// Takes the packets up to an index. Totals are written once, not for each packet.
void take(Queue &queue, uint64_t last) {
    Packet *const slots = static_cast<Packet *>(queue.abi.base_address);
    const uint64_t mask = queue.abi.size - 1; // sizes are powers of two
    uint64_t launches = 0;
    uint64_t checksum = 0;
    uint64_t index = queue.taken;
    for (; index <= last; ++index) {
        Packet &packet = slots[index & mask];
        if (packet.type() == HSA_PACKET_TYPE_KERNEL_DISPATCH) {
            launches += 1;
            checksum += null_driver::sum_packed(packet.dispatch.kernarg_address);
        }
        // Both kinds of packets have the completion signal at the same offset.
        count_down(packet.dispatch.completion_signal);
        packet.start = HSA_PACKET_TYPE_INVALID;
    }
    queue.taken = index;
    counts.launches += launches;
    counts.checksum += checksum;
}

void store(hsa_signal_t handle, hsa_signal_value_t value) {
    Signal &signal = *signal_of(handle);
    signal.value = value;
    if (signal.rings != nullptr) {
        take(*signal.rings, static_cast<uint64_t>(value));
    }
}

} // namespace

// -- queues --------------------------------------------------------------------------------------

hsa_status_t hsa_queue_create(hsa_agent_t, uint32_t size, hsa_queue_type32_t type,
                              hsa_queue_callback_t, void *, uint32_t, uint32_t,
                              hsa_queue_t **queue) {
    void *ring = mmap(nullptr, size * sizeof(Packet), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    auto *made = new Queue{};
    made->abi.type = type;
    made->abi.features = HSA_AGENT_FEATURE_KERNEL_DISPATCH;
    made->abi.base_address = ring;
    made->abi.doorbell_signal = make_signal(-1, made);
    made->abi.size = size;
    made->abi.id = ++last_queue_id;
    *queue = &made->abi;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_queue_destroy(hsa_queue_t *queue) {
    munmap(queue->base_address, queue->size * sizeof(Packet));
    delete signal_of(queue->doorbell_signal);
    delete queue_of(queue);
    return HSA_STATUS_SUCCESS;
}

uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue) {
    return queue_of(queue)->taken;
}

uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t value) {
    Queue &found = *queue_of(queue);
    found.written += value;
    return found.written - value;
}

hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *, int) {
    return HSA_STATUS_SUCCESS;
}

// -- signals -------------------------------------------------------------------------------------

hsa_status_t hsa_signal_create(hsa_signal_value_t initial, uint32_t, const hsa_agent_t *,
                               hsa_signal_t *signal) {
    *signal = make_signal(initial, nullptr);
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t initial, uint32_t, const hsa_agent_t *,
                                   uint64_t, hsa_signal_t *signal) {
    *signal = make_signal(initial, nullptr);
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
    delete signal_of(signal);
    return HSA_STATUS_SUCCESS;
}

hsa_signal_value_t hsa_signal_load_scacquire(hsa_signal_t signal) {
    return signal_of(signal)->value;
}

void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    store(signal, value);
}

void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
    store(signal, value);
}

// Announced packets are done at once, so there is nothing to wait for.
hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t,
                                             hsa_signal_value_t, uint64_t, hsa_wait_state_t) {
    counts.waits += 1;
    return signal_of(signal)->value;
}

// -- copies --------------------------------------------------------------------------------------

hsa_status_t hsa_amd_memory_async_copy(void *, hsa_agent_t, const void *, hsa_agent_t, size_t bytes,
                                       uint32_t, const hsa_signal_t *, hsa_signal_t completion) {
    counts.copies += 1;
    counts.copied_bytes += bytes;
    count_down(completion);
    return HSA_STATUS_SUCCESS;
}
