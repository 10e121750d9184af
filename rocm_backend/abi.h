/* The part of the HSA runtime's interface that uhal calls. Names, values and layouts come from the
 * "HSA Runtime Programmer's Reference Manual" and from AMD's extensions. They are the same in every
 * release since ROCm 5.2; later releases only add declarations. * Readers: uhal/abi.py (ctypes),
 * the packet writer in C, and the simulated libhsa-runtime64, which includes this file so that a
 * wrong prototype does not compile. Subset: integer defines, enums, typedefs, structs, prototypes.
 * For 64-bit little-endian machines.
 */
#ifndef UHAL_ROCM_ABI_H
#define UHAL_ROCM_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -- status ------------------------------------------------------------------------------------ */

typedef enum hsa_status_e {
    HSA_STATUS_SUCCESS = 0,
    HSA_STATUS_INFO_BREAK = 1,
    HSA_STATUS_ERROR = 0x1000,
    HSA_STATUS_ERROR_INVALID_ARGUMENT = 0x1001,
    HSA_STATUS_ERROR_INVALID_QUEUE_CREATION = 0x1002,
    HSA_STATUS_ERROR_INVALID_ALLOCATION = 0x1003,
    HSA_STATUS_ERROR_INVALID_AGENT = 0x1004,
    HSA_STATUS_ERROR_INVALID_REGION = 0x1005,
    HSA_STATUS_ERROR_INVALID_SIGNAL = 0x1006,
    HSA_STATUS_ERROR_INVALID_QUEUE = 0x1007,
    HSA_STATUS_ERROR_OUT_OF_RESOURCES = 0x1008,
    HSA_STATUS_ERROR_INVALID_PACKET_FORMAT = 0x1009,
    HSA_STATUS_ERROR_RESOURCE_FREE = 0x100A,
    HSA_STATUS_ERROR_NOT_INITIALIZED = 0x100B,
    HSA_STATUS_ERROR_REFCOUNT_OVERFLOW = 0x100C,
    HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS = 0x100D,
    HSA_STATUS_ERROR_INVALID_INDEX = 0x100E,
    HSA_STATUS_ERROR_INVALID_ISA = 0x100F,
    HSA_STATUS_ERROR_INVALID_ISA_NAME = 0x1017,
    HSA_STATUS_ERROR_INVALID_CODE_OBJECT = 0x1010,
    HSA_STATUS_ERROR_INVALID_EXECUTABLE = 0x1011,
    HSA_STATUS_ERROR_FROZEN_EXECUTABLE = 0x1012,
    HSA_STATUS_ERROR_INVALID_SYMBOL_NAME = 0x1013,
    HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED = 0x1014,
    HSA_STATUS_ERROR_VARIABLE_UNDEFINED = 0x1015,
    HSA_STATUS_ERROR_EXCEPTION = 0x1016,
    HSA_STATUS_ERROR_INVALID_CODE_SYMBOL = 0x1018,
    HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL = 0x1019,
    HSA_STATUS_ERROR_INVALID_FILE = 0x1020,
    HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER = 0x1021,
    HSA_STATUS_ERROR_INVALID_CACHE = 0x1022,
    HSA_STATUS_ERROR_INVALID_WAVEFRONT = 0x1023,
    HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP = 0x1024,
    HSA_STATUS_ERROR_INVALID_RUNTIME_STATE = 0x1025,
    HSA_STATUS_ERROR_FATAL = 0x1026
} hsa_status_t;

/* AMD's codes, returned as hsa_status_t too. */
typedef enum hsa_amd_status_e {
    HSA_STATUS_ERROR_INVALID_MEMORY_POOL = 0x28,
    HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION = 0x29,
    HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION = 0x2A,
    HSA_STATUS_ERROR_MEMORY_FAULT = 0x2B,
    HSA_STATUS_CU_MASK_REDUCED = 0x2C,
    HSA_STATUS_ERROR_OUT_OF_REGISTERS = 0x2D,
    HSA_STATUS_ERROR_RESOURCE_BUSY = 0x2E,
    HSA_STATUS_ERROR_NOT_SUPPORTED = 0x2F
} hsa_amd_status_t;

/* -- handles ------------------------------------------------------------------------------------
 *
 * Handle 0 is none. A handle passes in one integer register, as a uint64_t does.
 */

typedef struct hsa_agent_s {
    uint64_t handle;
} hsa_agent_t;

typedef struct hsa_signal_s {
    uint64_t handle;
} hsa_signal_t;

typedef struct hsa_isa_s {
    uint64_t handle;
} hsa_isa_t;

typedef struct hsa_executable_s {
    uint64_t handle;
} hsa_executable_t;

typedef struct hsa_executable_symbol_s {
    uint64_t handle;
} hsa_executable_symbol_t;

typedef struct hsa_loaded_code_object_s {
    uint64_t handle;
} hsa_loaded_code_object_t;

typedef struct hsa_code_object_reader_s {
    uint64_t handle;
} hsa_code_object_reader_t;

typedef struct hsa_amd_memory_pool_s {
    uint64_t handle;
} hsa_amd_memory_pool_t;

typedef int64_t hsa_signal_value_t;
typedef int hsa_file_t; /* a file descriptor */

typedef struct hsa_dim3_s {
    uint32_t x;
    uint32_t y;
    uint32_t z;
} hsa_dim3_t;

typedef struct hsa_pitched_ptr_s {
    void *base;
    size_t pitch;
    size_t slice;
} hsa_pitched_ptr_t;

/* -- system and agents ------------------------------------------------------------------------- */

typedef enum hsa_system_info_e {
    HSA_SYSTEM_INFO_VERSION_MAJOR = 0,
    HSA_SYSTEM_INFO_VERSION_MINOR = 1,
    HSA_SYSTEM_INFO_TIMESTAMP = 2,
    HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY = 3,
    HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT = 4,
    HSA_SYSTEM_INFO_ENDIANNESS = 5,
    HSA_SYSTEM_INFO_MACHINE_MODEL = 6
} hsa_system_info_t;

typedef enum hsa_amd_system_info_e {
    HSA_AMD_SYSTEM_INFO_BUILD_VERSION = 0x200,
    HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED = 0x201,
    HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT = 0x202,
    HSA_AMD_SYSTEM_INFO_MWAITX_ENABLED = 0x203,
    HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED = 0x204,
    HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED = 0x205,
    HSA_AMD_SYSTEM_INFO_XNACK_ENABLED = 0x206,
    HSA_AMD_SYSTEM_INFO_EXT_VERSION_MAJOR = 0x207,
    HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR = 0x208
} hsa_amd_system_info_t;

typedef enum hsa_device_type_e {
    HSA_DEVICE_TYPE_CPU = 0,
    HSA_DEVICE_TYPE_GPU = 1,
    HSA_DEVICE_TYPE_DSP = 2,
    HSA_DEVICE_TYPE_AIE = 3
} hsa_device_type_t;

typedef enum hsa_profile_e {
    HSA_PROFILE_BASE = 0,
    HSA_PROFILE_FULL = 1
} hsa_profile_t;

typedef enum hsa_default_float_rounding_mode_e {
    HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT = 0,
    HSA_DEFAULT_FLOAT_ROUNDING_MODE_ZERO = 1,
    HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR = 2
} hsa_default_float_rounding_mode_t;

typedef enum hsa_agent_feature_e {
    HSA_AGENT_FEATURE_KERNEL_DISPATCH = 1,
    HSA_AGENT_FEATURE_AGENT_DISPATCH = 2
} hsa_agent_feature_t;

typedef enum hsa_agent_info_e {
    HSA_AGENT_INFO_NAME = 0,
    HSA_AGENT_INFO_VENDOR_NAME = 1,
    HSA_AGENT_INFO_FEATURE = 2,
    HSA_AGENT_INFO_MACHINE_MODEL = 3,
    HSA_AGENT_INFO_PROFILE = 4,
    HSA_AGENT_INFO_DEFAULT_FLOAT_ROUNDING_MODE = 5,
    HSA_AGENT_INFO_WAVEFRONT_SIZE = 6,
    HSA_AGENT_INFO_WORKGROUP_MAX_DIM = 7,
    HSA_AGENT_INFO_WORKGROUP_MAX_SIZE = 8,
    HSA_AGENT_INFO_GRID_MAX_DIM = 9,
    HSA_AGENT_INFO_GRID_MAX_SIZE = 0xA,
    HSA_AGENT_INFO_QUEUES_MAX = 0xC,
    HSA_AGENT_INFO_QUEUE_MIN_SIZE = 0xD,
    HSA_AGENT_INFO_QUEUE_MAX_SIZE = 0xE,
    HSA_AGENT_INFO_QUEUE_TYPE = 0xF,
    HSA_AGENT_INFO_NODE = 0x10,
    HSA_AGENT_INFO_DEVICE = 0x11,
    HSA_AGENT_INFO_CACHE_SIZE = 0x12,
    HSA_AGENT_INFO_ISA = 0x13,
    HSA_AGENT_INFO_VERSION_MAJOR = 0x15,
    HSA_AGENT_INFO_VERSION_MINOR = 0x16,
    HSA_AGENT_INFO_FAST_F16_OPERATION = 0x18
} hsa_agent_info_t;

/* For hsa_agent_get_info too. */
typedef enum hsa_amd_agent_info_e {
    HSA_AMD_AGENT_INFO_CHIP_ID = 0xA000,
    HSA_AMD_AGENT_INFO_CACHELINE_SIZE = 0xA001,
    HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT = 0xA002,
    HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY = 0xA003,
    HSA_AMD_AGENT_INFO_DRIVER_NODE_ID = 0xA004,
    HSA_AMD_AGENT_INFO_BDFID = 0xA006,
    HSA_AMD_AGENT_INFO_MEMORY_WIDTH = 0xA007,
    HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY = 0xA008,
    HSA_AMD_AGENT_INFO_PRODUCT_NAME = 0xA009,
    HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU = 0xA00A,
    HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU = 0xA00B,
    HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES = 0xA00C,
    HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE = 0xA00D,
    HSA_AMD_AGENT_INFO_HDP_FLUSH = 0xA00E,
    HSA_AMD_AGENT_INFO_DOMAIN = 0xA00F,
    HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES = 0xA010,
    HSA_AMD_AGENT_INFO_UUID = 0xA011,
    HSA_AMD_AGENT_INFO_ASIC_REVISION = 0xA012,
    HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS = 0xA013,
    HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT = 0xA014,
    HSA_AMD_AGENT_INFO_MEMORY_AVAIL = 0xA015,
    HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY = 0xA016,
    HSA_AMD_AGENT_INFO_ASIC_FAMILY_ID = 0xA107,
    HSA_AMD_AGENT_INFO_NUM_SDMA_ENG = 0xA10A,
    HSA_AMD_AGENT_INFO_NUM_SDMA_XGMI_ENG = 0xA10B,
    HSA_AMD_AGENT_INFO_IOMMU_SUPPORT = 0xA110,
    HSA_AMD_AGENT_INFO_NUM_XCC = 0xA111,
    HSA_AMD_AGENT_INFO_DRIVER_UID = 0xA112,
    HSA_AMD_AGENT_INFO_NEAREST_CPU = 0xA113,
    HSA_AMD_AGENT_INFO_MEMORY_PROPERTIES = 0xA114
} hsa_amd_agent_info_t;

typedef enum hsa_isa_info_e {
    HSA_ISA_INFO_NAME_LENGTH = 0,
    HSA_ISA_INFO_NAME = 1,
    HSA_ISA_INFO_WORKGROUP_MAX_DIM = 0xC,
    HSA_ISA_INFO_WORKGROUP_MAX_SIZE = 0xD,
    HSA_ISA_INFO_GRID_MAX_DIM = 0xE,
    HSA_ISA_INFO_GRID_MAX_SIZE = 0x10
} hsa_isa_info_t;

/* A callback returns HSA_STATUS_SUCCESS to continue; any other status ends the iteration, and the
 * iterating function returns it. */
typedef hsa_status_t (*hsa_agent_callback_t)(hsa_agent_t agent, void *data);
typedef hsa_status_t (*hsa_isa_callback_t)(hsa_isa_t isa, void *data);

hsa_status_t hsa_init(void);
hsa_status_t hsa_shut_down(void);
hsa_status_t hsa_status_string(hsa_status_t status, const char **text);
hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value);
hsa_status_t hsa_iterate_agents(hsa_agent_callback_t callback, void *data);
hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value);
hsa_status_t hsa_agent_iterate_isas(hsa_agent_t agent, hsa_isa_callback_t callback, void *data);
hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value);

/* -- memory ------------------------------------------------------------------------------------ */

typedef enum hsa_amd_segment_e {
    HSA_AMD_SEGMENT_GLOBAL = 0,
    HSA_AMD_SEGMENT_READONLY = 1,
    HSA_AMD_SEGMENT_PRIVATE = 2,
    HSA_AMD_SEGMENT_GROUP = 3
} hsa_amd_segment_t;

typedef enum hsa_amd_memory_pool_global_flag_e {
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT = 1,
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED = 2,
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED = 4,
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED = 8
} hsa_amd_memory_pool_global_flag_t;

typedef enum hsa_amd_memory_pool_info_e {
    HSA_AMD_MEMORY_POOL_INFO_SEGMENT = 0,
    HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS = 1,
    HSA_AMD_MEMORY_POOL_INFO_SIZE = 2,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED = 5,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE = 6,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT = 7,
    HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL = 0xF,
    HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE = 0x10,
    HSA_AMD_MEMORY_POOL_INFO_LOCATION = 0x11,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE = 0x12
} hsa_amd_memory_pool_info_t;

typedef enum hsa_amd_memory_pool_access_e {
    HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED = 0,
    HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT = 1,
    HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT = 2
} hsa_amd_memory_pool_access_t;

typedef enum hsa_amd_agent_memory_pool_info_e {
    HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS = 0,
    HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS = 1,
    HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO = 2
} hsa_amd_agent_memory_pool_info_t;

typedef enum hsa_amd_pointer_type_e {
    HSA_EXT_POINTER_TYPE_UNKNOWN = 0,
    HSA_EXT_POINTER_TYPE_HSA = 1,
    HSA_EXT_POINTER_TYPE_LOCKED = 2,
    HSA_EXT_POINTER_TYPE_GRAPHICS = 3,
    HSA_EXT_POINTER_TYPE_IPC = 4,
    HSA_EXT_POINTER_TYPE_RESERVED_ADDR = 5,
    HSA_EXT_POINTER_TYPE_HSA_VMEM = 6
} hsa_amd_pointer_type_t;

typedef enum hsa_amd_copy_direction_e {
    hsaHostToHost = 0,
    hsaHostToDevice = 1,
    hsaDeviceToHost = 2,
    hsaDeviceToDevice = 3
} hsa_amd_copy_direction_t;

typedef struct hsa_amd_memory_pool_link_info_s {
    uint32_t min_latency;
    uint32_t max_latency;
    uint32_t min_bandwidth;
    uint32_t max_bandwidth;
    bool atomic_support_32bit;
    bool atomic_support_64bit;
    bool coherent_support;
    int32_t link_type;
    uint32_t numa_distance;
} hsa_amd_memory_pool_link_info_t;

/* The caller sets `size` to its own version's size, 56 bytes. */
typedef struct hsa_amd_pointer_info_s {
    uint32_t size;
    hsa_amd_pointer_type_t type;
    void *agentBaseAddress;
    void *hostBaseAddress;
    size_t sizeInBytes;
    void *userData;
    hsa_agent_t agentOwner;
    uint32_t global_flags;
} hsa_amd_pointer_info_t;

typedef hsa_status_t (*hsa_amd_memory_pool_callback_t)(hsa_amd_memory_pool_t pool, void *data);
typedef void *(*hsa_amd_allocator_t)(size_t bytes);

hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
                                                hsa_amd_memory_pool_callback_t callback,
                                                void *data);
hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool,
                                          hsa_amd_memory_pool_info_t attribute, void *value);
hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
                                                hsa_amd_agent_memory_pool_info_t attribute,
                                                void *value);
hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags,
                                          void **pointer);
hsa_status_t hsa_amd_memory_pool_free(void *pointer);

/* `flags` must be NULL. The list replaces the previous list; the owner keeps access. */
hsa_status_t hsa_amd_agents_allow_access(uint32_t count, const hsa_agent_t *agents,
                                         const uint32_t *flags, const void *pointer);
hsa_status_t hsa_amd_pointer_info(const void *pointer, hsa_amd_pointer_info_t *info,
                                  hsa_amd_allocator_t allocate, uint32_t *accessible_count,
                                  hsa_agent_t **accessible);

/* A copy of no bytes leaves its completion signal alone; a failed copy makes it negative. */
hsa_status_t hsa_memory_copy(void *destination, const void *source, size_t size);
hsa_status_t hsa_amd_memory_async_copy(void *destination, hsa_agent_t destination_agent,
                                       const void *source, hsa_agent_t source_agent, size_t size,
                                       uint32_t dependency_count,
                                       const hsa_signal_t *dependencies, hsa_signal_t completion);
hsa_status_t hsa_amd_memory_async_copy_rect(
    const hsa_pitched_ptr_t *destination, const hsa_dim3_t *destination_offset,
    const hsa_pitched_ptr_t *source, const hsa_dim3_t *source_offset, const hsa_dim3_t *range,
    hsa_agent_t copy_agent, hsa_amd_copy_direction_t direction, uint32_t dependency_count,
    const hsa_signal_t *dependencies, hsa_signal_t completion);

/* `count` is the number of 32-bit words. Returns when the memory is filled. */
hsa_status_t hsa_amd_memory_fill(void *pointer, uint32_t value, size_t count);
hsa_status_t hsa_amd_memory_lock(void *host, size_t size, hsa_agent_t *agents, int agent_count,
                                 void **agent_pointer);
hsa_status_t hsa_amd_memory_unlock(void *host);

/* -- signals ----------------------------------------------------------------------------------- */

typedef enum hsa_signal_condition_e {
    HSA_SIGNAL_CONDITION_EQ = 0,
    HSA_SIGNAL_CONDITION_NE = 1,
    HSA_SIGNAL_CONDITION_LT = 2,
    HSA_SIGNAL_CONDITION_GTE = 3
} hsa_signal_condition_t;

typedef enum hsa_wait_state_e {
    HSA_WAIT_STATE_BLOCKED = 0,
    HSA_WAIT_STATE_ACTIVE = 1
} hsa_wait_state_t;

typedef enum hsa_amd_signal_attribute_e {
    HSA_AMD_SIGNAL_AMD_GPU_ONLY = 1,
    HSA_AMD_SIGNAL_IPC = 2
} hsa_amd_signal_attribute_t;

/* Runs on a thread of the runtime; true keeps it registered. */
typedef bool (*hsa_amd_signal_handler)(hsa_signal_value_t value, void *data);

hsa_status_t hsa_signal_create(hsa_signal_value_t initial, uint32_t consumer_count,
                               const hsa_agent_t *consumers, hsa_signal_t *signal);
hsa_status_t hsa_amd_signal_create(hsa_signal_value_t initial, uint32_t consumer_count,
                                   const hsa_agent_t *consumers, uint64_t attributes,
                                   hsa_signal_t *signal);
hsa_status_t hsa_signal_destroy(hsa_signal_t signal);
hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal);
hsa_signal_value_t hsa_signal_load_scacquire(hsa_signal_t signal);
void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value);
void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value);
void hsa_signal_subtract_screlease(hsa_signal_t signal, hsa_signal_value_t value);

/* `timeout` is in ticks of HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY. Returns the last value seen, also
 * after a timeout. */
hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
                                             hsa_signal_value_t compared, uint64_t timeout,
                                             hsa_wait_state_t state);
hsa_status_t hsa_amd_signal_async_handler(hsa_signal_t signal, hsa_signal_condition_t condition,
                                          hsa_signal_value_t value,
                                          hsa_amd_signal_handler handler, void *data);

/* -- queues ------------------------------------------------------------------------------------ */

typedef enum hsa_queue_type_e {
    HSA_QUEUE_TYPE_MULTI = 0,
    HSA_QUEUE_TYPE_SINGLE = 1,
    HSA_QUEUE_TYPE_COOPERATIVE = 2
} hsa_queue_type_t;

typedef uint32_t hsa_queue_type32_t;

/* Owned by the runtime, read only. `size` is in packets, a power of two. */
typedef struct hsa_queue_s {
    hsa_queue_type32_t type;
    uint32_t features;
    void *base_address;
    hsa_signal_t doorbell_signal;
    uint32_t size;
    uint32_t reserved1;
    uint64_t id;
} hsa_queue_t;

/* Runs on a thread of the runtime. If it is NULL, the runtime aborts the process. */
typedef void (*hsa_queue_callback_t)(hsa_status_t status, hsa_queue_t *source, void *data);

hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                              hsa_queue_callback_t callback, void *data,
                              uint32_t private_segment_size, uint32_t group_segment_size,
                              hsa_queue_t **queue);
hsa_status_t hsa_queue_destroy(hsa_queue_t *queue);
hsa_status_t hsa_queue_inactivate(hsa_queue_t *queue);
uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t *queue);
uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue);
uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue);
uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t value);
void hsa_queue_store_write_index_relaxed(const hsa_queue_t *queue, uint64_t value);

typedef enum hsa_amd_event_type_e {
    HSA_AMD_GPU_MEMORY_FAULT_EVENT = 0,
    HSA_AMD_GPU_HW_EXCEPTION_EVENT = 1,
    HSA_AMD_GPU_MEMORY_ERROR_EVENT = 2
} hsa_amd_event_type_t;

typedef enum hsa_amd_memory_fault_reason_e {
    HSA_AMD_MEMORY_FAULT_PAGE_NOT_PRESENT = 1,
    HSA_AMD_MEMORY_FAULT_READ_ONLY = 2,
    HSA_AMD_MEMORY_FAULT_NX = 4,
    HSA_AMD_MEMORY_FAULT_HOST_ONLY = 8,
    HSA_AMD_MEMORY_FAULT_DRAMECC = 0x10,
    HSA_AMD_MEMORY_FAULT_IMPRECISE = 0x20,
    HSA_AMD_MEMORY_FAULT_SRAMECC = 0x40
} hsa_amd_memory_fault_reason_t;

typedef struct hsa_amd_gpu_memory_fault_info_s {
    hsa_agent_t agent;
    uint64_t virtual_address;
    uint32_t fault_reason_mask;
} hsa_amd_gpu_memory_fault_info_t;

typedef struct hsa_amd_event_s {
    hsa_amd_event_type_t event_type;
    union {
        hsa_amd_gpu_memory_fault_info_t memory_fault;
    };
} hsa_amd_event_t;

/* Runs on a thread of the runtime. Without a handler, or if it does not return HSA_STATUS_SUCCESS,
 * the runtime aborts the process. */
typedef hsa_status_t (*hsa_amd_system_event_callback_t)(const hsa_amd_event_t *event, void *data);

hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t callback,
                                                   void *data);

/* -- packets ------------------------------------------------------------------------------------
 *
 * Header and setup are written last, as one 32-bit store with release ordering.
 */

typedef enum hsa_packet_type_e {
    HSA_PACKET_TYPE_VENDOR_SPECIFIC = 0,
    HSA_PACKET_TYPE_INVALID = 1,
    HSA_PACKET_TYPE_KERNEL_DISPATCH = 2,
    HSA_PACKET_TYPE_BARRIER_AND = 3,
    HSA_PACKET_TYPE_AGENT_DISPATCH = 4,
    HSA_PACKET_TYPE_BARRIER_OR = 5
} hsa_packet_type_t;

typedef enum hsa_fence_scope_e {
    HSA_FENCE_SCOPE_NONE = 0,
    HSA_FENCE_SCOPE_AGENT = 1,
    HSA_FENCE_SCOPE_SYSTEM = 2
} hsa_fence_scope_t;

/* The first bit of each field. */
typedef enum hsa_packet_header_e {
    HSA_PACKET_HEADER_TYPE = 0,
    HSA_PACKET_HEADER_BARRIER = 8,
    HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE = 9,
    HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE = 11
} hsa_packet_header_t;

#define HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS 0

typedef struct hsa_kernel_dispatch_packet_s {
    uint16_t header;
    uint16_t setup;
    uint16_t workgroup_size_x;
    uint16_t workgroup_size_y;
    uint16_t workgroup_size_z;
    uint16_t reserved0;
    uint32_t grid_size_x;
    uint32_t grid_size_y;
    uint32_t grid_size_z;
    uint32_t private_segment_size;
    uint32_t group_segment_size;
    uint64_t kernel_object;
    void *kernarg_address;
    uint64_t reserved2;
    hsa_signal_t completion_signal;
} hsa_kernel_dispatch_packet_t;

/* AND: all of the signals must reach 0; OR: any signal. Null signals are ignored. */
typedef struct hsa_barrier_and_packet_s {
    uint16_t header;
    uint16_t reserved0;
    uint32_t reserved1;
    hsa_signal_t dep_signal[5];
    uint64_t reserved2;
    hsa_signal_t completion_signal;
} hsa_barrier_and_packet_t;

/* -- code objects ------------------------------------------------------------------------------ */

typedef enum hsa_symbol_kind_e {
    HSA_SYMBOL_KIND_VARIABLE = 0,
    HSA_SYMBOL_KIND_KERNEL = 1,
    HSA_SYMBOL_KIND_INDIRECT_FUNCTION = 2
} hsa_symbol_kind_t;

typedef enum hsa_executable_symbol_info_e {
    HSA_EXECUTABLE_SYMBOL_INFO_TYPE = 0,
    HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH = 1,
    HSA_EXECUTABLE_SYMBOL_INFO_NAME = 2,
    HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE = 9,
    HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_IS_CONST = 0xA,
    HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE = 0xB,
    HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_ALIGNMENT = 0xC,
    HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE = 0xD,
    HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE = 0xE,
    HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK = 0xF,
    HSA_EXECUTABLE_SYMBOL_INFO_IS_DEFINITION = 0x11,
    HSA_EXECUTABLE_SYMBOL_INFO_AGENT = 0x14,
    HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS = 0x15,
    HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT = 0x16
} hsa_executable_symbol_info_t;

typedef hsa_status_t (*hsa_executable_symbol_callback_t)(hsa_executable_t executable,
                                                         hsa_agent_t agent,
                                                         hsa_executable_symbol_t symbol,
                                                         void *data);

/* The bytes must stay as long as the executable; the reader may go once they are loaded. */
hsa_status_t hsa_code_object_reader_create_from_memory(const void *code_object, size_t size,
                                                       hsa_code_object_reader_t *reader);
hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader);
hsa_status_t hsa_executable_create_alt(hsa_profile_t profile,
                                       hsa_default_float_rounding_mode_t rounding,
                                       const char *options, hsa_executable_t *executable);
hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader,
                                                   const char *options,
                                                   hsa_loaded_code_object_t *loaded);
hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *options);
hsa_status_t hsa_executable_validate(hsa_executable_t executable, uint32_t *result);
hsa_status_t hsa_executable_destroy(hsa_executable_t executable);

/* A kernel's name here is its descriptor's name: `saxpy.kd`. */
hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *name,
                                               const hsa_agent_t *agent,
                                               hsa_executable_symbol_t *symbol);
hsa_status_t hsa_executable_iterate_agent_symbols(hsa_executable_t executable, hsa_agent_t agent,
                                                  hsa_executable_symbol_callback_t callback,
                                                  void *data);
hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t symbol,
                                            hsa_executable_symbol_info_t attribute, void *value);

/* -- times --------------------------------------------------------------------------------------
 *
 * In ticks of HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY.
 */

typedef struct hsa_amd_profiling_dispatch_time_s {
    uint64_t start;
    uint64_t end;
} hsa_amd_profiling_dispatch_time_t;

typedef struct hsa_amd_profiling_async_copy_time_s {
    uint64_t start;
    uint64_t end;
} hsa_amd_profiling_async_copy_time_t;

hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *queue, int enable);
hsa_status_t hsa_amd_profiling_async_copy_enable(bool enable);
hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t agent, hsa_signal_t signal,
                                                 hsa_amd_profiling_dispatch_time_t *time);
hsa_status_t hsa_amd_profiling_get_async_copy_time(hsa_signal_t signal,
                                                   hsa_amd_profiling_async_copy_time_t *time);
hsa_status_t hsa_amd_profiling_convert_tick_to_system_domain(hsa_agent_t agent,
                                                             uint64_t agent_tick,
                                                             uint64_t *system_tick);

#ifdef __cplusplus
}
#endif

#endif
