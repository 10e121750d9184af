// For CPUs: reductions of contiguous runs, in all lanes of the vector registers, so that the loops
// become vector code although additions may not be reordered.
#ifndef UBRIDGE_REDUCTION_RUNS_H
#define UBRIDGE_REDUCTION_RUNS_H

#include "runs.h"

enum : u64 { SUM_LANES = 32, FEW_LANES = 8 };

// For fewer than SUM_LANES values; filling and joining wide lanes would take most of the time.
template <class C> inline C sum_of_few(u64 count, const C *values)
{
    C lanes[FEW_LANES] = {};
    u64 i = 0;
    for (; i + FEW_LANES <= count; i += FEW_LANES)
        for (u64 lane = 0; lane < FEW_LANES; ++lane)
            lanes[lane] = add(lanes[lane], values[i + lane]);
    C rest = C(0);
    for (; i < count; ++i)
        rest = add(rest, values[i]);
    for (u64 width = FEW_LANES / 2; width > 0; width /= 2)
        for (u64 lane = 0; lane < width; ++lane)
            lanes[lane] = add(lanes[lane], lanes[lane + width]);
    return add(lanes[0], rest);
}

template <class C> __attribute__((noinline)) C sum_of_run(u64 count, const C *values)
{
    if (count < SUM_LANES)
        return sum_of_few(count, values);
    C lanes[SUM_LANES] = {};
    u64 i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES)
        for (u64 lane = 0; lane < SUM_LANES; ++lane)
            lanes[lane] = add(lanes[lane], values[i + lane]);
    for (u64 lane = 0; i + lane < count; ++lane)
        lanes[lane] = add(lanes[lane], values[i + lane]);
    for (u64 width = SUM_LANES / 2; width > 0; width /= 2)
        for (u64 lane = 0; lane < width; ++lane)
            lanes[lane] = add(lanes[lane], lanes[lane + width]);
    return lanes[0];
}

template <class Order, class C> __attribute__((noinline)) C best_of_run(u64 count, const C *values)
{
    C lanes[SUM_LANES];
    for (u64 lane = 0; lane < SUM_LANES; ++lane)
        lanes[lane] = Order::template worst<C>();
    u64 i = 0;
    // Each step of a lane waits for the step before, so it is one instruction: NaN are noted apart.
    Word<C> has_nan[SUM_LANES] = {};
    for (; i + SUM_LANES <= count; i += SUM_LANES)
        for (u64 lane = 0; lane < SUM_LANES; ++lane) {
            const C value = values[i + lane];
            lanes[lane] = Order::better(value, lanes[lane]) ? value : lanes[lane];
            has_nan[lane] |= is_nan(value) ? Word<C>(1) : Word<C>(0);
        }
    if constexpr (!Number<C>::is_integer) {
        Word<C> any = 0;
        for (u64 lane = 0; lane < SUM_LANES; ++lane)
            any |= has_nan[lane];
        for (u64 at = 0; any != 0; ++at)
            if (is_nan(values[at]))
                return values[at];
    }
    for (u64 lane = 0; i + lane < count; ++lane)
        lanes[lane] = Order::of_all(lanes[lane], values[i + lane]);
    for (u64 width = SUM_LANES / 2; width > 0; width /= 2)
        for (u64 lane = 0; lane < width; ++lane)
            lanes[lane] = Order::of_all(lanes[lane], lanes[lane + width]);
    return lanes[0];
}

template <class C, bool compensated>
inline SumOf<C, compensated> state_of_run(SumOf<C, compensated> *, u64 count, const C *values, u64)
{
    // Inlined, since there may be millions of short rows.
    return {count < SUM_LANES ? sum_of_few(count, values) : sum_of_run(count, values), C(0)};
}

template <class C, class Order>
inline Extreme<C, Order> state_of_run(Extreme<C, Order> *, u64 count, const C *values, u64)
{
    return {best_of_run<Order>(count, values)};
}

template <class C, class Order>
inline Place<C, Order> state_of_run(Place<C, Order> *best, u64 count, const C *values, u64 index)
{
    const C value = best_of_run<Order>(count, values);
    // Most runs have no better value than the best so far.
    Place<C, Order> found = *best;
    found.merge({value, index});
    if (found.index != index)
        return Place<C, Order>::initial();
    // Skip whole groups that do not contain the best value.
    const bool nan = is_nan(value);
    u64 i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
        u32 matches = 0;
        for (u64 lane = 0; lane < SUM_LANES; ++lane)
            matches |= u32(nan ? is_nan(values[i + lane]) : values[i + lane] == value);
        if (matches != 0)
            break;
    }
    while (nan ? !is_nan(values[i]) : values[i] != value)
        ++i;
    return {value, index + i};
}

template <class State, class T, class Function>
inline State reduce_runs(Reader<T> &reader, u64 first, u64 count, Function function)
{
    State state = State::initial();
    // A single run needs no merging.
    if constexpr (same_type<Function, Same>)
        if (count > 0 && count <= RUN)
            return state_of_run(&state, count, reader.read(first, count), 0);
    alignas(64) Compute<T> results[same_type<Function, Same> ? 1 : RUN];
    for (u64 i = 0; i < count; i += RUN) {
        const u64 length = count - i < RUN ? count - i : RUN;
        const Compute<T> *values = reader.read(first + i, length);
        if constexpr (!same_type<Function, Same>) {
            apply(length, results, function, values);
            values = results;
        }
        state.merge(state_of_run(&state, length, values, i));
    }
    return state;
}

// Softmax of a row: computes each exponential only once, then divides all by their sum.
template <class C, class Function>
inline void store_shares(u64 count, const C *row, C *out, Function exponential_above)
{
    Sum<C> total = Sum<C>::initial();
    for (u64 i = 0; i < count; i += RUN) {
        const u64 length = count - i < RUN ? count - i : RUN;
        apply(length, out + i, exponential_above, row + i);
        total.merge({sum_of_run(length, out + i), C(0)});
    }
    const C all = total.result();
    UHAL_INDEPENDENT
    for (u64 i = 0; i < count; ++i)
        out[i] /= all;
}

#endif
