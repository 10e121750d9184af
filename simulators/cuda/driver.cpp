#include "driver.h"

#include <unistd.h>

#include <algorithm>

#include "../engine/printed.h"
#include "../engine/report.h"
#include "../engine/settings.h"
#include "modules.h"

namespace cuda_sim {

namespace {

using sim::Settings;

constexpr unsigned most_devices = 16;
// Large enough for tests, and small enough to be exhausted quickly. The system allocates a page at
// its first access.
constexpr uint64_t default_memory = uint64_t{4} << 30;
constexpr uint64_t default_release_threshold = 0;

} // namespace

Driver &Driver::get() {
    static Driver *const driver = new Driver;
    return *driver;
}

Driver::Driver()
    : instruments(complaint_),
      scheduler(sim::Schedule::parse(Settings::text("SCHEDULE"), complaint_)),
      ptx_kernels(complaint_) {
    sim::start_reporting(complaint_);
    version_ = static_cast<unsigned>(Settings::number("CUDA_DRIVER", UHAL_CUDA_OLDEST_DRIVER,
                                                      UHAL_CUDA_NEWEST_DRIVER,
                                                      UHAL_CUDA_NEWEST_DRIVER, complaint_));
    add_devices();
}

void Driver::add_devices() {
    const uint64_t count = Settings::number("CUDA_DEVICES", 0, most_devices, 1, complaint_);
    const uint64_t bytes =
        Settings::number("CUDA_MEMORY", 1 << 20, uint64_t{1} << 37, default_memory, complaint_);
    std::vector<std::string> names = Settings::list("CUDA_PROFILE", ',');
    if (names.empty()) {
        names.push_back("sm_86");
    }
    for (uint64_t ordinal = 0; ordinal < count; ++ordinal) {
        const std::string &name = names[std::min<size_t>(ordinal, names.size() - 1)];
        const Profile *profile = find_profile(name);
        if (profile == nullptr) {
            complaint_ = "UHAL_SIM_CUDA_PROFILE=" + name + ": expected " + profile_names();
            return;
        }
        const int index = static_cast<int>(ordinal);
        devices.push_back(std::make_unique<DeviceState>(index, bytes, *profile));
        devices.back()->default_pool = make_pool(index);
        devices.back()->pool = devices.back()->default_pool;
    }
}

bool Driver::left_in_parent() const {
    return initialized_in != 0 && initialized_in != getpid();
}

DeviceState *Driver::device(int ordinal) {
    const bool known = ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size();
    return known ? devices[static_cast<size_t>(ordinal)].get() : nullptr;
}

std::shared_ptr<Context> Driver::make_context(DeviceState &device, unsigned flags, bool primary) {
    const auto context = std::make_shared<Context>();
    context->device = &device;
    context->id = ++last_context_id_;
    context->primary = primary;
    context->flags = flags;
    context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                       {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                       {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                       {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
                       {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                       {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                       {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
    contexts.add(context);
    context->legacy = make_stream(context, Stream::Kind::legacy);
    context->legacy->implicit = true;
    return context;
}

void Driver::destroy_context(sim::Lock &lock, const std::shared_ptr<Context> &context) {
    context->alive = false;
    scheduler.wait(lock, scheduler.pending(context->device->device));
    sim::print_now();
    const auto drop = [&](auto &table) {
        const auto all = table.all();
        for (const auto &[value, object] : all) {
            if (object->context == context) {
                table.remove(object->handle);
            }
        }
    };
    const auto all_functions = functions.all();
    for (const auto &[value, function] : all_functions) {
        if (function->module->context == context) {
            functions.remove(function->handle);
        }
    }
    drop(streams);
    drop(events);
    const auto all_modules = modules.all();
    for (const auto &[value, module] : all_modules) {
        if (module->context == context) {
            release_variables(*module);
        }
    }
    drop(modules);
    drop(graph_execs);
    contexts.remove(context->handle);
    context->legacy = nullptr;
    context->per_thread.clear();
}

std::shared_ptr<Stream> Driver::make_stream(const std::shared_ptr<Context> &context,
                                            Stream::Kind kind) {
    const auto stream = std::make_shared<Stream>();
    stream->kind = kind;
    stream->id = ++last_stream_id_;
    stream->context = context;
    stream->queue = std::make_shared<sim::Queue>(context->device->device);
    if (kind == Stream::Kind::blocking) {
        auto &blocking = context->blocking;
        // Queues of destroyed streams stay until they are empty.
        blocking.erase(std::remove_if(blocking.begin(), blocking.end(),
                                      [](const auto &queue) {
                                          return queue.use_count() == 1 && queue->empty();
                                      }),
                       blocking.end());
        blocking.push_back(stream->queue);
    }
    return stream;
}

std::shared_ptr<Pool> Driver::make_pool(int device, bool managed) {
    const auto pool = std::make_shared<Pool>();
    pool->managed = managed;
    pool->device = device;
    pool->settings = {{CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1},
                      {CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1},
                      {CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1},
                      {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, default_release_threshold}};
    pools.add(pool);
    return pool;
}

sim::Allocation *Driver::find_allocation(uint64_t address, uint64_t bytes, DeviceState **owner) {
    for (const auto &device : devices) {
        sim::Allocation *found = device->device.memory.find(address, bytes);
        if (found != nullptr) {
            if (owner != nullptr) {
                *owner = device.get();
            }
            return found;
        }
    }
    return nullptr;
}

long Driver::live(const std::string &kind) {
    const sim::Lock lock(scheduler.mutex);
    const auto count = [](size_t size) { return static_cast<long>(size); };
    if (kind == "allocation") {
        size_t allocations = 0;
        for (const auto &device : devices) {
            allocations += device->device.memory.allocations();
        }
        return count(allocations);
    }
    const auto own_graphs = std::count_if(graphs.all().begin(), graphs.all().end(),
                                          [](const auto &one) { return !one.second->embedded; });
    const std::map<std::string, size_t> sizes = {
        {"context", contexts.size()},
        {"stream", streams.size()},
        {"event", events.size()},
        {"module", modules.size()},
        {"function", functions.size()},
        {"library", libraries.size()},
        {"pinned", host_memory.size()},
        {"pool", pools.size() - devices.size() - default_managed_pools.size()},
        {"graph", static_cast<size_t>(own_graphs)},
        {"graph_exec", graph_execs.size()},
    };
    const auto found = sizes.find(kind);
    return found == sizes.end() ? -1 : count(found->second);
}

} // namespace cuda_sim
