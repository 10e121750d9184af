/* Primitives of the portable headers on AMD devices, and their common part for OpenCL devices:
 * clang's HIP front end compiles for both. Kernels do not call them directly. */
#ifndef UHAL_PRIMITIVES_HIP_H
#define UHAL_PRIMITIVES_HIP_H

#define UHAL_MEMORY_SCOPE                                                                          \
    (scope == SCOPE_BLOCK    ? __HIP_MEMORY_SCOPE_WORKGROUP                                        \
     : scope == SCOPE_SYSTEM ? __HIP_MEMORY_SCOPE_SYSTEM                                           \
                             : __HIP_MEMORY_SCOPE_AGENT)

#if defined(__SPIRV__)
/* Intel's runtime for CPUs has no atomics on generic pointers, so the code asks the runtime for a
 * pointer's address space, at one point of a module. PoCL 7.1 crashes if a function asks twice,
 * Intel's runtime of 2022 if a function asks for pointers of two types. The code asks whether a
 * pointer points into the device's memory. CPUs answer yes for every address space. Atomics on the
 * device's memory also work in a block's memory, but not the other way around. */
#define UHAL_LOCAL __attribute__((address_space(3)))
#define UHAL_IN_GLOBAL __attribute__((address_space(1)))
extern "C" __attribute__((device, const)) UHAL_IN_GLOBAL void *
uhal_cl_to_global(const void *pointer,
                  int storage) __asm("_Z41__spirv_GenericCastToPtrExplicit_ToGlobalPvi");
__attribute__((device, noinline)) static UHAL_IN_GLOBAL void *uhal_global_at(const void *address) {
    return uhal_cl_to_global(address, 5);
}
template <class Type, class Act> DEVICE_FUNCTION auto uhal_at(Type *address, Act act) {
    UHAL_IN_GLOBAL void *const global = uhal_global_at(address);
    if (global != nullptr)
        return act((UHAL_IN_GLOBAL Type *)global);
    return act((UHAL_LOCAL Type *)address);
}
#else
template <class Type, class Act> DEVICE_FUNCTION auto uhal_at(Type *address, Act act) {
    return act(address);
}
#endif

#define UHAL_HIP_FETCH(name)                                                                       \
    template <uhal_scope scope, class Type>                                                        \
    DEVICE_FUNCTION Type uhal_fetch_##name(Type *address, Type value) {                            \
        return uhal_at(address, [&](auto *at) {                                                    \
            return __hip_atomic_fetch_##name(at, value, __ATOMIC_RELAXED, UHAL_MEMORY_SCOPE);      \
        });                                                                                        \
    }
UHAL_HIP_FETCH(add)
UHAL_HIP_FETCH(and)
UHAL_HIP_FETCH(or)
UHAL_HIP_FETCH(xor)
UHAL_HIP_FETCH(min)
UHAL_HIP_FETCH(max)
#undef UHAL_HIP_FETCH

template <uhal_scope scope, class Word>
DEVICE_FUNCTION Word uhal_word_exchange(Word *address, Word value) {
    return uhal_at(address, [&](auto *at) {
        return __hip_atomic_exchange(at, value, __ATOMIC_RELAXED, UHAL_MEMORY_SCOPE);
    });
}

#if defined(__SPIRV__)
#include <uhal/primitives/opencl.h>
#else

template <uhal_scope scope, class Word> DEVICE_FUNCTION Word uhal_word_load(const Word *address) {
    return __hip_atomic_load(address, __ATOMIC_RELAXED, UHAL_MEMORY_SCOPE);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION void uhal_word_store(Word *address, Word value) {
    __hip_atomic_store(address, value, __ATOMIC_RELAXED, UHAL_MEMORY_SCOPE);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION Word uhal_word_compare_exchange(Word *address, Word expected, Word desired) {
    __hip_atomic_compare_exchange_strong(address, &expected, desired, __ATOMIC_RELAXED,
                                         __ATOMIC_RELAXED, UHAL_MEMORY_SCOPE);
    return expected;
}

template <uhal_scope scope, class Float>
DEVICE_FUNCTION Float uhal_fetch_sum(Float *address, Float value) {
    return uhal_fetch_add<scope>(address, value);
}

template <uhal_scope scope> DEVICE_FUNCTION void uhal_fence() {
    if constexpr (scope == SCOPE_BLOCK)
        __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    else if constexpr (scope == SCOPE_SYSTEM)
        __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
    else
        __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}

/* A wavefront of 64 is two of our warps; lanes count from the warp's first lane. */
DEVICE_FUNCTION u32 uhal_first_lane() {
    return uhal_thread() & 32U & (__builtin_amdgcn_wavefrontsize() - 1);
}

DEVICE_FUNCTION u32 uhal_word_of_lane(u32 word, u32 lane, u32) {
    const u32 source = uhal_first_lane() + lane;
    return static_cast<u32>(
        __builtin_amdgcn_ds_bpermute(static_cast<int>(4 * source), static_cast<int>(word)));
}

DEVICE_FUNCTION u32 uhal_lanes_where(bool flag, u32) {
#if defined(__GFX9__)
    return static_cast<u32>(__builtin_amdgcn_ballot_w64(flag) >> uhal_first_lane());
#else
    return __builtin_amdgcn_ballot_w32(flag);
#endif
}

/* The hardware's exp2, log2 and sine; the sine's argument is in turns. */
DEVICE_FUNCTION f32 uhal_fast_exp2(f32 x) { return __builtin_amdgcn_exp2f(x); }
DEVICE_FUNCTION f32 uhal_fast_log2(f32 x) { return __builtin_amdgcn_logf(x); }
DEVICE_FUNCTION f32 uhal_fast_exp(f32 x) { return uhal_fast_exp2(x * 1.44269504f); }
DEVICE_FUNCTION f32 uhal_fast_log(f32 x) { return uhal_fast_log2(x) * 0.693147181f; }
DEVICE_FUNCTION f32 uhal_fast_sin(f32 x) {
    return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0.159154943f));
}
DEVICE_FUNCTION f32 uhal_fast_cos(f32 x) {
    return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0.159154943f));
}
DEVICE_FUNCTION f32 uhal_fast_sqrt(f32 x) { return __builtin_amdgcn_sqrtf(x); }
DEVICE_FUNCTION f32 uhal_fast_rsqrt(f32 x) { return __builtin_amdgcn_rsqf(x); }
DEVICE_FUNCTION f32 uhal_fast_reciprocal(f32 x) { return __builtin_amdgcn_rcpf(x); }

#endif

DEVICE_FUNCTION f32 uhal_fast_tanh(f32 x) {
    return 1.0f - 2.0f * uhal_fast_reciprocal(uhal_fast_exp(2.0f * x) + 1.0f);
}
#if !defined(__SPIRV__)
DEVICE_FUNCTION f32 uhal_fast_pow(f32 x, f32 y) { return uhal_fast_exp2(y * uhal_fast_log2(x)); }
#endif

#undef UHAL_MEMORY_SCOPE

#endif
