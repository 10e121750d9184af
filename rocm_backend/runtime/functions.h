/* The functions of the HSA runtime that native code calls, as addresses. No library is linked, so
 * native code builds and loads on machines without ROCm. abi.h has the prototypes.
 */
#ifndef UHAL_HSA_FUNCTIONS_H
#define UHAL_HSA_FUNCTIONS_H

#include "abi.h"

/* clang-format off */
#define UHAL_HSA_FUNCTIONS(FUNCTION)                                                               \
    FUNCTION(hsa_signal_create)                                                                    \
    FUNCTION(hsa_amd_signal_create)                                                                \
    FUNCTION(hsa_signal_destroy)                                                                   \
    FUNCTION(hsa_signal_load_scacquire)                                                            \
    FUNCTION(hsa_signal_store_relaxed)                                                             \
    FUNCTION(hsa_signal_store_screlease)                                                           \
    FUNCTION(hsa_signal_wait_scacquire)                                                            \
    FUNCTION(hsa_amd_signal_async_handler)                                                         \
    FUNCTION(hsa_queue_create)                                                                     \
    FUNCTION(hsa_queue_destroy)                                                                    \
    FUNCTION(hsa_queue_add_write_index_screlease)                                                  \
    FUNCTION(hsa_queue_load_read_index_scacquire)                                                  \
    FUNCTION(hsa_amd_register_system_event_handler)                                                \
    FUNCTION(hsa_amd_memory_pool_allocate)                                                         \
    FUNCTION(hsa_amd_memory_pool_free)                                                             \
    FUNCTION(hsa_amd_agents_allow_access)                                                          \
    FUNCTION(hsa_amd_pointer_info)                                                                 \
    FUNCTION(hsa_amd_memory_async_copy)                                                            \
    FUNCTION(hsa_amd_memory_lock)                                                                  \
    FUNCTION(hsa_amd_memory_unlock)                                                                \
    FUNCTION(hsa_code_object_reader_create_from_memory)                                            \
    FUNCTION(hsa_code_object_reader_destroy)                                                       \
    FUNCTION(hsa_executable_create_alt)                                                            \
    FUNCTION(hsa_executable_load_agent_code_object)                                                \
    FUNCTION(hsa_executable_freeze)                                                                \
    FUNCTION(hsa_executable_destroy)                                                               \
    FUNCTION(hsa_executable_get_symbol_by_name)                                                    \
    FUNCTION(hsa_executable_symbol_get_info)                                                       \
    FUNCTION(hsa_amd_profiling_set_profiler_enabled)                                               \
    FUNCTION(hsa_amd_profiling_get_dispatch_time)
/* clang-format on */

#define UHAL_HSA_FUNCTION_FIELD(name) __typeof__(&name) name;
typedef struct uhal_hsa_functions {
    UHAL_HSA_FUNCTIONS(UHAL_HSA_FUNCTION_FIELD)
} uhal_hsa_functions;
#undef UHAL_HSA_FUNCTION_FIELD

#endif
