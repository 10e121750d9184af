// The objects behind CUDA's handles. The scheduler's mutex guards all of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../engine/device.h"
#include "../engine/executor.h"
#include "../engine/queue.h"
#include "../images/image.h"
#include "../ptx/executor/kernels.h"
#include "driver_abi.h"
#include "jit_log.h"
#include "profile.h"

namespace cuda_sim {

struct Context;
struct Module;
struct Capture;
struct Graph;

struct Pool {
    CUmemoryPool handle = nullptr;
    int device = 0; // of managed memory: its preferred location, as in PageAdvice
    bool managed = false;
    uint64_t used = 0;
    uint64_t used_high = 0;
    std::map<CUmemPool_attribute, uint64_t> settings;
    std::set<int> readers; // other devices given access
};

struct Stream {
    enum class Kind { legacy, blocking, non_blocking };

    bool is_default() const { return kind == Kind::legacy; }
    bool is_blocking() const { return kind == Kind::blocking; }

    Kind kind = Kind::blocking;
    bool implicit = false; // legacy or per-thread: never created, never destroyed
    CUstream handle = nullptr;
    uint64_t id = 0;
    int priority = 0;
    std::shared_ptr<sim::Queue> queue;
    std::shared_ptr<Context> context;
    std::shared_ptr<Capture> capture; // null when the stream is not capturing
    bool capture_origin = false;
    std::vector<size_t> capture_ends; // predecessors of the next captured operation
    std::map<CUstreamAttrID, CUstreamAttrValue> attributes;
};

// Time at which an event's latest record was reached.
struct Stamp {
    bool reached = false;
    int64_t nanoseconds = 0;
};

struct Event {
    CUevent handle = nullptr;
    unsigned flags = 0;
    std::shared_ptr<Context> context;
    std::vector<sim::Point> points; // all of them make up the latest record; none: never recorded
    std::shared_ptr<Stamp> stamp;
    std::shared_ptr<Capture> capture; // the latest record was captured, not queued
    std::vector<size_t> capture_ends;
};

struct Function {
    CUfunction handle = nullptr;
    std::shared_ptr<Module> module;
    const sim::ImageEntry *entry = nullptr;
    std::unique_ptr<sim::Executable> executable;
    unsigned max_dynamic_shared = 0;
    int shared_carveout = -1;
    bool large_clusters = false;
};

struct Module {
    CUmodule handle = nullptr;
    std::shared_ptr<Context> context;
    sim::Image image;
    std::unique_ptr<sim::ExecutableModule> executable; // of a cubin
    std::unique_ptr<sim::PtxModule> ptx;
    std::map<std::string, std::shared_ptr<Function>> functions;
    std::map<std::string, uint64_t> variables; // addresses known to the program
    bool loaded = true;
};

struct Library;

struct Kernel {
    CUkernel handle = nullptr;
    std::string name;
    std::weak_ptr<Library> library;
};

struct Library {
    CUlibrary handle = nullptr;
    std::vector<unsigned char> image;
    std::map<Context *, std::shared_ptr<Module>> modules; // loaded where first used
    std::map<std::string, std::shared_ptr<Kernel>> kernels;
};

// Inputs of a link, and its result.
struct LinkState {
    CUlinkState handle = nullptr;
    std::vector<std::string> texts;
    std::string linked; // the program's result; valid until the state is destroyed
    JitLog log;
};

// A program's advice for a page of managed memory. Locations are devices, or CU_DEVICE_CPU.
struct PageAdvice {
    bool read_mostly = false;
    CUdevice preferred = CU_DEVICE_INVALID;
    CUdevice prefetched = CU_DEVICE_INVALID;
    uint32_t accessed_by = 0; // a bit for each location
};

// An allocation of managed memory, which lies in host memory.
struct Managed {
    int ordinal = 0; // of the device that was current
    std::vector<PageAdvice> pages;
    std::shared_ptr<Pool> pool; // null without one
    bool leaving = false;       // freed in stream order, not yet released
};

struct DeviceState;

struct Context {
    CUcontext handle = nullptr;
    DeviceState *device = nullptr;
    uint64_t id = 0;
    bool primary = false;
    bool alive = true;
    unsigned flags = 0;
    std::shared_ptr<Stream> legacy;
    std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
    std::vector<std::shared_ptr<sim::Queue>> blocking; // queues that the legacy stream waits for
    std::set<Context *> peers;
    std::map<CUlimit, size_t> limits;
    std::shared_ptr<const sim::Reach> reach; // memory that kernels may touch, as of `reach_state`
    uint64_t reach_state = 0;
};

struct DeviceState {
    DeviceState(int ordinal, uint64_t bytes, const Profile &device_profile)
        : device(ordinal, bytes), profile(device_profile) {}

    sim::Device device;
    const Profile &profile;
    std::shared_ptr<Context> primary;
    unsigned primary_retained = 0;
    unsigned primary_flags = 0;
    std::shared_ptr<Pool> default_pool;
    std::shared_ptr<Pool> pool;
};

} // namespace cuda_sim
