#include "runtime.h"

#include <algorithm>
#include <chrono>

#include "../engine/settings.h"

namespace hsa_sim {

namespace {

using sim::Settings;

constexpr unsigned most_gpus = 16;
// Large enough for tests, and small enough to be exhausted quickly. The system allocates a page at
// its first access.
constexpr uint64_t default_memory = uint64_t{4} << 30;
constexpr uint64_t host_memory = uint64_t{64} << 30;

} // namespace

uint64_t now() {
    using std::chrono::duration_cast;
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    using ticks = std::chrono::duration<uint64_t, std::ratio<1, ticks_per_second>>;
    return duration_cast<ticks>(since).count();
}

Runtime &Runtime::get() {
    static Runtime *const runtime = new Runtime;
    return *runtime;
}

Runtime::Runtime()
    : instruments(complaint_), callbacks(mutex),
      processor(*this, sim::Schedule::parse(Settings::text("SCHEDULE"), complaint_)),
      integrated(Settings::number("ROCM_APU", 0, 1, 0, complaint_) != 0) {
    add_cpu();
    add_gpus();
}

void Runtime::add_cpu() {
    agents.push_back(std::make_unique<Agent>(0, 0));
    Agent &cpu = *agents.back();
    add_pool(cpu, HSA_AMD_SEGMENT_GLOBAL, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED,
             host_memory);
    add_pool(cpu, HSA_AMD_SEGMENT_GLOBAL,
             HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED, host_memory);
    add_pool(cpu, HSA_AMD_SEGMENT_GLOBAL,
             HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT |
                 HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED,
             host_memory);
    if (!integrated) {
        add_pool(cpu, HSA_AMD_SEGMENT_GLOBAL, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED,
                 host_memory);
    }
}

void Runtime::add_gpus() {
    const uint64_t count = Settings::number("ROCM_DEVICES", 0, most_gpus, 1, complaint_);
    const uint64_t generic = Settings::number("ROCM_GENERIC", 0, 1, 0, complaint_);
    const uint64_t bytes =
        Settings::number("ROCM_MEMORY", 1 << 20, uint64_t{1} << 37, default_memory, complaint_);
    std::vector<std::string> names = Settings::list("ROCM_PROFILE", ',');
    if (names.empty()) {
        names.push_back("gfx90a");
    }
    for (uint64_t index = 0; index < count; ++index) {
        const std::string &name = names[std::min<size_t>(index, names.size() - 1)];
        sim::AmdTarget target;
        const Profile *profile = find_profile(name, target);
        if (profile == nullptr) {
            complaint_ = "UHAL_SIM_ROCM_PROFILE=" + name + ": expected " + profile_names();
            return;
        }
        agents.push_back(std::make_unique<Agent>(static_cast<uint32_t>(index + 1), bytes));
        Agent &gpu = *agents.back();
        gpu.profile = profile;
        add_isa(gpu, target);
        if (generic != 0) {
            add_isa(gpu, {profile->generic, target.features});
        }
        add_pool(gpu, HSA_AMD_SEGMENT_GROUP, 0, group_bytes);
        if (!integrated) {
            add_memory_of(gpu, bytes, count > 1 && profile->hive);
        }
    }
    uint64_t handle = uint64_t{0x20} << 32;
    for (const auto &agent : agents) {
        agent->handle.handle = handle += 64;
        ranges.devices.push_back(&agent->device.memory);
        for (const auto &pool : agent->pools) {
            pool->handle.handle = handle += 64;
        }
        for (const auto &isa : agent->isas) {
            isa->handle.handle = handle += 64;
        }
    }
}

// A GPU with links to other GPUs also has fine-grained memory.
void Runtime::add_memory_of(Agent &gpu, uint64_t bytes, bool linked) {
    if (linked) {
        add_pool(gpu, HSA_AMD_SEGMENT_GLOBAL, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED, bytes);
    }
    add_pool(gpu, HSA_AMD_SEGMENT_GLOBAL,
             HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED, bytes);
    add_pool(gpu, HSA_AMD_SEGMENT_GLOBAL, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED, bytes);
}

void Runtime::add_pool(Agent &agent, hsa_amd_segment_t segment, uint32_t flags, uint64_t bytes) {
    const auto pool = std::make_shared<Pool>();
    pool->agent = &agent;
    pool->segment = segment;
    pool->flags = flags;
    pool->bytes = bytes;
    agent.pools.push_back(pool);
}

void Runtime::add_isa(Agent &agent, const sim::AmdTarget &target) {
    agent.isas.push_back(std::make_shared<Isa>(Isa{{}, target}));
}

std::shared_ptr<Queue> Runtime::find_queue(const hsa_queue_t *queue) const {
    const auto found = queues.find(queue);
    return found == queues.end() ? nullptr : found->second;
}

Agent *Runtime::find_agent(hsa_agent_t handle) const {
    for (const auto &agent : agents) {
        if (agent->handle.handle == handle.handle) {
            return agent.get();
        }
    }
    return nullptr;
}

std::shared_ptr<Pool> Runtime::find_pool(uint64_t handle) const {
    for (const auto &agent : agents) {
        for (const auto &pool : agent->pools) {
            if (pool->handle.handle == handle) {
                return pool;
            }
        }
    }
    return nullptr;
}

std::shared_ptr<Isa> Runtime::find_isa(hsa_isa_t handle) const {
    for (const auto &agent : agents) {
        for (const auto &isa : agent->isas) {
            if (isa->handle.handle == handle.handle) {
                return isa;
            }
        }
    }
    return nullptr;
}

std::shared_ptr<Symbol> Runtime::find_kernel(uint64_t address) const {
    const auto found = kernels.find(address);
    const auto executable = found == kernels.end() ? nullptr : found->second->executable.lock();
    return executable != nullptr && executable->frozen ? found->second : nullptr;
}

void Runtime::destroy_queue(Lock &lock, const std::shared_ptr<Queue> &queue) {
    queues.erase(queue->abi);
    signals.remove(queue->doorbell->handle);
    processor.remove(lock, queue);
    callbacks.withdraw(lock, queue.get());
    fences.forget_queue(queue->fences);
    free_ring(*queue);
}

void Runtime::destroy_executable(const std::shared_ptr<Executable> &executable) {
    for (const auto &symbol : executable->symbols) {
        symbols.remove(symbol->handle);
        kernels.erase(symbol->address);
    }
    for (const auto &object : executable->objects) {
        for (const uint64_t address : object->addresses) {
            ranges.remove_variable(address);
            object->agent->device.memory.release(address);
        }
    }
    executables.remove(executable->handle);
}

void Runtime::shut_down(Lock &lock) {
    processor.remove_all(lock);
    callbacks.withdraw(lock, nullptr);
    while (!queues.empty()) {
        destroy_queue(lock, std::shared_ptr<Queue>(queues.begin()->second));
    }
    while (executables.size() != 0) {
        destroy_executable(executables.any());
    }
    readers.clear();
    signals.clear();
    ranges.clear();
    event_handlers.clear();
    fences = Fences();
    copies_profiled = false;
}

hsa_status_t Runtime::free_memory(uint64_t address) {
    const Range *range = ranges.find(address);
    if (range != nullptr && range->address == address) {
        fences.forget(address, range->bytes);
    }
    return ranges.free(address);
}

long Runtime::live(const std::string &kind) {
    const Lock lock(mutex);
    const std::map<std::string, size_t> sizes = {
        {"queue", queues.size()},
        {"signal", signals.size() - queues.size()},
        {"executable", executables.size()},
        {"reader", readers.size()},
        {"allocation", ranges.allocations()},
        {"locked", ranges.locked()},
    };
    const auto found = sizes.find(kind);
    return found == sizes.end() ? -1 : static_cast<long>(found->second);
}

} // namespace hsa_sim
