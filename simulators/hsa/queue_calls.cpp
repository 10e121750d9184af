// User-mode queues and their indices.
#include <sys/mman.h>

#include "call.h"

using namespace hsa_sim;

namespace hsa_sim {

bool make_ring(Queue &queue) {
    void *ring = mmap(nullptr, queue.abi->size * sizeof(Packet), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        return false;
    }
    queue.abi->base_address = ring;
    for (uint64_t index = 0; index < queue.abi->size; ++index) {
        queue.slot(index)->start = HSA_PACKET_TYPE_INVALID;
    }
    return true;
}

void free_ring(Queue &queue) {
    // The addresses stay reserved, so a late write never reaches other memory.
    mmap(queue.abi->base_address, queue.abi->size * sizeof(Packet), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

} // namespace hsa_sim

namespace {

template <class Body> uint64_t with_queue(const char *name, const hsa_queue_t *handle, Body body) {
    Runtime &runtime = Runtime::get();
    if (forked()) {
        misuse(name, "this process was forked from one using the runtime");
    }
    const Lock lock(runtime.mutex);
    const auto queue = runtime.find_queue(handle);
    if (queue == nullptr) {
        misuse(name, "this is no queue, or no longer");
    }
    return body(runtime, *queue);
}

uint64_t load_read_index(const char *name, const hsa_queue_t *queue) {
    return with_queue(name, queue, [](Runtime &runtime, Queue &found) {
        runtime.processor.poll(found);
        return found.taken;
    });
}

uint64_t load_write_index(const char *name, const hsa_queue_t *queue) {
    return with_queue(name, queue, [](Runtime &, Queue &found) { return found.written; });
}

uint64_t add_write_index(const char *name, const hsa_queue_t *queue, uint64_t value) {
    return with_queue(name, queue, [&](Runtime &, Queue &found) {
        found.written += value;
        return found.written - value;
    });
}

uint64_t store_write_index(const char *name, const hsa_queue_t *queue, uint64_t value) {
    return with_queue(name, queue, [&](Runtime &, Queue &found) {
        if (value < found.announced) {
            misuse(name, "the write index went back");
        }
        return found.written = value;
    });
}

} // namespace

hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                              hsa_queue_callback_t callback, void *data, uint32_t, uint32_t,
                              hsa_queue_t **queue) {
    return in_runtime("hsa_queue_create", [&](Call &call) {
        Runtime &runtime = call.runtime;
        Agent *found = runtime.find_agent(agent);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (!found->gpu()) {
            return refuse(HSA_STATUS_ERROR_INVALID_QUEUE_CREATION, "a CPU has no such queues");
        }
        const bool power = size != 0 && (size & (size - 1)) == 0;
        if (queue == nullptr || !power || size < min_queue_packets || size > max_queue_packets ||
            type > HSA_QUEUE_TYPE_COOPERATIVE) {
            return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT,
                          "a queue has a power of two of packets in " +
                              std::to_string(min_queue_packets) + "..." +
                              std::to_string(max_queue_packets));
        }
        if (type == HSA_QUEUE_TYPE_COOPERATIVE) {
            return refuse(HSA_STATUS_ERROR_INVALID_QUEUE_CREATION,
                          "cooperative queues are not simulated");
        }
        if (found->lost) {
            return refuse(HSA_STATUS_ERROR_OUT_OF_RESOURCES, runtime.fault_words);
        }
        const auto made = std::make_shared<Queue>();
        made->abi = new hsa_queue_t();
        made->abi->size = size;
        made->abi->type = type;
        made->abi->features = HSA_AGENT_FEATURE_KERNEL_DISPATCH;
        made->abi->id = ++runtime.last_queue_id;
        if (!make_ring(*made)) {
            return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
        }
        made->agent = found;
        made->callback = callback;
        made->data = data;
        made->doorbell = std::make_shared<Signal>();
        made->doorbell->value = -1;
        made->doorbell->rings = made;
        runtime.signals.add(made->doorbell);
        made->abi->doorbell_signal = made->doorbell->handle;
        runtime.queues.emplace(made->abi, made);
        *queue = made->abi;
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_queue_destroy(hsa_queue_t *queue) {
    return in_runtime("hsa_queue_destroy", [&](Call &call) {
        const auto found = call.runtime.find_queue(queue);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_QUEUE;
        }
        call.runtime.destroy_queue(call.lock, found);
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_queue_inactivate(hsa_queue_t *queue) {
    return in_runtime("hsa_queue_inactivate", [&](Call &call) {
        const auto found = call.runtime.find_queue(queue);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_QUEUE;
        }
        call.runtime.processor.remove(call.lock, found);
        return HSA_STATUS_SUCCESS;
    });
}

uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t *queue) {
    return load_read_index("hsa_queue_load_read_index_relaxed", queue);
}

uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue) {
    return load_read_index("hsa_queue_load_read_index_scacquire", queue);
}

uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue) {
    return load_write_index("hsa_queue_load_write_index_relaxed", queue);
}

uint64_t hsa_queue_load_write_index_scacquire(const hsa_queue_t *queue) {
    return load_write_index("hsa_queue_load_write_index_scacquire", queue);
}

uint64_t hsa_queue_add_write_index_relaxed(const hsa_queue_t *queue, uint64_t value) {
    return add_write_index("hsa_queue_add_write_index_relaxed", queue, value);
}

uint64_t hsa_queue_add_write_index_scacquire(const hsa_queue_t *queue, uint64_t value) {
    return add_write_index("hsa_queue_add_write_index_scacquire", queue, value);
}

uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t value) {
    return add_write_index("hsa_queue_add_write_index_screlease", queue, value);
}

uint64_t hsa_queue_add_write_index_scacq_screl(const hsa_queue_t *queue, uint64_t value) {
    return add_write_index("hsa_queue_add_write_index_scacq_screl", queue, value);
}

uint64_t hsa_queue_cas_write_index_scacq_screl(const hsa_queue_t *queue, uint64_t expected,
                                               uint64_t value) {
    return with_queue("hsa_queue_cas_write_index_scacq_screl", queue, [&](Runtime &, Queue &found) {
        const uint64_t before = found.written;
        found.written = before == expected ? value : before;
        return before;
    });
}

void hsa_queue_store_write_index_relaxed(const hsa_queue_t *queue, uint64_t value) {
    store_write_index("hsa_queue_store_write_index_relaxed", queue, value);
}

void hsa_queue_store_write_index_screlease(const hsa_queue_t *queue, uint64_t value) {
    store_write_index("hsa_queue_store_write_index_screlease", queue, value);
}
