/* Functions of the HSA runtime that uhal does not call and other programs do: further spellings of
 * signal and queue operations, memory regions, code object files. Names, values and layouts come
 * from AMD's hsa.h and hsa_ext_amd.h.
 */
#ifndef UHAL_SIMULATED_HSA_WIDER_ABI_H
#define UHAL_SIMULATED_HSA_WIDER_ABI_H

#include "../../rocm_backend/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- signals ----------------------------------------------------------------------------------- */

hsa_signal_value_t hsa_signal_wait_relaxed(hsa_signal_t signal, hsa_signal_condition_t condition,
                                           hsa_signal_value_t compared, uint64_t timeout,
                                           hsa_wait_state_t state);
hsa_signal_value_t hsa_signal_exchange_scacq_screl(hsa_signal_t signal, hsa_signal_value_t value);
hsa_signal_value_t hsa_signal_cas_scacq_screl(hsa_signal_t signal, hsa_signal_value_t expected,
                                              hsa_signal_value_t value);
void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value);
void hsa_signal_add_screlease(hsa_signal_t signal, hsa_signal_value_t value);
void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value);

/* -- queues ------------------------------------------------------------------------------------ */

uint64_t hsa_queue_load_write_index_scacquire(const hsa_queue_t *queue);
void hsa_queue_store_write_index_screlease(const hsa_queue_t *queue, uint64_t value);
uint64_t hsa_queue_add_write_index_relaxed(const hsa_queue_t *queue, uint64_t value);
uint64_t hsa_queue_add_write_index_scacquire(const hsa_queue_t *queue, uint64_t value);
uint64_t hsa_queue_add_write_index_scacq_screl(const hsa_queue_t *queue, uint64_t value);
uint64_t hsa_queue_cas_write_index_scacq_screl(const hsa_queue_t *queue, uint64_t expected,
                                               uint64_t value);

/* -- memory regions ---------------------------------------------------------------------------- */

typedef struct hsa_region_s {
    uint64_t handle;
} hsa_region_t;

typedef enum hsa_region_segment_e {
    HSA_REGION_SEGMENT_GLOBAL = 0,
    HSA_REGION_SEGMENT_READONLY = 1,
    HSA_REGION_SEGMENT_PRIVATE = 2,
    HSA_REGION_SEGMENT_GROUP = 3,
    HSA_REGION_SEGMENT_KERNARG = 4
} hsa_region_segment_t;

typedef enum hsa_region_info_e {
    HSA_REGION_INFO_SEGMENT = 0,
    HSA_REGION_INFO_GLOBAL_FLAGS = 1,
    HSA_REGION_INFO_SIZE = 2,
    HSA_REGION_INFO_ALLOC_MAX_SIZE = 4,
    HSA_REGION_INFO_RUNTIME_ALLOC_ALLOWED = 5,
    HSA_REGION_INFO_RUNTIME_ALLOC_GRANULE = 6,
    HSA_REGION_INFO_RUNTIME_ALLOC_ALIGNMENT = 7
} hsa_region_info_t;

typedef hsa_status_t (*hsa_region_callback_t)(hsa_region_t region, void *data);

hsa_status_t hsa_agent_iterate_regions(hsa_agent_t agent, hsa_region_callback_t callback,
                                       void *data);
hsa_status_t hsa_region_get_info(hsa_region_t region, hsa_region_info_t attribute, void *value);
/* Memory of a host region may be reached by all agents at once. */
hsa_status_t hsa_memory_allocate(hsa_region_t region, size_t size, void **pointer);
hsa_status_t hsa_memory_free(void *pointer);

/* -- code objects ------------------------------------------------------------------------------ */

hsa_status_t hsa_code_object_reader_create_from_file(hsa_file_t file,
                                                     hsa_code_object_reader_t *reader);

#ifdef __cplusplus
}
#endif

#endif
