/** Atomic operations, on the device's memory and on a block's shared memory.
 *
 * Every function takes its scope as a template argument: the observers that see the operation as
 * one step. SCOPE_BLOCK is the block's work-items and SCOPE_DEVICE, the default, all of the device.
 * SCOPE_SYSTEM adds the host and other devices that reach the memory. Other accesses are not
 * ordered; use `fence` for that. Types are i32, u32, i64, u64, f32 and f64 unless noted. An
 * operation returns the old value.
 *
 *     atomic_add(&counts[bin], 1);
 *     atomic_max<SCOPE_BLOCK>(&largest, x[i]);
 *
 * AMD's and CUDA devices add f32 and f64 by one instruction if the device has it. Other additions,
 * and the minimum and maximum of floats, are loops of compare-and-exchange. On OpenCL devices a
 * compare-and-exchange of any scope has the device's scope.
 */
#ifndef UHAL_ATOMICS_H
#define UHAL_ATOMICS_H

#include <uhal/kernel.h>
#include <uhal/vector.h>

/** Observers that see an atomic operation as one step. */
enum uhal_scope { SCOPE_BLOCK, SCOPE_DEVICE, SCOPE_SYSTEM };

#if defined(__CUDACC__)
#include <uhal/primitives/cuda.h>
#elif defined(__HIP__)
#include <uhal/primitives/hip.h>
#else
#include <uhal/primitives/host.h>
#endif

/* The second argument of a function template does not determine the type. */
template <class Type> struct uhal_same {
    typedef Type type;
};

/* The word type that stands for a type in atomic instructions. */
template <u32 bytes> struct uhal_word_of;
template <> struct uhal_word_of<4> {
    typedef u32 type;
};
template <> struct uhal_word_of<8> {
    typedef u64 type;
};
#define UHAL_WORD_OF(Type) typename uhal_word_of<sizeof(Type)>::type

template <class To, class From> DEVICE_FUNCTION To uhal_bits_as(const From &from) {
    static_assert(sizeof(To) == sizeof(From), "the same bytes");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

template <class Type> struct uhal_is_float {
    static constexpr bool value = Type(0.5) != Type(0);
};

/** Exchange a value for `desired` if its bytes equal `expected`; return the old value. The exchange
 * took place if the result equals `expected`. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION Type atomic_compare_exchange(Type *address, typename uhal_same<Type>::type expected,
                                             typename uhal_same<Type>::type desired) {
    typedef UHAL_WORD_OF(Type) Word;
    return uhal_bits_as<Type>(uhal_word_compare_exchange<scope>(reinterpret_cast<Word *>(address),
                                                                uhal_bits_as<Word>(expected),
                                                                uhal_bits_as<Word>(desired)));
}

/** Set a value. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION Type atomic_exchange(Type *address, typename uhal_same<Type>::type value) {
    typedef UHAL_WORD_OF(Type) Word;
    return uhal_bits_as<Type>(
        uhal_word_exchange<scope>(reinterpret_cast<Word *>(address), uhal_bits_as<Word>(value)));
}

/** Read a value that other work-items may be writing. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION Type atomic_load(const Type *address) {
    return uhal_bits_as<Type>(
        uhal_word_load<scope>(reinterpret_cast<const UHAL_WORD_OF(Type) *>(address)));
}

/** Write a value that other work-items may be reading; returns nothing. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION void atomic_store(Type *address, typename uhal_same<Type>::type value) {
    uhal_word_store<scope>(reinterpret_cast<UHAL_WORD_OF(Type) *>(address),
                           uhal_bits_as<UHAL_WORD_OF(Type)>(value));
}

/* Apply `change` to a stored value and `value`, by compare-and-exchange. */
template <uhal_scope scope, class Type, class Change>
DEVICE_FUNCTION Type uhal_update(Type *address, Type value, Change change) {
    typedef UHAL_WORD_OF(Type) Word;
    Type seen = atomic_load<scope>(address);
    for (;;) {
        const Type wanted = change(seen, value);
        if (uhal_bits_as<Word>(wanted) == uhal_bits_as<Word>(seen))
            return seen;
        const Type found = atomic_compare_exchange<scope>(address, seen, wanted);
        if (uhal_bits_as<Word>(found) == uhal_bits_as<Word>(seen))
            return seen;
        seen = found;
    }
}

struct uhal_sum {
    template <class Type> DEVICE_METHOD Type operator()(Type one, Type other) const {
        return one + other;
    }
    /* Each sum is rounded once: the sum of two halves is exact in f32. */
    DEVICE_METHOD f16x2 operator()(f16x2 one, f16x2 other) const {
        f16x2 sum;
        sum[0] = f16(f32(one[0]) + f32(other[0]));
        sum[1] = f16(f32(one[1]) + f32(other[1]));
        return sum;
    }
    DEVICE_METHOD bf16x2 operator()(bf16x2 one, bf16x2 other) const {
        bf16x2 sum;
        sum[0] = bf16(f32(one[0]) + f32(other[0]));
        sum[1] = bf16(f32(one[1]) + f32(other[1]));
        return sum;
    }
};
struct uhal_least {
    DEVICE_METHOD f32 operator()(f32 one, f32 other) const { return fminf(one, other); }
    DEVICE_METHOD f64 operator()(f64 one, f64 other) const { return fmin(one, other); }
};
struct uhal_largest {
    DEVICE_METHOD f32 operator()(f32 one, f32 other) const { return fmaxf(one, other); }
    DEVICE_METHOD f64 operator()(f64 one, f64 other) const { return fmax(one, other); }
};

#if defined(__SPIRV__) || !KERNEL_ON_GPU
template <uhal_scope scope, class Float>
DEVICE_FUNCTION Float uhal_fetch_sum(Float *address, Float value) {
    return uhal_update<scope>(address, value, uhal_sum{});
}
#endif

/** Add a number. Integers wrap around. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION Type atomic_add(Type *address, typename uhal_same<Type>::type value) {
    if constexpr (uhal_is_float<Type>::value)
        return uhal_fetch_sum<scope>(address, value);
    else
        return static_cast<Type>(
            uhal_fetch_add<scope>(reinterpret_cast<UHAL_WORD_OF(Type) *>(address),
                                  static_cast<UHAL_WORD_OF(Type)>(value)));
}

/** Add two numbers of 16 bits in one step, each rounded to nearest. f16x2 and bf16x2. */
template <uhal_scope scope = SCOPE_DEVICE>
DEVICE_FUNCTION f16x2 atomic_add(f16x2 *address, f16x2 value) {
    return uhal_update<scope>(address, value, uhal_sum{});
}
template <uhal_scope scope = SCOPE_DEVICE>
DEVICE_FUNCTION bf16x2 atomic_add(bf16x2 *address, bf16x2 value) {
    return uhal_update<scope>(address, value, uhal_sum{});
}

/** Keep the lesser of the old value and `value`; for a NaN and a number, the number. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION Type atomic_min(Type *address, typename uhal_same<Type>::type value) {
    if constexpr (uhal_is_float<Type>::value)
        return uhal_update<scope>(address, value, uhal_least{});
    else
        return uhal_fetch_min<scope>(address, value);
}

/** Keep the greater of the old value and `value`; for a NaN and a number, the number. */
template <uhal_scope scope = SCOPE_DEVICE, class Type>
DEVICE_FUNCTION Type atomic_max(Type *address, typename uhal_same<Type>::type value) {
    if constexpr (uhal_is_float<Type>::value)
        return uhal_update<scope>(address, value, uhal_largest{});
    else
        return uhal_fetch_max<scope>(address, value);
}

#define UHAL_BITWISE(name)                                                                         \
    template <uhal_scope scope = SCOPE_DEVICE, class Type>                                         \
    DEVICE_FUNCTION Type atomic_##name(Type *address, typename uhal_same<Type>::type value) {      \
        static_assert(!uhal_is_float<Type>::value, "bits of integers");                            \
        return static_cast<Type>(                                                                  \
            uhal_fetch_##name<scope>(reinterpret_cast<UHAL_WORD_OF(Type) *>(address),              \
                                     static_cast<UHAL_WORD_OF(Type)>(value)));                     \
    }
/** Keep the bits that are also set in `value`. Integers. */
UHAL_BITWISE(and)
/** Set the bits of `value`. Integers. */
UHAL_BITWISE(or)
/** Flip the bits of `value`. Integers. */
UHAL_BITWISE(xor)
#undef UHAL_BITWISE
#undef UHAL_WORD_OF
#undef UHAL_WORD_OF

/** Make earlier writes of this work-item visible to a scope before its later writes. */
template <uhal_scope scope = SCOPE_DEVICE> DEVICE_FUNCTION void fence() { uhal_fence<scope>(); }

#endif
