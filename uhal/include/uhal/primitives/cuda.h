/* Primitives of the portable headers, on CUDA. Kernels do not call them directly. */
#ifndef UHAL_PRIMITIVES_CUDA_H
#define UHAL_PRIMITIVES_CUDA_H

/* CUDA's own names of the 64-bit types differ from <stdint.h>'s. */
template <class Type> struct uhal_cuda_type {
    typedef Type type;
};
template <> struct uhal_cuda_type<u64> {
    typedef unsigned long long type;
};
template <> struct uhal_cuda_type<i64> {
    typedef long long type;
};

#define UHAL_CUDA_ATOMIC(name, function)                                                           \
    template <uhal_scope scope, class Type>                                                        \
    DEVICE_FUNCTION Type uhal_cuda_##name(Type *address, Type value) {                             \
        if constexpr (scope == SCOPE_BLOCK)                                                        \
            return function##_block(address, value);                                               \
        else if constexpr (scope == SCOPE_SYSTEM)                                                  \
            return function##_system(address, value);                                              \
        else                                                                                       \
            return function(address, value);                                                       \
    }                                                                                              \
    template <uhal_scope scope, class Type>                                                        \
    DEVICE_FUNCTION Type uhal_fetch_##name(Type *address, Type value) {                            \
        typedef typename uhal_cuda_type<Type>::type Own;                                           \
        return static_cast<Type>(                                                                  \
            uhal_cuda_##name<scope>(reinterpret_cast<Own *>(address), static_cast<Own>(value)));   \
    }
UHAL_CUDA_ATOMIC(and, atomicAnd)
UHAL_CUDA_ATOMIC(or, atomicOr)
UHAL_CUDA_ATOMIC(xor, atomicXor)
UHAL_CUDA_ATOMIC(min, atomicMin)
UHAL_CUDA_ATOMIC(max, atomicMax)
UHAL_CUDA_ATOMIC(exchange, atomicExch)
UHAL_CUDA_ATOMIC(add, atomicAdd)
#undef UHAL_CUDA_ATOMIC

template <uhal_scope scope, class Float>
DEVICE_FUNCTION Float uhal_fetch_sum(Float *address, Float value) {
    return uhal_cuda_add<scope>(address, value);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION Word uhal_word_exchange(Word *address, Word value) {
    return uhal_fetch_exchange<scope>(address, value);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION Word uhal_word_compare_exchange(Word *address, Word expected, Word desired) {
    typedef typename uhal_cuda_type<Word>::type Own;
    Own *const at = reinterpret_cast<Own *>(address);
    if constexpr (scope == SCOPE_BLOCK)
        return atomicCAS_block(at, Own(expected), Own(desired));
    else if constexpr (scope == SCOPE_SYSTEM)
        return atomicCAS_system(at, Own(expected), Own(desired));
    else
        return atomicCAS(at, Own(expected), Own(desired));
}

/* A `volatile` access of a whole word is a single access (CUDA C++ Programming Guide). */
template <uhal_scope scope, class Word> DEVICE_FUNCTION Word uhal_word_load(const Word *address) {
    return *const_cast<const volatile Word *>(address);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION void uhal_word_store(Word *address, Word value) {
    *const_cast<volatile Word *>(address) = value;
}

template <uhal_scope scope> DEVICE_FUNCTION void uhal_fence() {
    if constexpr (scope == SCOPE_BLOCK)
        __threadfence_block();
    else if constexpr (scope == SCOPE_SYSTEM)
        __threadfence_system();
    else
        __threadfence();
}

/* The lanes of this work-item's warp that exist in the block. */
DEVICE_FUNCTION u32 uhal_lanes_mask(u32 lanes) {
    return lanes == 32 ? 0xFFFFFFFFU : (1U << lanes) - 1;
}

DEVICE_FUNCTION u32 uhal_word_of_lane(u32 word, u32 lane, u32 lanes) {
    return __shfl_sync(uhal_lanes_mask(lanes), word, static_cast<int>(lane));
}

DEVICE_FUNCTION u32 uhal_lanes_where(bool flag, u32 lanes) {
    return __ballot_sync(uhal_lanes_mask(lanes), flag);
}

DEVICE_FUNCTION f32 uhal_fast_exp(f32 x) { return __expf(x); }
DEVICE_FUNCTION f32 uhal_fast_exp2(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE_FUNCTION f32 uhal_fast_log(f32 x) { return __logf(x); }
DEVICE_FUNCTION f32 uhal_fast_log2(f32 x) { return __log2f(x); }
DEVICE_FUNCTION f32 uhal_fast_sin(f32 x) { return __sinf(x); }
DEVICE_FUNCTION f32 uhal_fast_cos(f32 x) { return __cosf(x); }
DEVICE_FUNCTION f32 uhal_fast_tanh(f32 x) {
    f32 y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE_FUNCTION f32 uhal_fast_sqrt(f32 x) {
    f32 y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE_FUNCTION f32 uhal_fast_rsqrt(f32 x) { return rsqrtf(x); }
DEVICE_FUNCTION f32 uhal_fast_reciprocal(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE_FUNCTION f32 uhal_fast_pow(f32 x, f32 y) { return __powf(x, y); }

#endif
