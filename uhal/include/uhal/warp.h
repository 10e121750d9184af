/** Cooperation of the work-items of a warp and a block.
 *
 * A warp is 32 work-items of a block side by side, on every target: WARP_LANES. On AMD devices with
 * wavefronts of 64 each half is a warp; on OpenCL devices lanes exchange values in shared memory;
 * on the host the lanes of a warp are the elements of a loop. The last warp of a block may have
 * fewer lanes.
 *
 * These functions stand between THREADS regions, as BARRIER() does, and work on a REGISTER: each
 * work-item's own value. Their first argument is the block, THIS_BLOCK in a kernel. Sums and
 * products of floats are made in the same order on every target, so their bits are the same too.
 *
 *     REGISTER(f32, sum, MAX_THREADS);
 *     THREADS(t) { sum(t) = x[first + t]; }
 *     const f32 total = block_reduce(THIS_BLOCK, sum, Add());
 *     THREADS(t) { if (t == 0) y[blockIdx.x] = total; }
 *
 * Operations are Add, Multiply, Min, Max, And, Or, Xor, or a struct of your own with an
 * `operator()(a, b)` that is a DEVICE_METHOD and const; it must be associative. Values have 1, 2,
 * 4, 8 or any multiple of 4 bytes. Functions of a block wait for all of it, as BARRIER() does;
 * functions of a warp order no memory.
 */
#ifndef UHAL_WARP_H
#define UHAL_WARP_H

#include <uhal/atomics.h>

/** Work-items of a warp. */
#define WARP_LANES 32u

/* The type of a register's values. */
template <class Other> struct uhal_value {
    static constexpr bool is_register = false;
};
#if KERNEL_ON_GPU
template <class Type> struct uhal_value<uhal_register<Type>> {
    static constexpr bool is_register = true;
    typedef Type type;
};
#else
template <class Type, u32 count> struct uhal_value<::uhal::Register<Type, count>> {
    static constexpr bool is_register = true;
    typedef Type type;
};
#endif
#define UHAL_VALUE_OF(Register) typename uhal_value<Register>::type

/* 16-bit floats are computed with in f32. */
template <class Type> struct uhal_wide {
    typedef Type type;
};
template <> struct uhal_wide<f16> {
    typedef f32 type;
};
template <> struct uhal_wide<bf16> {
    typedef f32 type;
};

#define UHAL_OPERATION(name, expression)                                                           \
    struct name {                                                                                  \
        template <class Type> DEVICE_METHOD Type operator()(Type one, Type other) const {          \
            const typename uhal_wide<Type>::type a = one, b = other;                               \
            return Type(expression);                                                               \
        }                                                                                          \
    };
/** The sum. */
UHAL_OPERATION(Add, a + b)
/** The product. */
UHAL_OPERATION(Multiply, a *b)
/** The minimum; for a NaN and a number, the number. */
UHAL_OPERATION(Min, b < a || a != a ? b : a)
/** The maximum; for a NaN and a number, the number. */
UHAL_OPERATION(Max, b > a || a != a ? b : a)
/** The bits set in both values. */
UHAL_OPERATION(And, a &b)
/** The bits set in either value. */
UHAL_OPERATION(Or, a | b)
/** The bits set in exactly one value. */
UHAL_OPERATION(Xor, a ^ b)
#undef UHAL_OPERATION

/* A number shared by all work-items, or a register of numbers. */
template <class Source> DEVICE_FUNCTION u32 uhal_number_of(const Source &source, u32 thread) {
    if constexpr (uhal_value<Source>::is_register)
        return source(thread);
    else
        return static_cast<u32>(source);
}

#if KERNEL_ON_GPU
#include <uhal/primitives/lanes.h>
#else
#include <uhal/primitives/lanes_host.h>
#endif

/** Give each lane another lane's value: `result(t)` is lane `source`'s value in t's warp. `source`
 * is a number below 32 or a REGISTER of such numbers. If the block lacks the source lane, a lane
 * keeps its own value. */
template <class Register, class Source, class Result>
DEVICE_FUNCTION void warp_shuffle(BLOCK block, Register &value, const Source &source,
                                  Result &result) {
    uhal_shuffle(block, value, result,
                 [&](u32 thread, u32) { return uhal_number_of(source, thread) & 31U; });
}

/** Give each lane the value `distance` lanes before it; the first lanes keep their own. */
template <class Register, class Result>
DEVICE_FUNCTION void warp_shuffle_up(BLOCK block, Register &value, u32 distance, Result &result) {
    uhal_shuffle(block, value, result,
                 [&](u32, u32 lane) { return lane < distance ? lane : lane - distance; });
}

/** Give each lane the value `distance` lanes after it; the last lanes keep their own. */
template <class Register, class Result>
DEVICE_FUNCTION void warp_shuffle_down(BLOCK block, Register &value, u32 distance, Result &result) {
    uhal_shuffle(block, value, result, [&](u32, u32 lane) {
        return lane + distance < WARP_LANES ? lane + distance : lane;
    });
}

/** Give each lane the value of the lane whose number differs in the bits of `mask`. */
template <class Register, class Result>
DEVICE_FUNCTION void warp_shuffle_xor(BLOCK block, Register &value, u32 mask, Result &result) {
    uhal_shuffle(block, value, result, [&](u32, u32 lane) { return (lane ^ mask) & 31U; });
}

/** Give each lane its warp's bit mask of true `flag`s: `mask` is a REGISTER of u32. */
template <class Register, class Mask>
DEVICE_FUNCTION void warp_ballot(BLOCK block, Register &flag, Mask &mask) {
    uhal_ballot(block, flag, mask);
}

/** Combine the values of a warp; every lane gets the result in place of its own. */
template <class Register, class Operation>
DEVICE_FUNCTION void warp_reduce(BLOCK block, Register &value, Operation operation) {
    uhal_warp_reduce(block, value, operation);
}

/** Combine the values of each lane and all earlier lanes of the warp, in place. */
template <class Register, class Operation>
DEVICE_FUNCTION void warp_scan(BLOCK block, Register &value, Operation operation) {
    uhal_warp_scan(block, value, operation);
}

/** Combine the values of all earlier lanes of the warp, in place; the first lane gets `first`. */
template <class Register, class Operation>
DEVICE_FUNCTION void warp_scan_exclusive(BLOCK block, Register &value, Operation operation,
                                         UHAL_VALUE_OF(Register) first) {
    uhal_warp_scan(block, value, operation);
    uhal_shift(block, value, first);
}

/** Return the value of one work-item to all of the block. */
template <class Register>
DEVICE_FUNCTION UHAL_VALUE_OF(Register) block_broadcast(BLOCK block, Register &value, u32 thread) {
    return uhal_block_broadcast(block, value, thread);
}

/** Combine the values of a block; return the result to all. */
template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    block_reduce(BLOCK block, Register &value, Operation operation) {
    return uhal_block_reduce(block, value, operation);
}

/** Combine the values of each work-item and all earlier ones in the block, in place; return the total. */
template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    block_scan(BLOCK block, Register &value, Operation operation) {
    return uhal_block_scan(block, value, operation, uhal_inclusive{});
}

/** Combine the values of all earlier work-items of the block, in place; the first gets `first`.
 * Returns the combination of all values, without `first`. */
template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    block_scan_exclusive(BLOCK block, Register &value, Operation operation,
                         UHAL_VALUE_OF(Register) first) {
    return uhal_block_scan(block, value, operation, uhal_exclusive<UHAL_VALUE_OF(Register)>{first});
}

/** Return the number of work-items of the block with a true `flag`. */
template <class Register> DEVICE_FUNCTION u32 block_count(BLOCK block, Register &flag) {
    return uhal_block_count(block, flag);
}

/** Whether any work-item of the block has a true `flag`. */
template <class Register> DEVICE_FUNCTION bool block_any(BLOCK block, Register &flag) {
    return uhal_block_count(block, flag) != 0;
}

/** Whether all work-items of the block have a true `flag`. */
template <class Register> DEVICE_FUNCTION bool block_all(BLOCK block, Register &flag) {
    return uhal_block_count(block, flag) == uhal_block_threads(block);
}

#endif
