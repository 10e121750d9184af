/* Primitives of <uhal/warp.h> on the host. A call covers a whole block, so a step of all lanes is a
 * loop over the block's registers, like a THREADS region. */
#ifndef UHAL_PRIMITIVES_LANES_HOST_H
#define UHAL_PRIMITIVES_LANES_HOST_H

#pragma GCC system_header

DEVICE_FUNCTION u32 uhal_block_threads(BLOCK block) { return block.uhal_threads(); }

/* Lanes of the warp that begins at a thread. */
DEVICE_FUNCTION u32 uhal_lanes_from(BLOCK block, u32 first) {
    const u32 left = block.uhal_threads() - first;
    return left < WARP_LANES ? left : WARP_LANES;
}

template <class Register, class Result, class Source>
DEVICE_FUNCTION void uhal_shuffle(BLOCK block, Register &value, Result &result, Source source) {
    typedef UHAL_VALUE_OF(Register) Type;
    for (u32 first = 0; first < block.uhal_threads(); first += WARP_LANES) {
        const u32 lanes = uhal_lanes_from(block, first);
        Type before[WARP_LANES]; /* `result` may be `value` */
        for (u32 lane = 0; lane < lanes; ++lane)
            before[lane] = value(first + lane);
        for (u32 lane = 0; lane < lanes; ++lane) {
            const u32 from = source(first + lane, lane);
            result(first + lane) = before[from < lanes ? from : lane];
        }
    }
}

template <class Register, class Mask>
DEVICE_FUNCTION void uhal_ballot(BLOCK block, Register &flag, Mask &mask) {
    for (u32 first = 0; first < block.uhal_threads(); first += WARP_LANES) {
        const u32 lanes = uhal_lanes_from(block, first);
        u32 found = 0;
        for (u32 lane = 0; lane < lanes; ++lane)
            found |= u32{flag(first + lane) ? 1U : 0U} << lane;
        for (u32 lane = 0; lane < lanes; ++lane)
            mask(first + lane) = found;
    }
}

/* The same tree of halves as on devices. */
template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    uhal_of_warp(BLOCK block, Register &value, u32 first, Operation operation) {
    typedef UHAL_VALUE_OF(Register) Type;
    const u32 lanes = uhal_lanes_from(block, first);
    Type made[WARP_LANES];
    for (u32 lane = 0; lane < lanes; ++lane)
        made[lane] = value(first + lane);
    for (u32 half = WARP_LANES / 2; half != 0; half /= 2)
        for (u32 lane = 0; lane < half && lane + half < lanes; ++lane)
            made[lane] = operation(made[lane], made[lane + half]);
    return made[0];
}

template <class Register, class Operation>
DEVICE_FUNCTION void uhal_warp_reduce(BLOCK block, Register &value, Operation operation) {
    for (u32 first = 0; first < block.uhal_threads(); first += WARP_LANES) {
        const UHAL_VALUE_OF(Register) all = uhal_of_warp(block, value, first, operation);
        for (u32 lane = 0; lane < uhal_lanes_from(block, first); ++lane)
            value(first + lane) = all;
    }
}

template <class Register, class Operation>
DEVICE_FUNCTION void uhal_warp_scan(BLOCK block, Register &value, Operation operation) {
    for (u32 first = 0; first < block.uhal_threads(); first += WARP_LANES) {
        const u32 lanes = uhal_lanes_from(block, first);
        for (u32 step = 1; step < lanes; step *= 2)
            for (u32 lane = lanes - 1; lane >= step; --lane)
                value(first + lane) = operation(value(first + lane - step), value(first + lane));
    }
}

template <class Register, class Type>
DEVICE_FUNCTION void uhal_shift(BLOCK block, Register &value, Type first_value) {
    for (u32 first = 0; first < block.uhal_threads(); first += WARP_LANES) {
        for (u32 lane = uhal_lanes_from(block, first) - 1; lane != 0; --lane)
            value(first + lane) = value(first + lane - 1);
        value(first) = first_value;
    }
}

template <class Register>
DEVICE_FUNCTION UHAL_VALUE_OF(Register) uhal_block_broadcast(BLOCK, Register &value, u32 thread) {
    return value(thread);
}

template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    uhal_block_reduce(BLOCK block, Register &value, Operation operation) {
    UHAL_VALUE_OF(Register) all = uhal_of_warp(block, value, 0, operation);
    for (u32 first = WARP_LANES; first < block.uhal_threads(); first += WARP_LANES)
        all = operation(all, uhal_of_warp(block, value, first, operation));
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
    uhal_warp_scan(block, value, operation);
    for (u32 first = WARP_LANES; first < block.uhal_threads(); first += WARP_LANES)
        for (u32 lane = 0; lane < uhal_lanes_from(block, first); ++lane)
            value(first + lane) = operation(value(first - 1), value(first + lane));
    BARRIER();
    return value(block.uhal_threads() - 1);
}

template <class Register, class Operation>
DEVICE_FUNCTION UHAL_VALUE_OF(Register)
    uhal_block_scan(BLOCK block, Register &value, Operation operation,
                    uhal_exclusive<UHAL_VALUE_OF(Register)> exclusive) {
    const UHAL_VALUE_OF(Register) all = uhal_block_scan(block, value, operation, uhal_inclusive{});
    for (u32 thread = block.uhal_threads() - 1; thread != 0; --thread)
        value(thread) = operation(exclusive.first, value(thread - 1));
    value(0) = exclusive.first;
    return all;
}

template <class Register> DEVICE_FUNCTION u32 uhal_block_count(BLOCK block, Register &flag) {
    u32 count = 0;
    for (u32 thread = 0; thread < block.uhal_threads(); ++thread)
        count += flag(thread) ? 1 : 0;
    BARRIER();
    return count;
}

#endif
