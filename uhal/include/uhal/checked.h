/* The kernel language in checked mode on the host: <uhal/kernel_host.h> includes this header at its
 * end if UHAL_CHECKED is defined. `python -m uhal cflags --checked` prints the compiler's options
 * for this mode.
 *
 * The compiler instruments the code for its thread sanitizer: the code calls a function before each
 * access. This header defines these functions instead of the sanitizer's library. The functions ask
 * the host runtime, which knows the launch. Each region publishes its running work-item, and each
 * barrier is counted.
 */
#ifndef UHAL_CHECKED_H
#define UHAL_CHECKED_H

#pragma GCC system_header

#include <uhal/host_check.h>

extern "C" {
extern __attribute__((weak, visibility("default"))) struct uhal_host_check uhal_host_check;
__attribute__((used)) struct uhal_host_check uhal_host_check = {
    UHAL_HOST_CHECK_VERSION, UHAL_HOST_CHECK_EVERY_THREAD, nullptr};
}

namespace uhal {

/* Whether the block has `thread`, which is the running thread from here on. */
UHAL_UNCHECKED static inline bool check_thread(u32 thread, u32 count) {
    const bool runs = thread < count;
    uhal_host_check.thread = runs ? thread : UHAL_HOST_CHECK_EVERY_THREAD;
    return runs;
}

template <bool inside_region> UHAL_UNCHECKED static inline void check_barrier() {
    static_assert(!inside_region, "BARRIER() stands between THREADS regions");
    uhal_host_check.services->barrier();
}

UHAL_UNCHECKED static inline void *check_shared(const char *name, size_t bytes) {
    return uhal_host_check.services->shared(name, bytes);
}

UHAL_UNCHECKED static inline u64 check_first(const Block &block) {
    const u64 rows_before = u64{block.gridDim.y} * block.blockIdx.z + block.blockIdx.y;
    return (block.gridDim.x * rows_before + block.blockIdx.x) * block.uhal_threads();
}

UHAL_UNCHECKED static inline u64 check_step(const Block &block) {
    return u64{block.gridDim.x} * block.gridDim.y * block.gridDim.z * block.uhal_threads();
}

} // namespace uhal

#undef THREADS_OF
#define THREADS_OF(block, t)                                                                       \
    for (u32 t = 0, t##_end = (block).uhal_threads(); ::uhal::check_thread(t, t##_end); ++t)       \
        if constexpr ([[maybe_unused]] constexpr bool uhal_inside_region = true; true)
#undef BARRIER
#define BARRIER() ::uhal::check_barrier<uhal_inside_region>()
#undef SHARED
#define SHARED(type, name, ...)                                                                    \
    type(&name) UHAL_EXTENTS(__VA_ARGS__) = *static_cast<type(*) UHAL_EXTENTS(__VA_ARGS__)>(       \
        ::uhal::check_shared(#name, sizeof(type UHAL_EXTENTS(__VA_ARGS__))));                      \
    static_assert(sizeof name <= UHAL_HOST_MAX_SHARED_BYTES, "a block has 48 KiB of shared memory")
/* The work-items take the same elements as on a GPU, so that reports name the same work-items. */
#undef GRID_STRIDE_OF
#define GRID_STRIDE_OF(block, i, n)                                                                \
    for (u32 i##_thread = 0, i##_threads = (block).uhal_threads();                                 \
         ::uhal::check_thread(i##_thread, i##_threads); ++i##_thread)                              \
        for (u64 i = ::uhal::check_first(block) + i##_thread,                                      \
                 i##_step = ::uhal::check_step(block), i##_end = (n);                              \
             i < i##_end; i += i##_step)                                                           \
            if constexpr ([[maybe_unused]] constexpr bool uhal_inside_region = true; true)

/* -- calls by the compiler --------------------------------------------------------------------- */

#define UHAL_CALLED extern "C" __attribute__((weak, visibility("hidden"))) UHAL_UNCHECKED

UHAL_UNCHECKED static inline void uhal_check(const volatile void *address, size_t bytes, u32 flags,
                                             const void *instruction) {
    /* Null while the library is loaded and its variables are made. */
    if (uhal_host_check.services != nullptr)
        uhal_host_check.services->access(const_cast<const void *>(address), bytes, flags,
                                         instruction);
}

#define UHAL_CHECK_SIZE(bytes)                                                                     \
    UHAL_CALLED void __tsan_read##bytes(void *address) {                                           \
        uhal_check(address, bytes, UHAL_HOST_CHECK_ALIGNED, __builtin_return_address(0));          \
    }                                                                                              \
    UHAL_CALLED void __tsan_write##bytes(void *address) {                                          \
        uhal_check(address, bytes, UHAL_HOST_CHECK_WRITE | UHAL_HOST_CHECK_ALIGNED,                \
                   __builtin_return_address(0));                                                   \
    }                                                                                              \
    UHAL_CALLED void __tsan_unaligned_read##bytes(void *address) {                                 \
        uhal_check(address, bytes, 0, __builtin_return_address(0));                                \
    }                                                                                              \
    UHAL_CALLED void __tsan_unaligned_write##bytes(void *address) {                                \
        uhal_check(address, bytes, UHAL_HOST_CHECK_WRITE, __builtin_return_address(0));            \
    }                                                                                              \
    UHAL_CALLED void __tsan_volatile_read##bytes(void *address) {                                  \
        uhal_check(address, bytes, 0, __builtin_return_address(0));                                \
    }                                                                                              \
    UHAL_CALLED void __tsan_volatile_write##bytes(void *address) {                                 \
        uhal_check(address, bytes, UHAL_HOST_CHECK_WRITE, __builtin_return_address(0));            \
    }
UHAL_CHECK_SIZE(1)
UHAL_CHECK_SIZE(2)
UHAL_CHECK_SIZE(4)
UHAL_CHECK_SIZE(8)
UHAL_CHECK_SIZE(16)
#undef UHAL_CHECK_SIZE

UHAL_CALLED void __tsan_read_range(void *address, unsigned long bytes) {
    uhal_check(address, bytes, 0, __builtin_return_address(0));
}
UHAL_CALLED void __tsan_write_range(void *address, unsigned long bytes) {
    uhal_check(address, bytes, UHAL_HOST_CHECK_WRITE, __builtin_return_address(0));
}

/* clang calls the sanitizer's functions for memcpy, memmove and memset. GCC calls the plain names;
 * the declarations below reach the system's own functions under those names. */
extern "C" {
void *uhal_system_memcpy(void *, const void *, size_t) __asm__("memcpy");
void *uhal_system_memmove(void *, const void *, size_t) __asm__("memmove");
void *uhal_system_memset(void *, int, size_t) __asm__("memset");
#ifndef __clang__
void *memcpy(void *, const void *, size_t) noexcept __asm__("__tsan_memcpy");
void *memmove(void *, const void *, size_t) noexcept __asm__("__tsan_memmove");
void *memset(void *, int, size_t) noexcept __asm__("__tsan_memset");
#endif
}
UHAL_UNCHECKED static inline void uhal_check_range(const void *start, size_t bytes, u32 flags,
                                                   const void *instruction) {
    if (bytes != 0)
        uhal_check(start, bytes, flags, instruction);
}
UHAL_CALLED void *__tsan_memcpy(void *to, const void *from, unsigned long bytes) {
    uhal_check_range(from, bytes, 0, __builtin_return_address(0));
    uhal_check_range(to, bytes, UHAL_HOST_CHECK_WRITE, __builtin_return_address(0));
    return uhal_system_memcpy(to, from, bytes);
}
UHAL_CALLED void *__tsan_memmove(void *to, const void *from, unsigned long bytes) {
    uhal_check_range(from, bytes, 0, __builtin_return_address(0));
    uhal_check_range(to, bytes, UHAL_HOST_CHECK_WRITE, __builtin_return_address(0));
    return uhal_system_memmove(to, from, bytes);
}
UHAL_CALLED void *__tsan_memset(void *to, int value, unsigned long bytes) {
    uhal_check_range(to, bytes, UHAL_HOST_CHECK_WRITE, __builtin_return_address(0));
    return uhal_system_memset(to, value, bytes);
}
UHAL_CALLED void __tsan_init() {}
UHAL_CALLED void __tsan_func_entry(void *) {}
UHAL_CALLED void __tsan_func_exit(void *) {}
UHAL_CALLED void __tsan_vptr_update(void **, void *) {}
UHAL_CALLED void __tsan_vptr_read(void **) {}
UHAL_CALLED void __tsan_atomic_signal_fence(int) {}
UHAL_CALLED void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (uhal_host_check.services != nullptr)
        uhal_host_check.services->fence();
}

#define UHAL_CHECK_ATOMIC(address, bits, flags)                                                    \
    uhal_check(address, bits / 8, flags, __builtin_return_address(0))
#define UHAL_CHECK_FETCH(bits, name)                                                               \
    UHAL_CALLED u##bits __tsan_atomic##bits##_##name(volatile u##bits *address, u##bits value,     \
                                                     int) {                                        \
        UHAL_CHECK_ATOMIC(address, bits, UHAL_HOST_CHECK_WRITE | UHAL_HOST_CHECK_ATOMIC);          \
        return __atomic_##name(address, value, __ATOMIC_SEQ_CST);                                  \
    }
#define UHAL_CHECK_EXCHANGE(bits, strength)                                                        \
    UHAL_CALLED int __tsan_atomic##bits##_compare_exchange_##strength(                             \
        volatile u##bits *address, u##bits *expected, u##bits value, int, int) {                   \
        UHAL_CHECK_ATOMIC(address, bits, UHAL_HOST_CHECK_WRITE | UHAL_HOST_CHECK_ATOMIC);          \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST,      \
                                           __ATOMIC_SEQ_CST);                                      \
    }
#define UHAL_CHECK_ATOMICS(bits)                                                                   \
    UHAL_CALLED u##bits __tsan_atomic##bits##_load(const volatile u##bits *address, int) {         \
        UHAL_CHECK_ATOMIC(address, bits, UHAL_HOST_CHECK_ATOMIC);                                  \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    UHAL_CALLED void __tsan_atomic##bits##_store(volatile u##bits *address, u##bits value, int) {  \
        UHAL_CHECK_ATOMIC(address, bits, UHAL_HOST_CHECK_WRITE | UHAL_HOST_CHECK_ATOMIC);          \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    UHAL_CALLED u##bits __tsan_atomic##bits##_exchange(volatile u##bits *address, u##bits value,   \
                                                       int) {                                      \
        UHAL_CHECK_ATOMIC(address, bits, UHAL_HOST_CHECK_WRITE | UHAL_HOST_CHECK_ATOMIC);          \
        return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                              \
    }                                                                                              \
    UHAL_CHECK_FETCH(bits, fetch_add)                                                              \
    UHAL_CHECK_FETCH(bits, fetch_sub)                                                              \
    UHAL_CHECK_FETCH(bits, fetch_and)                                                              \
    UHAL_CHECK_FETCH(bits, fetch_or)                                                               \
    UHAL_CHECK_FETCH(bits, fetch_xor)                                                              \
    UHAL_CHECK_FETCH(bits, fetch_nand)                                                             \
    UHAL_CHECK_EXCHANGE(bits, strong)                                                              \
    UHAL_CHECK_EXCHANGE(bits, weak)                                                                \
    UHAL_CALLED u##bits __tsan_atomic##bits##_compare_exchange_val(                                \
        volatile u##bits *address, u##bits expected, u##bits value, int, int) {                    \
        UHAL_CHECK_ATOMIC(address, bits, UHAL_HOST_CHECK_WRITE | UHAL_HOST_CHECK_ATOMIC);          \
        __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST,            \
                                    __ATOMIC_SEQ_CST);                                             \
        return expected;                                                                           \
    }
UHAL_CHECK_ATOMICS(8)
UHAL_CHECK_ATOMICS(16)
UHAL_CHECK_ATOMICS(32)
UHAL_CHECK_ATOMICS(64)
#undef UHAL_CHECK_ATOMICS
#undef UHAL_CHECK_EXCHANGE
#undef UHAL_CHECK_FETCH
#undef UHAL_CHECK_ATOMIC
#undef UHAL_CALLED

#endif
