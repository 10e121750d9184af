/* Primitives of <uhal/warp.h> on devices. Each work-item calls these functions, all work-items of a
 * block together. The device defines `uhal_word_of_lane` and `uhal_lanes_where`. */
#ifndef UHAL_PRIMITIVES_LANES_H
#define UHAL_PRIMITIVES_LANES_H

DEVICE_FUNCTION u32 uhal_block_threads(BLOCK) { return blockDim.x * blockDim.y * blockDim.z; }
DEVICE_FUNCTION u32 uhal_lane() { return uhal_thread() & 31U; }

/* Lanes of this work-item's warp. */
DEVICE_FUNCTION u32 uhal_lanes(BLOCK block) {
    const u32 left = uhal_block_threads(block) - (uhal_thread() & ~31U);
    return left < WARP_LANES ? left : WARP_LANES;
}

/* A value of any size, in words. */
template <class Type> DEVICE_FUNCTION Type uhal_of_lane(const Type &value, u32 lane, u32 lanes) {
    constexpr u32 count = (sizeof(Type) + 3) / 4;
    u32 words[count] = {};
    memcpy(words, &value, sizeof(Type));
#pragma unroll
    for (u32 index = 0; index < count; ++index)
        words[index] = uhal_word_of_lane(words[index], lane, lanes);
    Type found;
    memcpy(&found, words, sizeof(Type));
    return found;
}

template <class Register, class Result, class Source>
DEVICE_FUNCTION void uhal_shuffle(BLOCK block, Register &value, Result &result, Source source) {
    const u32 lanes = uhal_lanes(block);
    const u32 lane = uhal_lane();
    const u32 from = source(uhal_thread(), lane);
    result(0) = uhal_of_lane(value(0), from < lanes ? from : lane, lanes);
}

template <class Register, class Mask>
DEVICE_FUNCTION void uhal_ballot(BLOCK block, Register &flag, Mask &mask) {
    mask(0) = uhal_lanes_where(flag(0) ? true : false, uhal_lanes(block));
}

/* A tree of halves; the first lane gets the total. */
template <class Type, class Operation>
DEVICE_FUNCTION Type uhal_of_warp(BLOCK block, Type value, Operation operation) {
    const u32 lanes = uhal_lanes(block);
    const u32 lane = uhal_lane();
#pragma unroll
    for (u32 half = WARP_LANES / 2; half != 0; half /= 2) {
        const u32 from = lane + half < lanes ? lane + half : lane;
        const Type other = uhal_of_lane(value, from, lanes);
        if (from != lane)
            value = operation(value, other);
    }
    return value;
}

template <class Register, class Operation>
DEVICE_FUNCTION void uhal_warp_reduce(BLOCK block, Register &value, Operation operation) {
    value(0) = uhal_of_lane(uhal_of_warp(block, value(0), operation), 0, uhal_lanes(block));
}

template <class Register, class Operation>
DEVICE_FUNCTION void uhal_warp_scan(BLOCK block, Register &value, Operation operation) {
    typedef UHAL_VALUE_OF(Register) Type;
    const u32 lanes = uhal_lanes(block);
    const u32 lane = uhal_lane();
    Type made = value(0);
#pragma unroll
    for (u32 step = 1; step < WARP_LANES; step *= 2) {
        const Type before = uhal_of_lane(made, lane < step ? lane : lane - step, lanes);
        if (lane >= step)
            made = operation(before, made);
    }
    value(0) = made;
}

template <class Register, class Type>
DEVICE_FUNCTION void uhal_shift(BLOCK block, Register &value, Type first) {
    const u32 lane = uhal_lane();
    const Type before = uhal_of_lane(value(0), lane == 0 ? 0 : lane - 1, uhal_lanes(block));
    value(0) = lane == 0 ? first : before;
}

template <class Register>
DEVICE_FUNCTION UHAL_VALUE_OF(Register) uhal_block_broadcast(BLOCK, Register &value, u32 thread) {
    typedef UHAL_VALUE_OF(Register) Type;
    SHARED(Type, given, 1);
    if (uhal_thread() == thread)
        given[0] = value(0);
    BARRIER();
    const Type found = given[0];
    BARRIER();
    return found;
}

/* Intel's runtime for CPUs reorders the additions of a plain loop if the block's size is no
 * multiple of 16. A volatile counter prevents that. */
#if defined(__SPIRV__)
#define UHAL_IN_ORDER volatile u32
#else
#define UHAL_IN_ORDER u32
#endif

/* Every work-item combines the values of all warps in the warps' order. */
template <class Type, class Operation>
DEVICE_FUNCTION Type uhal_of_warps(BLOCK block, const Type *values, u32 count,
                                   Operation operation) {
    (void)block;
    Type all = values[0];
    ROLLED for (UHAL_IN_ORDER warp = 1; warp < count; warp = warp + 1)
        all = operation(all, values[warp]);
    return all;
}

template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    uhal_block_reduce(BLOCK block, Register &value, Operation operation) {
    typedef UHAL_VALUE_OF(Register) Type;
    SHARED(Type, of_warps, MAX_THREADS / 32);
    const Type mine = uhal_of_warp(block, value(0), operation);
    if (uhal_lane() == 0)
        of_warps[uhal_thread() / WARP_LANES] = mine;
    BARRIER();
    const u32 warps = (uhal_block_threads(block) + WARP_LANES - 1) / WARP_LANES;
    const Type all = uhal_of_warps(block, of_warps, warps, operation);
    BARRIER();
    return all;
}

struct uhal_inclusive {};
template <class Type> struct uhal_exclusive {
    Type first;
};

template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    uhal_block_scan(BLOCK block, Register &value, Operation operation, uhal_inclusive) {
    typedef UHAL_VALUE_OF(Register) Type;
    SHARED(Type, of_warps, MAX_THREADS / 32);
    uhal_warp_scan(block, value, operation);
    const u32 warp = uhal_thread() / WARP_LANES;
    if (uhal_lane() == uhal_lanes(block) - 1)
        of_warps[warp] = value(0);
    BARRIER();
    if (warp != 0)
        value(0) = operation(uhal_of_warps(block, of_warps, warp, operation), value(0));
    const u32 warps = (uhal_block_threads(block) + WARP_LANES - 1) / WARP_LANES;
    const Type all = uhal_of_warps(block, of_warps, warps, operation);
    BARRIER();
    return all;
}

template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    uhal_block_scan(BLOCK block, Register &value, Operation operation,
                    uhal_exclusive<UHAL_VALUE_OF(Register)> exclusive) {
    typedef UHAL_VALUE_OF(Register) Type;
    SHARED(Type, last_of_warps, MAX_THREADS / 32);
    const Type all = uhal_block_scan(block, value, operation, uhal_inclusive{});
    const u32 warp = uhal_thread() / WARP_LANES;
    if (uhal_lane() == uhal_lanes(block) - 1)
        last_of_warps[warp] = value(0);
    uhal_shift(block, value, value(0));
    BARRIER();
    if (uhal_lane() == 0 && warp != 0)
        value(0) = last_of_warps[warp - 1];
    value(0) = uhal_thread() == 0 ? exclusive.first : operation(exclusive.first, value(0));
    BARRIER();
    return all;
}

template <class Register> DEVICE_FUNCTION u32 uhal_block_count(BLOCK block, Register &flag) {
    uhal_register<u32> one;
    one(0) = flag(0) ? 1 : 0;
    return uhal_block_reduce(block, one, Add());
}

#undef UHAL_IN_ORDER

#endif
