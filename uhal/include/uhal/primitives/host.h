/* Primitives of the portable headers, on the host. Kernels do not call them directly. */
#ifndef UHAL_PRIMITIVES_HOST_H
#define UHAL_PRIMITIVES_HOST_H

#pragma GCC system_header

#define UHAL_HOST_FETCH(name, builtin)                                                             \
    template <uhal_scope scope, class Type>                                                        \
    DEVICE_FUNCTION Type uhal_fetch_##name(Type *address, Type value) {                            \
        return builtin(address, value, __ATOMIC_RELAXED);                                          \
    }
UHAL_HOST_FETCH(add, __atomic_fetch_add)
UHAL_HOST_FETCH(and, __atomic_fetch_and)
UHAL_HOST_FETCH(or, __atomic_fetch_or)
UHAL_HOST_FETCH(xor, __atomic_fetch_xor)
#undef UHAL_HOST_FETCH

#define UHAL_HOST_CHOOSE(name, better)                                                             \
    template <uhal_scope scope, class Type>                                                        \
    DEVICE_FUNCTION Type uhal_fetch_##name(Type *address, Type value) {                            \
        Type seen = __atomic_load_n(address, __ATOMIC_RELAXED);                                    \
        while (value better seen &&                                                                \
               !__atomic_compare_exchange_n(address, &seen, value, true, __ATOMIC_RELAXED,         \
                                            __ATOMIC_RELAXED)) {                                   \
        }                                                                                          \
        return seen;                                                                               \
    }
UHAL_HOST_CHOOSE(min, <)
UHAL_HOST_CHOOSE(max, >)
#undef UHAL_HOST_CHOOSE

template <uhal_scope scope, class Word>
DEVICE_FUNCTION Word uhal_word_exchange(Word *address, Word value) {
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION Word uhal_word_compare_exchange(Word *address, Word expected, Word desired) {
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return expected;
}

template <uhal_scope scope, class Word> DEVICE_FUNCTION Word uhal_word_load(const Word *address) {
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}

template <uhal_scope scope, class Word>
DEVICE_FUNCTION void uhal_word_store(Word *address, Word value) {
    __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

template <uhal_scope scope> DEVICE_FUNCTION void uhal_fence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* In full precision: the compiler has vector versions of these functions, but no faster ones. */
DEVICE_FUNCTION f32 uhal_fast_exp(f32 x) { return expf(x); }
DEVICE_FUNCTION f32 uhal_fast_exp2(f32 x) { return exp2f(x); }
DEVICE_FUNCTION f32 uhal_fast_log(f32 x) { return logf(x); }
DEVICE_FUNCTION f32 uhal_fast_log2(f32 x) { return log2f(x); }
DEVICE_FUNCTION f32 uhal_fast_sin(f32 x) { return sinf(x); }
DEVICE_FUNCTION f32 uhal_fast_cos(f32 x) { return cosf(x); }
DEVICE_FUNCTION f32 uhal_fast_tanh(f32 x) { return tanhf(x); }
DEVICE_FUNCTION f32 uhal_fast_sqrt(f32 x) { return sqrtf(x); }
DEVICE_FUNCTION f32 uhal_fast_rsqrt(f32 x) { return 1.0f / sqrtf(x); }
DEVICE_FUNCTION f32 uhal_fast_reciprocal(f32 x) { return 1.0f / x; }
DEVICE_FUNCTION f32 uhal_fast_pow(f32 x, f32 y) { return powf(x, y); }

#endif
