/* For kernels that check indices: the module's `uhal_fault`, and functions that write to it.
 * Include it once in a module, after <uhal/kernel.h>.
 *
 *     if (index >= bound)
 *         report_index("gather_u32_f32", position, index, bound);
 */
#ifndef UHAL_REPORT_H
#define UHAL_REPORT_H

#include <uhal/fault.h>
#include <uhal/kernel.h>
#include <uhal/running_stream.h>

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

DEVICE_FUNCTION void uhal_fill_fault(uhal_fault_record *record, const char *entry, u64 position,
                                     i64 value, u64 bound)
{
    record->position = position;
    record->value = value;
    record->bound = bound;
    u32 length = 0;
    ROLLED for (; length < UHAL_FAULT_ENTRY_BYTES - 1 && entry[length] != '\0'; ++length)
        record->entry[length] = entry[length];
    record->entry[length] = '\0';
    uhal_publish_fault(&record->state);
}

#if !KERNEL_ON_GPU
/* Whether the fault was written to the running stream's own record. */
static __attribute__((noinline)) bool uhal_report_in_stream(uhal_fault_record *first,
                                                            const char *entry, u64 position,
                                                            i64 value, u64 bound)
{
    const uhal_running running = uhal_running_launch();
    uhal_stream_fault *fault = reinterpret_cast<uhal_stream_fault *>(first + 1);
    uhal_stream_fault *const end = fault + (running.stream != 0 ? first->streams : 0);
    for (; fault != end; ++fault) {
        u32 *const state = &fault->record.state;
        bool is_mine;
        while (!(is_mine = uhal_claim_fault(state)) &&
               __atomic_load_n(state, __ATOMIC_ACQUIRE) != UHAL_FAULT_WRITTEN) {
        }
        if (is_mine) {
            fault->stream = running.stream;
            fault->launch = running.launch;
            uhal_fill_fault(&fault->record, entry, position, value, bound);
            u32 none = UHAL_FAULT_NONE;
            __atomic_compare_exchange_n(&first->state, &none, u32(UHAL_FAULT_IN_STREAMS), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED);
            return true;
        }
        if (fault->stream == running.stream)
            return true;
    }
    /* If every record is taken, the first record reports a fault without its stream. */
    u32 taken = UHAL_FAULT_IN_STREAMS;
    const bool is_free = __atomic_compare_exchange_n(&first->state, &taken, u32(UHAL_FAULT_WRITING),
                                                     false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (is_free)
        uhal_fill_fault(first, entry, position, value, bound);
    return is_free;
}
#endif

DEVICE_FUNCTION void report_index(const char *entry, u64 position, i64 value, u64 bound)
{
    uhal_fault_record *const record = uhal_fault[0];
    if (record == nullptr)
        return;
#if !KERNEL_ON_GPU
    if (uhal_report_in_stream(record, entry, position, value, bound))
        return;
#endif
    if (uhal_claim_fault(&record->state))
        uhal_fill_fault(record, entry, position, value, bound);
}

#endif
