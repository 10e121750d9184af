// One entry of a stream's queue.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hot_table.h>

#include "abi.h"
#include "kernel.h"

namespace uhal_host {

class Mark;
class Executable;
struct Version;

enum class TaskKind : uint8_t { launch, copy, fill, callback, call, record, wait, release, replay };

struct Copy {
    void *destination;
    const void *source;
    size_t bytes;
};

struct Fill {
    void *destination;
    size_t count; // elements
    uint32_t value;
    uint32_t width; // bytes of an element: 1, 2 or 4
};

struct Callback {
    uhal_host_function function;
    void *user_data;
};

using Call = uhalHostCall;

// One launch of a graph.
struct Replay {
    Executable *executable; // with a reference
    const Version *version; // the steps as they were at the launch
    Mark *end;              // completed behind the last step; with a reference
    size_t next;            // the step to run next
    uint64_t launches;      // of the steps before it
};

// Tasks are made and kept by their stream. `storage`, or a separate allocation if `storage` is too
// small, holds copies of the caller's data.
struct Task {
    Task *next = nullptr;
    TaskKind kind = TaskKind::copy;
    bool has_ticket = true; // counted by the stream; false for the rest of an inline launch
    union {
        Launch launch;
        Copy copy;
        Fill fill;
        Callback callback;
        Call call;
        Mark *mark;       // record, wait: with a reference
        uint64_t address; // release: memory to free
        Replay replay;
    };

    Task() : address(0) {}
    Task(const Task &) = delete;
    ~Task() { clear(); }

    void set(const Launch &asked);
    // Sets new values for the same kernel: nothing is allocated.
    void set_again(const Launch &asked);
    // Reads the source now.
    void set_snapshot(void *destination, const void *source, size_t bytes);
    // Gives back memory and references; the task can be used again.
    void clear();

  private:
    unsigned char *reserve(size_t bytes);

    void *memory_ = nullptr;
    alignas(64) unsigned char storage_[192];
};

void run(const Copy &copy);
void run(const Fill &fill);
void run(const Call &call);

} // namespace uhal_host
