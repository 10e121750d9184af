// Memory pools, allocations and the agents that may use them.
#include <cstring>

#include "call.h"

using namespace hsa_sim;

namespace {

constexpr uint32_t pcie_link = 2;
constexpr uint32_t xgmi_link = 4;

// Access of an agent to memory of a pool: by default, on request, or never.
hsa_amd_memory_pool_access_t access_of(const Agent &agent, const Pool &pool) {
    if (&agent == pool.agent) {
        return HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT;
    }
    if (!agent.gpu() || pool.segment != HSA_AMD_SEGMENT_GLOBAL) {
        // A CPU cannot access the memory of these GPUs.
        return HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED;
    }
    return HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT;
}

hsa_status_t find_agents(Runtime &runtime, uint32_t count, const hsa_agent_t *handles,
                         std::set<const Agent *> &agents) {
    for (uint32_t index = 0; index < count; ++index) {
        const Agent *agent = runtime.find_agent(handles[index]);
        if (agent == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        agents.insert(agent);
    }
    return HSA_STATUS_SUCCESS;
}

} // namespace

hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
                                                hsa_amd_memory_pool_callback_t callback,
                                                void *data) {
    return in_runtime("hsa_amd_agent_iterate_memory_pools", [&](Call &call) {
        const Agent *found = call.runtime.find_agent(agent);
        if (found == nullptr || callback == nullptr) {
            return found == nullptr ? HSA_STATUS_ERROR_INVALID_AGENT
                                    : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        call.lock.unlock();
        for (const auto &pool : found->pools) {
            const hsa_status_t status = callback(pool->handle, data);
            if (status != HSA_STATUS_SUCCESS) {
                return status;
            }
        }
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool,
                                          hsa_amd_memory_pool_info_t attribute, void *value) {
    return in_runtime("hsa_amd_memory_pool_get_info", [&](Call &call) {
        const auto found = call.runtime.find_pool(pool.handle);
        if (found == nullptr || value == nullptr) {
            return found == nullptr ? invalid_memory_pool : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const bool global = found->segment == HSA_AMD_SEGMENT_GLOBAL;
        switch (attribute) {
        case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
            return answer(value, static_cast<uint32_t>(found->segment));
        case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
            return answer(value, found->flags);
        case HSA_AMD_MEMORY_POOL_INFO_SIZE:
            return answer(value, size_t{found->bytes});
        case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
            return answer(value, global);
        case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
        case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT:
        case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE:
            return answer(value, global ? size_t{memory_granule} : size_t{0});
        case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL:
            return answer(value, !found->agent->gpu());
        case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE:
            return answer(value, global ? size_t{found->bytes} : size_t{0});
        case HSA_AMD_MEMORY_POOL_INFO_LOCATION:
            return answer(value, int32_t{found->agent->gpu()});
        }
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    });
}

hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
                                                hsa_amd_agent_memory_pool_info_t attribute,
                                                void *value) {
    return in_runtime("hsa_amd_agent_memory_pool_get_info", [&](Call &call) {
        const Agent *user = call.runtime.find_agent(agent);
        const auto found = call.runtime.find_pool(pool.handle);
        if (user == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (found == nullptr || value == nullptr) {
            return found == nullptr ? invalid_memory_pool : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const bool own = user == found->agent;
        hsa_amd_memory_pool_link_info_t link = {};
        switch (attribute) {
        case HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS:
            return answer(value, static_cast<int32_t>(access_of(*user, *found)));
        case HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS:
            return answer(value, own ? 0U : 1U);
        case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO:
            link.atomic_support_32bit = true;
            link.atomic_support_64bit = true;
            link.coherent_support = true;
            link.link_type =
                static_cast<int32_t>(user->gpu() && found->agent->gpu() ? xgmi_link : pcie_link);
            link.numa_distance = 20;
            return own ? HSA_STATUS_SUCCESS : answer(value, link);
        }
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    });
}

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags,
                                          void **pointer) {
    return in_runtime("hsa_amd_memory_pool_allocate", [&](Call &call) {
        const auto found = call.runtime.find_pool(pool.handle);
        if (found == nullptr || pointer == nullptr) {
            return found == nullptr ? invalid_memory_pool : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        if (found->segment != HSA_AMD_SEGMENT_GLOBAL) {
            return refuse(HSA_STATUS_ERROR_INVALID_ALLOCATION, "nothing is allocated in this pool");
        }
        if (flags != 0) {
            return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT, "allocation flags are not simulated");
        }
        return call.runtime.ranges.allocate(*found, size, pointer);
    });
}

hsa_status_t hsa_amd_memory_pool_free(void *pointer) {
    return in_runtime("hsa_amd_memory_pool_free", [&](Call &call) {
        return call.runtime.free_memory(reinterpret_cast<uint64_t>(pointer));
    });
}

hsa_status_t hsa_amd_agents_allow_access(uint32_t count, const hsa_agent_t *agents,
                                         const uint32_t *flags, const void *pointer) {
    return in_runtime("hsa_amd_agents_allow_access", [&](Call &call) {
        if (flags != nullptr) {
            return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT, "flags must be NULL");
        }
        if (count == 0 || agents == nullptr || pointer == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const auto address = reinterpret_cast<uint64_t>(pointer);
        Range *range = call.runtime.ranges.find(address);
        if (range == nullptr || range->address != address || range->kind == Range::Kind::locked) {
            return refuse(HSA_STATUS_ERROR_INVALID_ALLOCATION,
                          "the pointer is not the start of an allocation");
        }
        std::set<const Agent *> allowed = {range->owner};
        const hsa_status_t status = find_agents(call.runtime, count, agents, allowed);
        if (status != HSA_STATUS_SUCCESS) {
            return status;
        }
        for (const Agent *agent : allowed) {
            if (agent != range->owner && !agent->gpu()) {
                return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT,
                              "a CPU has no way into the memory of this GPU");
            }
        }
        range->allowed = std::move(allowed);
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_amd_pointer_info(const void *pointer, hsa_amd_pointer_info_t *info,
                                  hsa_amd_allocator_t allocate, uint32_t *accessible_count,
                                  hsa_agent_t **accessible) {
    return in_runtime("hsa_amd_pointer_info", [&](Call &call) {
        const bool lists = accessible_count != nullptr && accessible != nullptr;
        if (pointer == nullptr || info == nullptr || info->size == 0 ||
            (lists && allocate == nullptr)) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const auto address = reinterpret_cast<uint64_t>(pointer);
        const Range *range = call.runtime.ranges.find(address);
        if (range == nullptr) {
            range = call.runtime.ranges.find_locked(address);
        }
        hsa_amd_pointer_info_t told = {};
        told.size = static_cast<uint32_t>(std::min<size_t>(info->size, sizeof told));
        if (range != nullptr) {
            const bool locked = range->kind == Range::Kind::locked;
            told.type = locked ? HSA_EXT_POINTER_TYPE_LOCKED : HSA_EXT_POINTER_TYPE_HSA;
            told.agentBaseAddress = reinterpret_cast<void *>(range->address);
            told.hostBaseAddress = reinterpret_cast<void *>(range->program);
            told.sizeInBytes = range->bytes;
            told.agentOwner = range->owner->handle;
            told.global_flags = range->flags;
        }
        if (lists) {
            const size_t count = range == nullptr ? 0 : range->allowed.size();
            auto *list = static_cast<hsa_agent_t *>(allocate(count * sizeof(hsa_agent_t)));
            if (list == nullptr && count != 0) {
                return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
            }
            *accessible = list;
            *accessible_count = static_cast<uint32_t>(count);
            for (size_t index = 0; index < count; ++index) {
                list[index] = (*std::next(range->allowed.begin(), static_cast<int>(index)))->handle;
            }
        }
        std::memcpy(info, &told, told.size);
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_amd_memory_lock(void *host, size_t size, hsa_agent_t *agents, int agent_count,
                                 void **agent_pointer) {
    return in_runtime("hsa_amd_memory_lock", [&](Call &call) {
        Runtime &runtime = call.runtime;
        if (host == nullptr || size == 0 || agent_pointer == nullptr ||
            (agents == nullptr) != (agent_count == 0) || agent_count < 0) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const auto address = reinterpret_cast<uint64_t>(host);
        if (runtime.ranges.find(address) != nullptr || runtime.ranges.device_only(address)) {
            return refuse(HSA_STATUS_ERROR_INVALID_ARGUMENT,
                          "this is not the program's own memory");
        }
        std::set<const Agent *> allowed = {&runtime.cpu()};
        const hsa_status_t status =
            find_agents(runtime, static_cast<uint32_t>(agent_count), agents, allowed);
        if (status != HSA_STATUS_SUCCESS) {
            return status;
        }
        for (const auto &agent : runtime.agents) {
            if (agents == nullptr) {
                allowed.insert(agent.get());
            }
        }
        return runtime.ranges.lock(address, size, runtime.cpu(), allowed, agent_pointer);
    });
}

hsa_status_t hsa_amd_memory_unlock(void *host) {
    return in_runtime("hsa_amd_memory_unlock", [&](Call &call) {
        const hsa_status_t status = call.runtime.ranges.unlock(reinterpret_cast<uint64_t>(host));
        return status == HSA_STATUS_SUCCESS ? status
                                            : refuse(status, "nothing is locked that begins there");
    });
}
