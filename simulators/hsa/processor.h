// Simulates the packet processors and copy engines of all devices on one thread. The schedule
// chooses an order that the packets allow:
//
//   * packets of a queue start in order; a packet with the barrier bit waits for the end of all
//     earlier packets, and packets behind a barrier packet wait for its end;
//   * launched kernels that nothing orders run in any order, and so do copies.
//
// Schedules other than eager start work only when it is due. Work is due when a thread waits for
// the work's signal, for a signal that depends on the work, or for space in its queue. Callers
// hold the runtime's lock.
#pragma once

#include <condition_variable>
#include <memory>
#include <string>
#include <vector>

#include "../engine/schedule.h"
#include "callbacks.h"
#include "queue.h"

namespace hsa_sim {

class Runtime;

class Processor {
  public:
    Processor(Runtime &runtime, sim::Schedule schedule)
        : runtime_(runtime), schedule_(std::move(schedule)) {}
    Processor(const Processor &) = delete;
    Processor &operator=(const Processor &) = delete;

    // The doorbell of a queue was rung with the index of its last packet.
    void ring(const std::shared_ptr<Queue> &queue, uint64_t last);
    void submit(const std::shared_ptr<Copy> &copy);

    // Changes a signal's value and wakes the threads that wait for the change.
    void set(Signal &signal, hsa_signal_value_t value);
    void add_handler(const std::shared_ptr<Signal> &signal, const SignalHandler &handler);

    // Waits until the condition holds or `timeout` ticks have passed; returns the last value seen.
    hsa_signal_value_t wait(Lock &lock, const std::shared_ptr<Signal> &signal,
                            hsa_signal_condition_t condition, hsa_signal_value_t compared,
                            uint64_t timeout);

    // The program looked at a signal, or at the read index of a queue. Each look makes one step
    // due, so that a program that polls makes progress.
    void poll(Signal &signal);
    void poll(Queue &queue);

    // Stops a queue permanently and reports the reason to its program.
    void fail(const std::shared_ptr<Queue> &queue, hsa_status_t status, const std::string &reason);

    // Drops a queue and its pending packets; waits for the running packet.
    void remove(Lock &lock, const std::shared_ptr<Queue> &queue);
    void remove_all(Lock &lock);

    // Number of times that the thread has woken. The thread wakes only for new work.
    uint64_t wakes() const { return wakes_; }

  private:
    // One thing to do next: launch a queue's first packet, run a kernel, or copy.
    struct Step {
        std::shared_ptr<Queue> queue;
        std::shared_ptr<Dispatch> dispatch;
        std::shared_ptr<Copy> copy;
    };

    void start_thread();
    void serve_forever();
    std::vector<Step> ready();
    bool may_start(Queue &queue);
    bool satisfied(const Packet &packet);
    void take(Lock &lock, const Step &step);
    void start(const std::shared_ptr<Queue> &queue);
    void start_kernel(const std::shared_ptr<Queue> &queue, const Packet &packet,
                      uint64_t announcement);
    void pass_barrier(Queue &queue, const Packet &packet);
    void run_kernel(Lock &lock, const std::shared_ptr<Queue> &queue,
                    const std::shared_ptr<Dispatch> &dispatch);
    void run_copy(Lock &lock, const std::shared_ptr<Copy> &copy);
    void report_memory_fault(Agent &agent, uint64_t address, const std::string &reason);
    void free_slot(Queue &queue);
    void complete(const std::shared_ptr<Signal> &signal, bool timed, bool copy, uint64_t start);

    void see_packets(const std::shared_ptr<Queue> &queue);
    void raise(Queue &queue, uint64_t position);
    void raise(Copy &copy);
    void demand_dependencies(const Packet &packet);
    void demand(Signal &signal);
    void serve_demands();
    void raise_randomly();

    Runtime &runtime_;
    sim::Schedule schedule_;
    bool started_ = false;
    uint64_t wakes_ = 0;
    std::vector<std::shared_ptr<Queue>> queues_;
    std::vector<std::shared_ptr<Copy>> copies_;
    std::vector<Signal *> demands_;   // signals whose producers must become due
    const void *busy_with_ = nullptr; // the queue or copy in progress, without the lock
    std::condition_variable work_;
    std::condition_variable idle_;
};

bool holds(hsa_signal_condition_t condition, hsa_signal_value_t value, hsa_signal_value_t compared);

} // namespace hsa_sim
