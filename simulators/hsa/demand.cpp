// Decides when work becomes due, and waits for signals.
#include <algorithm>
#include <chrono>

#include "runtime.h"

namespace hsa_sim {

namespace {

using sim::Schedule;

// A wait of more than this many ticks (about a century) never ends.
constexpr uint64_t for_ever = UINT64_MAX / 64;

std::chrono::nanoseconds duration_of(uint64_t ticks) {
    constexpr uint64_t nanoseconds_per_tick = 1000000000 / ticks_per_second;
    return std::chrono::nanoseconds(ticks * nanoseconds_per_tick);
}

} // namespace

bool holds(hsa_signal_condition_t condition, hsa_signal_value_t value,
           hsa_signal_value_t compared) {
    switch (condition) {
    case HSA_SIGNAL_CONDITION_EQ:
        return value == compared;
    case HSA_SIGNAL_CONDITION_NE:
        return value != compared;
    case HSA_SIGNAL_CONDITION_LT:
        return value < compared;
    case HSA_SIGNAL_CONDITION_GTE:
        return value >= compared;
    }
    return false;
}

void Processor::ring(const std::shared_ptr<Queue> &queue, uint64_t last) {
    if (queue->failed) {
        return;
    }
    start_thread();
    if (queue->announced == 0) {
        queues_.push_back(queue);
    }
    const bool reserved = last < queue->written;
    if (!reserved || last >= queue->taken + queue->abi->size) {
        const char *problem =
            reserved ? ", which overwrote one that was not taken" : ", which was never reserved";
        fail(queue, HSA_STATUS_ERROR_INVALID_PACKET_FORMAT,
             "the doorbell was rung for packet " + std::to_string(last) + problem);
        return;
    }
    if (last >= queue->announced) {
        queue->announced = last + 1;
        queue->announcements.push_back(queue->announced);
    } else if (queue->abi->type == HSA_QUEUE_TYPE_SINGLE && last + 1 != queue->announced) {
        fail(queue, HSA_STATUS_ERROR_INVALID_PACKET_FORMAT,
             "the doorbell of a queue for one producer went back to packet " +
                 std::to_string(last));
        return;
    }
    see_packets(queue);
    if (schedule_.kind() == Schedule::Kind::eager) {
        raise(*queue, queue->announced);
    } else if (schedule_.kind() == Schedule::Kind::random) {
        raise_randomly();
    }
    serve_demands();
    // Notify even without a new packet, because the processor may be waiting for an incomplete
    // packet.
    work_.notify_one();
}

void Processor::submit(const std::shared_ptr<Copy> &copy) {
    start_thread();
    copies_.push_back(copy);
    if (copy->completion != nullptr) {
        copy->completion->producers.push_back({{}, 0, copy});
    }
    const bool waited_for =
        copy->completion != nullptr && (copy->completion->waits != 0 || copy->completion->demanded);
    if (schedule_.kind() == Schedule::Kind::eager || waited_for) {
        raise(*copy);
    } else if (schedule_.kind() == Schedule::Kind::random) {
        raise_randomly();
    }
    serve_demands();
}

// Records the signals that new packets count down, up to the first incomplete packet.
void Processor::see_packets(const std::shared_ptr<Queue> &queue) {
    for (; queue->seen < queue->announced; ++queue->seen) {
        const Packet packet = queue->read(queue->seen);
        if (packet.type() == HSA_PACKET_TYPE_INVALID) {
            return;
        }
        // The handle lies at the same offset in all packets.
        const auto signal = runtime_.signals.find(packet.dispatch.completion_signal);
        if (signal != nullptr) {
            signal->producers.push_back({queue, queue->seen, {}});
            if (signal->waits != 0 || signal->demanded) {
                raise(*queue, queue->seen + 1);
            }
        }
        if (queue->seen < queue->due) {
            demand_dependencies(packet);
        }
    }
}

void Processor::raise(Queue &queue, uint64_t position) {
    position = std::min(position, queue.announced);
    if (position <= queue.due) {
        return;
    }
    const uint64_t first = std::max(queue.due, queue.taken);
    queue.due = position;
    for (uint64_t index = first; index < std::min(position, queue.seen); ++index) {
        demand_dependencies(queue.read(index));
    }
    work_.notify_one();
}

void Processor::raise(Copy &copy) {
    if (copy.due) {
        return;
    }
    copy.due = true;
    for (const auto &dependency : copy.dependencies) {
        if (dependency->value != 0) {
            demand(*dependency);
        }
    }
    work_.notify_one();
}

void Processor::demand_dependencies(const Packet &packet) {
    if (!packet.is_barrier()) {
        return;
    }
    for (const hsa_signal_t handle : packet.barrier.dep_signal) {
        const auto signal = runtime_.signals.find(handle);
        if (signal != nullptr && signal->value != 0) {
            demand(*signal);
        }
    }
}

// Makes the signal's producers due, now or when they are submitted. `serve_demands` does the work
// later, without recursion, because a chain of dependencies may exceed the stack.
void Processor::demand(Signal &signal) {
    if (!signal.demanded) {
        signal.demanded = true;
        demands_.push_back(&signal);
    }
}

void Processor::serve_demands() {
    while (!demands_.empty()) {
        Signal &signal = *demands_.back();
        demands_.pop_back();
        for (const Producer &producer : signal.producers) {
            const auto queue = producer.queue.lock();
            const auto copy = producer.copy.lock();
            if (queue != nullptr) {
                raise(*queue, producer.packet + 1);
            } else if (copy != nullptr) {
                raise(*copy);
            }
        }
    }
}

void Processor::raise_randomly() {
    for (unsigned steps = schedule_.due_on_submit(); steps != 0; --steps) {
        std::vector<Queue *> queues;
        std::vector<Copy *> copies;
        for (const auto &queue : queues_) {
            if (queue->due < queue->announced) {
                queues.push_back(queue.get());
            }
        }
        for (const auto &copy : copies_) {
            if (!copy->due) {
                copies.push_back(copy.get());
            }
        }
        if (queues.empty() && copies.empty()) {
            return;
        }
        const size_t chosen = schedule_.choose(queues.size() + copies.size());
        if (chosen < queues.size()) {
            raise(*queues[chosen], std::max(queues[chosen]->due, queues[chosen]->taken) + 1);
        } else {
            raise(*copies[chosen - queues.size()]);
        }
    }
}

void Processor::poll(Signal &signal) {
    if (schedule_.kind() == Schedule::Kind::eager) {
        return;
    }
    for (const Producer &producer : signal.producers) {
        const auto queue = producer.queue.lock();
        const auto copy = producer.copy.lock();
        if (queue != nullptr) {
            raise(*queue, std::min(queue->taken, producer.packet) + 1);
        } else if (copy != nullptr) {
            raise(*copy);
        }
    }
    serve_demands();
}

void Processor::poll(Queue &queue) {
    if (queue.written - queue.taken >= queue.abi->size) {
        // Makes a quarter of the queue due at once, because waking the other thread for each packet
        // would be slow.
        raise(queue, queue.taken + queue.abi->size / 4);
        serve_demands();
    }
}

void Processor::set(Signal &signal, hsa_signal_value_t value) {
    signal.value = value;
    if (value == 0) {
        signal.demanded = false;
    }
    if (signal.waits != 0) {
        signal.changed.notify_all();
    }
    const auto met = [&](const SignalHandler &handler) {
        return holds(handler.condition, value, handler.compared);
    };
    for (const SignalHandler &handler : signal.handlers) {
        if (!met(handler)) {
            continue;
        }
        runtime_.callbacks.post(&signal, [this, handler, value, handle = signal.handle] {
            const bool stays = handler.function(value, handler.data);
            const Lock lock(runtime_.mutex);
            const auto found = runtime_.signals.find(handle);
            if (found != nullptr) {
                --found->waits;
                if (stays) {
                    add_handler(found, handler);
                }
            }
        });
    }
    auto &handlers = signal.handlers;
    handlers.erase(std::remove_if(handlers.begin(), handlers.end(), met), handlers.end());
    work_.notify_one();
}

void Processor::add_handler(const std::shared_ptr<Signal> &signal, const SignalHandler &handler) {
    ++signal->waits;
    signal->handlers.push_back(handler);
    demand(*signal);
    serve_demands();
    if (holds(handler.condition, signal->value, handler.compared)) {
        set(*signal, signal->value);
    }
}

hsa_signal_value_t Processor::wait(Lock &lock, const std::shared_ptr<Signal> &signal,
                                   hsa_signal_condition_t condition, hsa_signal_value_t compared,
                                   uint64_t timeout) {
    const auto met = [&] { return holds(condition, signal->value, compared); };
    if (met()) {
        return signal->value;
    }
    ++signal->waits;
    demand(*signal);
    serve_demands();
    if (timeout > for_ever) {
        signal->changed.wait(lock, met);
    } else {
        signal->changed.wait_for(lock, duration_of(timeout), met);
    }
    --signal->waits;
    return signal->value;
}

} // namespace hsa_sim
