/* Primitives of the portable headers on OpenCL devices, in addition to <uhal/primitives/hip.h>,
 * which includes this file. Kernels do not call them directly. */
#ifndef UHAL_PRIMITIVES_OPENCL_H
#define UHAL_PRIMITIVES_OPENCL_H

/* LLVM 22 miscompiles its own compare-and-exchange where it merges two of these instructions. The
 * code therefore calls the built-in functions of OpenCL C 1.2, whose scope is the device. */
extern "C" {
__attribute__((device)) u32 uhal_cl_exchange_if_u32(UHAL_IN_GLOBAL u32 *, u32,
                                                    u32) __asm("_Z14atomic_cmpxchgPU3AS1Vjjj");
__attribute__((device)) u32
uhal_cl_exchange_if_local_u32(UHAL_LOCAL u32 *, u32, u32) __asm("_Z14atomic_cmpxchgPU3AS3Vjjj");
__attribute__((device)) u64 uhal_cl_exchange_if_u64(UHAL_IN_GLOBAL u64 *, u64,
                                                    u64) __asm("_Z12atom_cmpxchgPU3AS1Vmmm");
__attribute__((device)) u64 uhal_cl_exchange_if_local_u64(UHAL_LOCAL u64 *, u64,
                                                          u64) __asm("_Z12atom_cmpxchgPU3AS3Vmmm");
__attribute__((device, convergent)) void
uhal_cl_memory_barrier(u32 scope, u32 semantics) __asm("_Z21__spirv_MemoryBarrierjj");
}

#define UHAL_CL_COMPARE_EXCHANGE(type)                                                             \
    template <uhal_scope scope>                                                                    \
    DEVICE_FUNCTION type uhal_word_compare_exchange(type *address, type expected, type desired) {  \
        UHAL_IN_GLOBAL void *const global = uhal_global_at(address);                               \
        if (global != nullptr)                                                                     \
            return uhal_cl_exchange_if_##type((UHAL_IN_GLOBAL type *)global, expected, desired);   \
        return uhal_cl_exchange_if_local_##type((UHAL_LOCAL type *)address, expected, desired);    \
    }
UHAL_CL_COMPARE_EXCHANGE(u32)
UHAL_CL_COMPARE_EXCHANGE(u64)
#undef UHAL_CL_COMPARE_EXCHANGE

/* The scope as a number of SPIR-V ("Scope <id>"). */
#define UHAL_CL_SCOPE (scope == SCOPE_BLOCK ? 2 : scope == SCOPE_SYSTEM ? 0 : 1)

/* LLVM 22 turns its own atomic loads and stores into plain ones. The order is relaxed, as
 * everywhere here. */
#define UHAL_CL_LOAD_STORE(type, letter, in, space)                                                \
    __attribute__((device)) type uhal_cl_load(in type *, u32 scope, u32 semantics) __asm(          \
        "_Z18__spirv_AtomicLoadPU3AS" #space "V" #letter "jj");                                    \
    __attribute__((device)) void uhal_cl_store(in type *, u32 scope, u32 semantics, type) __asm(   \
        "_Z19__spirv_AtomicStorePU3AS" #space "V" #letter "jj" #letter);
UHAL_CL_LOAD_STORE(u32, j, UHAL_IN_GLOBAL, 1)
UHAL_CL_LOAD_STORE(u32, j, UHAL_LOCAL, 3)
UHAL_CL_LOAD_STORE(u64, m, UHAL_IN_GLOBAL, 1)
UHAL_CL_LOAD_STORE(u64, m, UHAL_LOCAL, 3)
#undef UHAL_CL_LOAD_STORE

template <uhal_scope scope, class Word> DEVICE_FUNCTION Word uhal_word_load(const Word *address) {
    return uhal_at(const_cast<Word *>(address),
                   [](auto *at) -> Word { return uhal_cl_load(at, UHAL_CL_SCOPE, 0); });
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION void uhal_word_store(Word *address, Word value) {
    uhal_at(address, [&](auto *at) { uhal_cl_store(at, UHAL_CL_SCOPE, 0, value); });
}

#undef UHAL_LOCAL
#undef UHAL_IN_GLOBAL

/* Sequentially consistent, for workgroup and global memory (SPIR-V, "Memory Semantics"). */
template <uhal_scope scope> DEVICE_FUNCTION void uhal_fence() {
    uhal_cl_memory_barrier(UHAL_CL_SCOPE, 0x10 | 0x100 | 0x200);
}
#undef UHAL_CL_SCOPE

/* Sub-groups are optional and have any size, so lanes exchange words in shared memory. All
 * work-items of a block reach this code together, as everywhere outside of regions. */
DEVICE_FUNCTION u32 *uhal_exchanged() {
    __attribute__((shared)) static u32 words[MAX_THREADS];
    return words;
}

DEVICE_FUNCTION u32 uhal_word_of_lane(u32 word, u32 lane, u32) {
    u32 *const words = uhal_exchanged();
    const u32 thread = uhal_thread();
    words[thread] = word;
    uhal_barrier();
    const u32 found = words[(thread & ~31U) + lane];
    uhal_barrier();
    return found;
}

DEVICE_FUNCTION u32 uhal_lanes_where(bool flag, u32 lanes) {
    u32 *const words = uhal_exchanged();
    const u32 thread = uhal_thread();
    words[thread] = flag;
    uhal_barrier();
    u32 mask = 0;
    for (u32 lane = 0; lane < lanes; ++lane)
        mask |= words[(thread & ~31U) + lane] << lane;
    uhal_barrier();
    return mask;
}

#define UHAL_CL_NATIVE(name, symbol)                                                               \
    extern "C" __attribute__((device, const)) f32 uhal_cl_native_##name(f32) __asm(symbol);        \
    DEVICE_FUNCTION f32 uhal_fast_##name(f32 x) { return uhal_cl_native_##name(x); }
UHAL_CL_NATIVE(exp, "_Z10native_expf")
UHAL_CL_NATIVE(exp2, "_Z11native_exp2f")
UHAL_CL_NATIVE(log, "_Z10native_logf")
UHAL_CL_NATIVE(log2, "_Z11native_log2f")
UHAL_CL_NATIVE(sin, "_Z10native_sinf")
UHAL_CL_NATIVE(cos, "_Z10native_cosf")
UHAL_CL_NATIVE(sqrt, "_Z11native_sqrtf")
UHAL_CL_NATIVE(rsqrt, "_Z12native_rsqrtf")
UHAL_CL_NATIVE(reciprocal, "_Z12native_recipf")
#undef UHAL_CL_NATIVE
extern "C"
    __attribute__((device, const)) f32 uhal_cl_native_powr(f32, f32) __asm("_Z11native_powrff");
DEVICE_FUNCTION f32 uhal_fast_pow(f32 x, f32 y) { return uhal_cl_native_powr(x, y); }

#endif
