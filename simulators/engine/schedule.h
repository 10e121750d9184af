// Decides when queued work runs. Hardware guarantees only explicit order. Every schedule is legal.
// Orders that are rare on real hardware reveal missing synchronization.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace sim {

class Schedule {
  public:
    enum class Kind {
        eager,  // immediately
        lazy,   // only work that somebody waits for, the newest first
        random, // a seeded mixture
    };

    // "eager", "lazy", "random:<seed>" or empty for eager. Anything else goes to `complaint`.
    static Schedule parse(const std::string &text, std::string &complaint);

    Kind kind() const { return kind_; }

    // Number of tasks in randomly chosen queues that become due when a task is submitted.
    unsigned due_on_submit();

    // Chooses the next of `count` items, which are listed oldest first.
    size_t choose(size_t count);

  private:
    Kind kind_ = Kind::eager;
    std::mt19937_64 random_;
};

} // namespace sim
