// Memory regions, the older interface to memory. Each region corresponds to one pool.
#include "call.h"

using namespace hsa_sim;

hsa_status_t hsa_agent_iterate_regions(hsa_agent_t agent, hsa_region_callback_t callback,
                                       void *data) {
    return in_runtime("hsa_agent_iterate_regions", [&](Call &call) {
        const Agent *found = call.runtime.find_agent(agent);
        if (found == nullptr || callback == nullptr) {
            return found == nullptr ? HSA_STATUS_ERROR_INVALID_AGENT
                                    : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        call.lock.unlock();
        for (const auto &pool : found->pools) {
            const hsa_status_t status = callback({pool->handle.handle}, data);
            if (status != HSA_STATUS_SUCCESS) {
                return status;
            }
        }
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_region_get_info(hsa_region_t region, hsa_region_info_t attribute, void *value) {
    return in_runtime("hsa_region_get_info", [&](Call &call) {
        const auto found = call.runtime.find_pool(region.handle);
        if (found == nullptr || value == nullptr) {
            return found == nullptr ? HSA_STATUS_ERROR_INVALID_REGION
                                    : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const bool global = found->segment == HSA_AMD_SEGMENT_GLOBAL;
        switch (attribute) {
        case HSA_REGION_INFO_SEGMENT:
            return answer(value, static_cast<uint32_t>(found->segment));
        case HSA_REGION_INFO_GLOBAL_FLAGS:
            return answer(value, found->flags);
        case HSA_REGION_INFO_SIZE:
            return answer(value, size_t{found->bytes});
        case HSA_REGION_INFO_ALLOC_MAX_SIZE:
            return answer(value, global ? size_t{found->bytes} : size_t{0});
        case HSA_REGION_INFO_RUNTIME_ALLOC_ALLOWED:
            return answer(value, global);
        case HSA_REGION_INFO_RUNTIME_ALLOC_GRANULE:
        case HSA_REGION_INFO_RUNTIME_ALLOC_ALIGNMENT:
            return answer(value, global ? size_t{memory_granule} : size_t{0});
        }
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    });
}

hsa_status_t hsa_memory_allocate(hsa_region_t region, size_t size, void **pointer) {
    return in_runtime("hsa_memory_allocate", [&](Call &call) {
        const auto found = call.runtime.find_pool(region.handle);
        if (found == nullptr || found->segment != HSA_AMD_SEGMENT_GLOBAL || pointer == nullptr) {
            return found == nullptr     ? HSA_STATUS_ERROR_INVALID_REGION
                   : pointer == nullptr ? HSA_STATUS_ERROR_INVALID_ARGUMENT
                                        : HSA_STATUS_ERROR_INVALID_ALLOCATION;
        }
        Ranges &ranges = call.runtime.ranges;
        const hsa_status_t status = ranges.allocate(*found, size, pointer);
        if (status == HSA_STATUS_SUCCESS && !found->agent->gpu()) {
            Range *range = ranges.find(reinterpret_cast<uint64_t>(*pointer));
            for (const auto &agent : call.runtime.agents) {
                range->allowed.insert(agent.get());
            }
        }
        return status;
    });
}

hsa_status_t hsa_memory_free(void *pointer) {
    return in_runtime("hsa_memory_free", [&](Call &call) {
        return call.runtime.free_memory(reinterpret_cast<uint64_t>(pointer));
    });
}
