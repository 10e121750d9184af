// Graphs: work recorded once and run as a whole, any number of times.
//
// A graph is a list of steps in the order of recording, which respects every event of its capture.
// An executable graph has copies of the list. A launch hands the newest copy to a stream as one
// task. A change of a step goes into the newest copy if no launch uses it, else into another copy.
// So earlier launches keep their steps, and the caller of change() does not wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "event.h"
#include "task.h"

namespace uhal_host {

struct Device;
class Stream;

// A launch, a copy, a fill or a host function. A launch holds a reference to its module.
class Step {
  public:
    template <class Work> explicit Step(const Work &work) { set(work); }
    ~Step();

    std::unique_ptr<Step> copy() const;
    // Changes values and geometry of a launch; the kernel stays the same.
    void set_again(const Launch &launch) { task_.set_again(launch); }
    bool is_launch() const { return task_.kind == TaskKind::launch; }
    bool is_host_function() const {
        return task_.kind == TaskKind::callback || task_.kind == TaskKind::call;
    }
    const Task &task() const { return task_; }

  private:
    void set(const Launch &launch);
    void set(const Copy &copy);
    void set(const Fill &fill);
    void set(const Callback &callback);
    void set(const Call &call);

    Task task_;
};

using Steps = std::vector<std::unique_ptr<Step>>;

struct Graph {
    explicit Graph(Device &graph_device);
    ~Graph();

    Device &device;
    Steps steps;
};

// One copy of an executable graph's steps.
struct Version {
    Steps steps;
    std::vector<bool> is_stale; // of each step: whether another version has a newer one
    std::vector<size_t> stale;  // the indices of the stale steps
    mutable std::atomic<uint32_t> launches{0}; // not run to their end
};

// An executable graph. Any thread may use it.
class Executable {
  public:
    explicit Executable(const Graph &graph);
    Device &device() const { return device_; }

    void launch(Stream &stream);
    // Changes a kernel for later launches. `step` is the kernel's index.
    void change(size_t step, const Launch &launch);

    // Drops one reference: the handle's or a launch's.
    void drop();
    // A launch has run to its end.
    static void finish(const Replay &replay);

  private:
    ~Executable();
    void make_changeable();
    Version &spare_version();

    Device &device_;
    std::atomic<uint32_t> references_{1};
    std::mutex lock_; // of what follows
    std::vector<std::unique_ptr<Version>> versions_;
    Version *newest_;
    MarkHold end_;                 // of the last launch, null before the first
    const Stream *used_ = nullptr; // by the last launch
};

} // namespace uhal_host
