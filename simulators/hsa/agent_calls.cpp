// Agents and their properties.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "call.h"

using namespace hsa_sim;

namespace {

constexpr size_t name_bytes = 64;
constexpr size_t uuid_bytes = 24;
constexpr uint32_t cpu_cache_line = 64;
constexpr uint32_t gpu_cache_line = 128;

template <size_t Bytes> hsa_status_t answer_text(void *output, const std::string &text) {
    char padded[Bytes] = {};
    std::memcpy(padded, text.data(), std::min(text.size(), Bytes - 1));
    return answer(output, padded);
}

std::string uuid_of(const Agent &agent) {
    char text[uuid_bytes];
    std::snprintf(text, sizeof text, "%s-%016x", agent.gpu() ? "GPU" : "CPU", agent.node);
    return text;
}

struct GroupExtents {
    uint16_t each[3] = {max_group_items, max_group_items, max_group_items};
};

constexpr hsa_dim3_t grid_extents = {UINT32_MAX, UINT32_MAX, UINT32_MAX};

hsa_status_t agent_info(const Agent &agent, int attribute, void *value) {
    const bool gpu = agent.gpu();
    switch (attribute) {
    case HSA_AGENT_INFO_NAME:
        return answer_text<name_bytes>(value,
                                       gpu ? agent.isas[0]->target.processor : "simulated CPU");
    case HSA_AGENT_INFO_VENDOR_NAME:
        return answer_text<name_bytes>(value, gpu ? "AMD" : "CPU");
    case HSA_AGENT_INFO_FEATURE:
        return answer(value, gpu ? uint32_t{HSA_AGENT_FEATURE_KERNEL_DISPATCH} : 0U);
    case HSA_AGENT_INFO_MACHINE_MODEL:
        return answer(value, int32_t{1});
    case HSA_AGENT_INFO_PROFILE:
        return answer(value, int32_t{gpu ? HSA_PROFILE_BASE : HSA_PROFILE_FULL});
    case HSA_AGENT_INFO_DEFAULT_FLOAT_ROUNDING_MODE:
        return answer(value, int32_t{HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR});
    case HSA_AGENT_INFO_WAVEFRONT_SIZE:
        return answer(value, gpu ? agent.profile->wavefront : 0U);
    case HSA_AGENT_INFO_WORKGROUP_MAX_DIM:
        return answer(value, gpu ? GroupExtents() : GroupExtents{{0, 0, 0}});
    case HSA_AGENT_INFO_WORKGROUP_MAX_SIZE:
        return answer(value, gpu ? max_group_items : 0U);
    case HSA_AGENT_INFO_GRID_MAX_DIM:
        return answer(value, gpu ? grid_extents : hsa_dim3_t{0, 0, 0});
    case HSA_AGENT_INFO_GRID_MAX_SIZE:
        return answer(value, gpu ? UINT32_MAX : 0U);
    case HSA_AGENT_INFO_QUEUES_MAX:
        return answer(value, gpu ? 128U : 0U);
    case HSA_AGENT_INFO_QUEUE_MIN_SIZE:
        return answer(value, gpu ? min_queue_packets : 0U);
    case HSA_AGENT_INFO_QUEUE_MAX_SIZE:
        return answer(value, gpu ? max_queue_packets : 0U);
    case HSA_AGENT_INFO_QUEUE_TYPE:
        return answer(value, uint32_t{HSA_QUEUE_TYPE_MULTI});
    case HSA_AGENT_INFO_NODE:
        return answer(value, agent.node);
    case HSA_AGENT_INFO_DEVICE:
        return answer(value, int32_t{gpu ? HSA_DEVICE_TYPE_GPU : HSA_DEVICE_TYPE_CPU});
    case HSA_AGENT_INFO_CACHE_SIZE: {
        const std::array<uint32_t, 4> sizes = {16 * 1024, gpu ? agent.profile->l2_bytes : 0, 0, 0};
        return answer(value, sizes);
    }
    case HSA_AGENT_INFO_ISA:
        return gpu ? answer(value, agent.isas[0]->handle) : answer(value, hsa_isa_t{0});
    case HSA_AGENT_INFO_VERSION_MAJOR:
    case HSA_AGENT_INFO_VERSION_MINOR:
        return answer(value, uint16_t{1});
    case HSA_AGENT_INFO_FAST_F16_OPERATION:
        return answer(value, gpu);
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

uint64_t free_bytes(const Agent &agent) {
    return agent.device.memory.capacity() - agent.device.memory.used();
}

// For GPUs and CPUs. A CPU has 0 for properties that only GPUs have.
hsa_status_t amd_info(const Runtime &runtime, const Agent &agent, int attribute, void *value) {
    static constexpr Profile none = {};
    const Profile &profile = agent.gpu() ? *agent.profile : none;
    switch (attribute) {
    case HSA_AMD_AGENT_INFO_CHIP_ID:
        return answer(value, profile.chip);
    case HSA_AMD_AGENT_INFO_CACHELINE_SIZE:
        return answer(value, agent.gpu() ? gpu_cache_line : cpu_cache_line);
    case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
    case HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT:
        return answer(value, profile.compute_units);
    case HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY:
        return answer(value, profile.clock_mhz);
    case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID:
    case HSA_AMD_AGENT_INFO_DRIVER_UID:
        return answer(value, agent.node);
    case HSA_AMD_AGENT_INFO_BDFID:
        return answer(value, agent.gpu() ? agent.node << 8 : 0U);
    case HSA_AMD_AGENT_INFO_MEMORY_WIDTH:
        return answer(value, profile.memory_bits);
    case HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY:
        return answer(value, profile.memory_mhz);
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
        return answer_text<name_bytes>(value, agent.gpu() ? profile.product : "simulated CPU");
    case HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU:
        return answer(value, profile.waves_per_unit);
    case HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU:
        return answer(value, profile.simds_per_unit);
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES:
        return answer(value, profile.shader_engines);
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE:
        return answer(value, agent.gpu() ? 1U : 0U);
    case HSA_AMD_AGENT_INFO_DOMAIN:
    case HSA_AMD_AGENT_INFO_ASIC_REVISION:
    case HSA_AMD_AGENT_INFO_ASIC_FAMILY_ID:
    case HSA_AMD_AGENT_INFO_NUM_SDMA_XGMI_ENG:
        return answer(value, uint32_t{0});
    case HSA_AMD_AGENT_INFO_NUM_SDMA_ENG:
        return answer(value, agent.gpu() ? 2U : 0U);
    case HSA_AMD_AGENT_INFO_IOMMU_SUPPORT:
        return answer(value, int32_t{0});
    case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES:
    case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS:
        return answer(value, false);
    case HSA_AMD_AGENT_INFO_UUID:
        return answer_text<uuid_bytes>(value, uuid_of(agent));
    case HSA_AMD_AGENT_INFO_MEMORY_AVAIL:
        return answer(value, free_bytes(agent));
    case HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY:
        return answer(value, ticks_per_second);
    case HSA_AMD_AGENT_INFO_NUM_XCC:
        return answer(value, profile.xccs);
    case HSA_AMD_AGENT_INFO_NEAREST_CPU:
        return answer(value, runtime.cpu().handle);
    case HSA_AMD_AGENT_INFO_MEMORY_PROPERTIES:
        // The lowest bit means that the GPU shares the memory of a CPU.
        return answer(value, std::array<uint8_t, 8>{runtime.integrated && agent.gpu()});
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

} // namespace

hsa_status_t hsa_iterate_agents(hsa_agent_callback_t callback, void *data) {
    return in_runtime("hsa_iterate_agents", [&](Call &call) {
        if (callback == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        // The callback may call the runtime, and agents live as long as the library.
        call.lock.unlock();
        for (const auto &agent : call.runtime.agents) {
            const hsa_status_t status = callback(agent->handle, data);
            if (status != HSA_STATUS_SUCCESS) {
                return status;
            }
        }
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value) {
    return in_runtime("hsa_agent_get_info", [&](Call &call) {
        const Agent *found = call.runtime.find_agent(agent);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (value == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const int number = static_cast<int>(attribute);
        return number >= HSA_AMD_AGENT_INFO_CHIP_ID ? amd_info(call.runtime, *found, number, value)
                                                    : agent_info(*found, number, value);
    });
}

hsa_status_t hsa_agent_iterate_isas(hsa_agent_t agent, hsa_isa_callback_t callback, void *data) {
    return in_runtime("hsa_agent_iterate_isas", [&](Call &call) {
        const Agent *found = call.runtime.find_agent(agent);
        if (found == nullptr) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (callback == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        call.lock.unlock();
        for (const auto &isa : found->isas) {
            const hsa_status_t status = callback(isa->handle, data);
            if (status != HSA_STATUS_SUCCESS) {
                return status;
            }
        }
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value) {
    return in_runtime("hsa_isa_get_info_alt", [&](Call &call) {
        const auto found = call.runtime.find_isa(isa);
        if (found == nullptr || value == nullptr) {
            return found == nullptr ? HSA_STATUS_ERROR_INVALID_ISA
                                    : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const std::string name = "amdgcn-amd-amdhsa--" + found->target.name();
        switch (attribute) {
        case HSA_ISA_INFO_NAME_LENGTH:
            return answer(value, static_cast<uint32_t>(name.size()));
        case HSA_ISA_INFO_NAME:
            std::memcpy(value, name.data(), name.size());
            return HSA_STATUS_SUCCESS;
        case HSA_ISA_INFO_WORKGROUP_MAX_DIM:
            return answer(value, GroupExtents());
        case HSA_ISA_INFO_WORKGROUP_MAX_SIZE:
            return answer(value, max_group_items);
        case HSA_ISA_INFO_GRID_MAX_DIM:
            return answer(value, grid_extents);
        case HSA_ISA_INFO_GRID_MAX_SIZE:
            return answer(value, uint64_t{UINT32_MAX});
        }
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    });
}
