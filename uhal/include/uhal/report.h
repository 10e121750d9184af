/* For kernels that check indices: defines the module's `uhal_fault` and how a kernel writes to it.
 * Include it once in a module, after <uhal/kernel.h>.
 *
 *     if (index >= bound)
 *         report_index("gather_u32_f32", position, index, bound);
 */
#ifndef UHAL_REPORT_H
#define UHAL_REPORT_H

#include <uhal/fault.h>
#include <uhal/kernel.h>

DEVICE_GLOBAL(uhal_fault_record *, uhal_fault, 1);

/* True for the one work-item that may write. */
DEVICE_FUNCTION bool uhal_claim_fault(u32 *state)
{
#if defined(__CUDACC__)
    return atomicCAS_system(state, u32(UHAL_FAULT_NONE), u32(UHAL_FAULT_WRITING)) ==
           UHAL_FAULT_NONE;
#elif defined(__SPIRV__)
    u32 expected = UHAL_FAULT_NONE;
    return __hip_atomic_compare_exchange_strong(UHAL_GLOBAL(state), &expected,
                                                u32(UHAL_FAULT_WRITING), __ATOMIC_RELAXED,
                                                __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#elif defined(__HIP__)
    u32 expected = UHAL_FAULT_NONE;
    return __hip_atomic_compare_exchange_strong(state, &expected, u32(UHAL_FAULT_WRITING),
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                __HIP_MEMORY_SCOPE_SYSTEM);
#else
    u32 expected = UHAL_FAULT_NONE;
    return __atomic_compare_exchange_n(state, &expected, u32(UHAL_FAULT_WRITING), false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
}

DEVICE_FUNCTION void uhal_publish_fault(u32 *state)
{
#if defined(__CUDACC__)
    __threadfence_system();
    *const_cast<volatile u32 *>(state) = UHAL_FAULT_WRITTEN;
#elif defined(__SPIRV__)
    __hip_atomic_store(UHAL_GLOBAL(state), u32(UHAL_FAULT_WRITTEN), __ATOMIC_RELEASE,
                       __HIP_MEMORY_SCOPE_SYSTEM);
#elif defined(__HIP__)
    __hip_atomic_store(state, u32(UHAL_FAULT_WRITTEN), __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    __atomic_store_n(state, u32(UHAL_FAULT_WRITTEN), __ATOMIC_RELEASE);
#endif
}

DEVICE_FUNCTION void report_index(const char *entry, u64 position, i64 value, u64 bound)
{
    uhal_fault_record *const record = uhal_fault[0];
    if (record == nullptr || !uhal_claim_fault(&record->state))
        return;
    record->position = position;
    record->value = value;
    record->bound = bound;
    ROLLED for (u32 i = 0; i < UHAL_FAULT_ENTRY_BYTES - 1 && entry[i] != '\0'; ++i)
        record->entry[i] = entry[i];
    uhal_publish_fault(&record->state);
}

#endif
