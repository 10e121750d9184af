// The process's one runtime: devices, memory, threads. The runtime is never destroyed, so that
// threads may outlive main. A forked child drops its parent's runtime and makes its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernel.h"
#include "memory.h"
#include "module.h"
#include "pool.h"
#include "scheduler.h"

#include <uhal/stream_teller.h>

namespace uhal_host {

class Stream;
struct Runtime;

// All devices share the same cores. Several devices exist so that code for several devices can
// run.
struct Device {
    Device(Runtime &owner, int device_ordinal) : runtime(owner), ordinal(device_ordinal) {}

    Runtime &runtime;
    const int ordinal;
    std::atomic<int> error{0}; // sticky: the result of every later call on the device

    // A kernel threw. If the launch lacked memory, only this launch fails, and a report is kept.
    // Any other failure loses the device; the first failure is kept.
    void fail(const std::exception_ptr &failure, const Launch &launch, const Stream &stream,
              uint64_t index);
    // Deadline of a wait that begins now, on the monotonic clock in ns; 0: none. After give_up(),
    // the deadline is now.
    int64_t deadline() const;
    // Stops all waits for the running work, because it missed its deadline.
    void give_up();
    bool gave_up() const { return gave_up_.load(std::memory_order_acquire); }
    std::string failure() const;
    // A word that any thread may read: not 0 while there are reports of launches that got no
    // memory.
    const std::atomic<uint32_t> &reported() const { return reported_; }
    // Takes a report; false if there is no report.
    bool take_report(uhal_running &of, char *entry, size_t bytes);
    // Index, in its graph, of the kernel that threw on `stream`; 0 outside of a graph. Empty for
    // other streams.
    std::optional<uint64_t> failed_index(const Stream &stream) const;

    void add(Stream &stream);
    void remove(Stream &stream);
    // Waits for the current work of every stream of the device.
    void synchronize();
    // From now on every call fails with this message. With a stream, the message also has the
    // number of the stream's launch.
    void lose(const std::string &words, const Stream *stream, uint64_t index);

  private:
    struct Report {
        uhal_running of; // its stream is only a number to the caller
        char entry[128]; // the beginning of the kernel's name
    };
    void report_lack(const Launch &launch, const Stream &stream) noexcept;

    std::atomic<bool> gave_up_{false};
    std::atomic<uint32_t> reported_{0};
    mutable std::mutex lock_; // of what follows
    std::string failure_;
    const Stream *failed_stream_ = nullptr; // only compared with
    uint64_t failed_index_ = 0;
    Stream *streams_ = nullptr;
    Report reports_[64]; // one per stream: there may be no memory for more
    size_t report_count_ = 0;
};

struct Runtime {
    Runtime(unsigned device_count, unsigned thread_count, unsigned seconds);

    const double nanoseconds_per_tick;
    const unsigned deadline_seconds; // of a wait; 0: none
    Memory memory;
    Pool pool;
    Scheduler scheduler;
    std::vector<std::unique_ptr<Device>> devices;
    std::mutex capture_lock; // of every capture, of Stream::capture and of points of events
    std::atomic<size_t> live_streams{0};
    std::atomic<size_t> live_events{0};
    std::atomic<size_t> live_modules{0};
    std::atomic<size_t> live_graphs{0};
    std::atomic<size_t> live_executables{0};
};

// Made at the first call. Null, with the error text set, when an environment variable is invalid.
Runtime *runtime();

// The calling thread's device, null before a device was set.
extern thread_local Device *current_device;

// Words for uhalHostLastErrorText on this thread.
__attribute__((format(printf, 1, 2))) void set_error_text(const char *format, ...);
const char *error_text();

} // namespace uhal_host
