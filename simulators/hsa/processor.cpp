#include "processor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../engine/thread.h"
#include "call.h"
#include "copy_work.h"
#include "kernel_work.h"
#include "packets.h"

namespace hsa_sim {

namespace {

// Maximum number of kernels of one queue that a device runs at once.
constexpr size_t most_started = 32;

// Value of a failed copy's completion signal.
constexpr hsa_signal_value_t copy_failed = -1;

std::string packet_words(const Queue &queue, const Refusal &refusal) {
    return "packet " + std::to_string(queue.taken) + ": " + refusal.words;
}

[[noreturn]] void abort_as_the_runtime_does(const std::string &words) {
    std::fprintf(stderr, "%s\n", words.c_str());
    std::abort();
}

} // namespace

void Processor::start_thread() {
    if (!started_) {
        started_ = true;
        sim::start_thread([this] { serve_forever(); });
    }
}

void Processor::serve_forever() {
    Lock lock(runtime_.mutex);
    for (;;) {
        const std::vector<Step> steps = ready();
        if (steps.empty()) {
            work_.wait(lock);
            ++wakes_;
        } else {
            take(lock, steps[schedule_.choose(steps.size())]);
        }
    }
}

std::vector<Processor::Step> Processor::ready() {
    std::vector<Step> steps;
    for (const auto &queue : queues_) {
        if (queue->failed || queue->agent->lost) {
            continue;
        }
        for (const auto &dispatch : queue->started) {
            steps.push_back({queue, dispatch, nullptr});
        }
        if (may_start(*queue)) {
            steps.push_back({queue, nullptr, nullptr});
        }
    }
    for (const auto &copy : copies_) {
        const bool met = std::all_of(copy->dependencies.begin(), copy->dependencies.end(),
                                     [](const auto &signal) { return signal->value == 0; });
        if (copy->due && met && !copy->engine->lost) {
            steps.push_back({nullptr, nullptr, copy});
        }
    }
    return steps;
}

bool Processor::may_start(Queue &queue) {
    if (queue.taken >= queue.due || queue.started.size() >= most_started) {
        return false;
    }
    const Packet packet = queue.read(queue.taken);
    if (packet.type() == HSA_PACKET_TYPE_INVALID || (packet.ordered() && !queue.started.empty())) {
        return false;
    }
    return !packet.is_barrier() || satisfied(packet);
}

bool Processor::satisfied(const Packet &packet) {
    const bool all = packet.type() == HSA_PACKET_TYPE_BARRIER_AND;
    bool any = false;
    unsigned waiting = 0;
    for (const hsa_signal_t handle : packet.barrier.dep_signal) {
        if (handle.handle == 0) {
            continue;
        }
        const auto signal = runtime_.signals.find(handle);
        // A stale handle counts as a met dependency; the packet is refused when it starts.
        const bool met = signal == nullptr || signal->value == 0;
        any = any || met;
        waiting += met ? 0 : 1;
    }
    return waiting == 0 || (!all && any);
}

void Processor::take(Lock &lock, const Step &step) {
    if (step.copy != nullptr) {
        run_copy(lock, step.copy);
    } else if (step.dispatch != nullptr) {
        run_kernel(lock, step.queue, step.dispatch);
    } else {
        start(step.queue);
    }
}

void Processor::start(const std::shared_ptr<Queue> &queue) {
    see_packets(queue);
    serve_demands();
    const Packet packet = queue->read(queue->taken);
    auto &announcements = queue->announcements;
    while (announcements.front() <= queue->taken) {
        announcements.pop_front();
    }
    const int planned = runtime_.instruments.on_call("packet");
    const Refusal refusal = planned != 0 ? Refusal{static_cast<hsa_status_t>(planned), "injected"}
                                         : check_packet(runtime_, packet);
    if (refusal) {
        fail(queue, refusal.status, packet_words(*queue, refusal));
        return;
    }
    runtime_.fences.acquire(queue->fences, packet.acquire(), announcements.front());
    if (packet.is_barrier()) {
        pass_barrier(*queue, packet);
    } else {
        start_kernel(queue, packet, announcements.front());
    }
}

void Processor::start_kernel(const std::shared_ptr<Queue> &queue, const Packet &packet,
                             uint64_t announcement) {
    const auto dispatch = std::make_shared<Dispatch>();
    dispatch->packet = packet;
    dispatch->index = queue->taken;
    dispatch->announcement = announcement;
    dispatch->acquired = queue->fences;
    const Refusal refusal = check_dispatch(runtime_, *queue, packet.dispatch, dispatch->kernel);
    if (refusal) {
        fail(queue, refusal.status, packet_words(*queue, refusal));
        return;
    }
    queue->started.push_back(dispatch);
    free_slot(*queue);
}

void Processor::pass_barrier(Queue &queue, const Packet &packet) {
    const uint64_t start = now();
    runtime_.fences.release(*queue.agent, queue.fences, packet.release());
    const auto signal = runtime_.signals.find(packet.barrier.completion_signal);
    free_slot(queue);
    complete(signal, queue.profiled, false, start);
}

void Processor::free_slot(Queue &queue) {
    __atomic_store_n(&queue.slot(queue.taken)->dispatch.header,
                     static_cast<uint16_t>(HSA_PACKET_TYPE_INVALID), __ATOMIC_RELEASE);
    ++queue.taken;
}

void Processor::run_kernel(Lock &lock, const std::shared_ptr<Queue> &queue,
                           const std::shared_ptr<Dispatch> &dispatch) {
    const hsa_kernel_dispatch_packet_t &packet = dispatch->packet.dispatch;
    const std::string name = "kernel " + dispatch->kernel->kernel->name + ": ";
    KernelWork work(runtime_.ranges, *queue->agent);
    const uint64_t start = now();
    Refusal refusal = prepare_kernel(runtime_, *queue, *dispatch, work);
    if (!refusal) {
        busy_with_ = queue.get();
        lock.unlock();
        const sim::Outcome outcome = work.run();
        lock.lock();
        busy_with_ = nullptr;
        idle_.notify_all();
        if (outcome.status == sim::Status::illegal_address) {
            refusal = {memory_fault, "it touched memory that it may not reach"};
            work.fault = work.addresses.address_of(outcome.address);
        } else if (outcome.status != sim::Status::ok) {
            refusal = {HSA_STATUS_ERROR_EXCEPTION, "it " + outcome.words};
        }
    }
    if (queue->failed) {
        return;
    }
    const auto signal = runtime_.signals.find(packet.completion_signal);
    if (!refusal && signal == nullptr && packet.completion_signal.handle != 0) {
        refusal = {HSA_STATUS_ERROR_INVALID_SIGNAL, "its completion signal was destroyed"};
    }
    if (refusal.status == memory_fault) {
        report_memory_fault(*queue->agent, work.fault, name + refusal.words);
    }
    if (refusal) {
        fail(queue, refusal.status, name + refusal.words);
        return;
    }
    auto &started = queue->started;
    started.erase(std::find(started.begin(), started.end(), dispatch));
    for (const uint64_t address : work.written) {
        runtime_.fences.kernel_wrote(*queue->agent, queue->fences, address,
                                     dispatch->packet.release());
    }
    runtime_.fences.release(*queue->agent, queue->fences, dispatch->packet.release());
    complete(signal, queue->profiled, false, start);
}

void Processor::run_copy(Lock &lock, const std::shared_ptr<Copy> &copy) {
    copies_.erase(std::find(copies_.begin(), copies_.end(), copy));
    const uint64_t start = now();
    CopyWork work;
    const int planned = runtime_.instruments.on_call("copy");
    Refusal refusal = planned != 0 ? Refusal{static_cast<hsa_status_t>(planned), "injected"}
                                   : prepare_copy(runtime_, *copy->engine, copy->shape, work);
    if (!refusal) {
        busy_with_ = copy.get();
        lock.unlock();
        const sim::Outcome outcome = move_bytes(work);
        lock.lock();
        busy_with_ = nullptr;
        idle_.notify_all();
        if (outcome.status != sim::Status::ok) {
            refusal = {memory_fault, "a copy touched memory that is not there"};
            work.fault = outcome.address;
        }
    }
    if (refusal.status == memory_fault && planned == 0) {
        // As on hardware, the process gets the event, and the signal does not change.
        report_memory_fault(*copy->engine, work.fault, refusal.words);
        return;
    }
    if (refusal) {
        runtime_.fault_words = printable(refusal.words);
        if (copy->completion != nullptr) {
            set(*copy->completion, copy_failed);
        }
        return;
    }
    const CopyShape &shape = copy->shape;
    runtime_.fences.copied_to(shape.destination.address, shape.extent(shape.destination));
    complete(copy->completion, copy->profiled, true, start);
}

void Processor::complete(const std::shared_ptr<Signal> &signal, bool timed, bool copy,
                         uint64_t start) {
    if (signal == nullptr) {
        return;
    }
    signal->timed = timed;
    signal->timed_copy = copy;
    signal->start = start;
    signal->end = std::max(now(), start + 1);
    // Drops the producers that have ended.
    auto &producers = signal->producers;
    producers.erase(std::remove_if(producers.begin(), producers.end(),
                                   [](const Producer &producer) {
                                       const auto queue = producer.queue.lock();
                                       const bool waits =
                                           queue != nullptr && (producer.packet >= queue->taken ||
                                                                !queue->started.empty());
                                       return !waits && producer.copy.expired();
                                   }),
                    producers.end());
    set(*signal, signal->value - 1);
}

void Processor::report_memory_fault(Agent &agent, uint64_t address, const std::string &reason) {
    const std::string words = printable(reason);
    agent.lost = true;
    runtime_.fault_words = words;
    runtime_.callbacks.post(&agent, [this, &agent, address, words] {
        sim::Instruments::say(words);
        std::vector<EventHandler> handlers;
        {
            const Lock lock(runtime_.mutex);
            handlers = runtime_.event_handlers;
        }
        hsa_amd_event_t event = {};
        event.event_type = HSA_AMD_GPU_MEMORY_FAULT_EVENT;
        event.memory_fault = {agent.handle, address, HSA_AMD_MEMORY_FAULT_PAGE_NOT_PRESENT};
        bool handled = false;
        for (const EventHandler &handler : handlers) {
            handled = handler.function(&event, handler.data) == HSA_STATUS_SUCCESS || handled;
        }
        if (!handled) {
            abort_as_the_runtime_does("Memory access fault by GPU node-" +
                                      std::to_string(agent.node) + ": " + words);
        }
    });
}

void Processor::fail(const std::shared_ptr<Queue> &queue, hsa_status_t status,
                     const std::string &reason) {
    const std::string words = printable(reason);
    queue->failed = true;
    queue->started.clear();
    runtime_.fault_words = words;
    runtime_.callbacks.post(queue.get(), [queue, status, words] {
        if (queue->callback == nullptr) {
            abort_as_the_runtime_does("Queue error without a callback, status " +
                                      std::to_string(status) + ": " + words);
        }
        sim::Instruments::say(words);
        queue->callback(status, queue->abi, queue->data);
    });
}

void Processor::remove(Lock &lock, const std::shared_ptr<Queue> &queue) {
    queue->failed = true;
    queues_.erase(std::remove(queues_.begin(), queues_.end(), queue), queues_.end());
    idle_.wait(lock, [&] { return busy_with_ != queue.get(); });
}

void Processor::remove_all(Lock &lock) {
    for (const auto &queue : queues_) {
        queue->failed = true;
    }
    queues_.clear();
    copies_.clear();
    idle_.wait(lock, [&] { return busy_with_ == nullptr; });
}

} // namespace hsa_sim
