// Reductions of a row of values by one block: the running result (a State), adding a value to it
// and joining two States.
//
//     Sum         compensated: the rounding errors are summed, too; PlainSum is not
//     Largest, Smallest        a NaN if there is one
//     PlaceOfLargest, PlaceOfSmallest      the first of the equal ones; the first NaN if there is
// one
//
// `stored` is the reduction's output. A place is an index in the last dim; without any value it is
// the highest u32.
//
// A State has no constructor, because shared memory is made of them.
#ifndef UBRIDGE_REDUCTION_H
#define UBRIDGE_REDUCTION_H

#include <math.h>

#include "elementwise.h"

template <class C, bool compensated> struct SumOf {
    C value;
    C lost;

    DEVICE_METHOD static SumOf initial() { return {C(0), C(0)}; }
    static constexpr bool keeps_lost = compensated && !Number<C>::is_integer;

    DEVICE_METHOD void step(C x, u64)
    {
        if constexpr (keeps_lost)
            lost += take(x);
        else
            value = add(value, x);
    }
    DEVICE_METHOD void merge(const SumOf &other)
    {
        if constexpr (keeps_lost)
            lost += other.lost + take(other.value);
        else
            value = add(value, other.value);
    }
    // Adds x to the value; returns the exact rounding error (Knuth's two-sum).
    DEVICE_METHOD C take(C x)
    {
        const C sum = value + x;
        const C part = sum - value;
        const C rest = (value - (sum - part)) + (x - part);
        value = sum;
        return rest;
    }
    DEVICE_METHOD C result() const
    {
        // The rounding error of an infinity is NaN; ignore it.
        const C both = add(value, lost);
        return is_nan(both) ? value : both;
    }
    DEVICE_METHOD C stored(u64) const { return result(); }
};

struct Above {
    template <class C> DEVICE_METHOD static bool better(C a, C b) { return a > b; }
    template <class C> DEVICE_METHOD static C of_all(C a, C b) { return maximum(a, b); }
    template <class C> DEVICE_METHOD static C worst()
    {
        if constexpr (Number<C>::is_integer)
            return Limits<C>::lowest;
        else
            return -C(INFINITY);
    }
};

struct Below {
    template <class C> DEVICE_METHOD static bool better(C a, C b) { return a < b; }
    template <class C> DEVICE_METHOD static C of_all(C a, C b) { return minimum(a, b); }
    template <class C> DEVICE_METHOD static C worst()
    {
        if constexpr (Number<C>::is_integer)
            return Limits<C>::highest;
        else
            return C(INFINITY);
    }
};

template <class C, class Order> struct Extreme {
    C value;

    DEVICE_METHOD static Extreme initial() { return {Order::template worst<C>()}; }
    DEVICE_METHOD void step(C x, u64) { value = Order::of_all(value, x); }
    DEVICE_METHOD void merge(const Extreme &other) { value = Order::of_all(value, other.value); }
    DEVICE_METHOD C result() const { return value; }
    DEVICE_METHOD C stored(u64) const { return value; }
};

// fmax is one instruction; it prefers a number to a NaN.
DEVICE_FUNCTION f32 larger_number(f32 a, f32 b)
{
    return fmaxf(a, b);
}
DEVICE_FUNCTION f64 larger_number(f64 a, f64 b)
{
    return fmax(a, b);
}

// The largest number of a row, ignoring NaN: callers detect NaN in another way.
template <class C> struct LargestNumber {
    C value;

    DEVICE_METHOD static LargestNumber initial() { return {-C(INFINITY)}; }
    DEVICE_METHOD void step(C x, u64) { value = larger_number(value, x); }
    DEVICE_METHOD void merge(const LargestNumber &other) { step(other.value, 0); }
    DEVICE_METHOD C result() const { return value; }
};

template <class C, class Order> struct Place {
    C value;
    u64 index;

    enum : u64 { NOWHERE = ~u64(0) };

    DEVICE_METHOD static Place initial() { return {Order::template worst<C>(), NOWHERE}; }
    DEVICE_METHOD void step(C x, u64 at) { merge({x, at}); }
    DEVICE_METHOD void merge(const Place &other)
    {
        const bool better = Order::better(other.value, value) || (is_nan(other.value) && !is_nan(value));
        const bool equal = other.value == value || (is_nan(other.value) && is_nan(value));
        if (better || (equal && other.index < index))
            *this = other;
    }
    DEVICE_METHOD u32 stored(u64 last_dim) const
    {
        return u32(index == NOWHERE ? index : index % last_dim);
    }
};

template <class C> using Sum = SumOf<C, true>;
template <class C> using PlainSum = SumOf<C, false>;
template <class C> using Largest = Extreme<C, Above>;
template <class C> using Smallest = Extreme<C, Below>;
template <class C> using PlaceOfLargest = Place<C, Above>;
template <class C> using PlaceOfSmallest = Place<C, Below>;

struct Same {
    template <class C> DEVICE_METHOD C operator()(C x) const { return x; }
};

#if KERNEL_ON_GPU && !defined(__CUDACC__)


// The reduction of function(row[first]) … function(row[first + count - 1]), for every work-item.
template <class State, class T, class Function>
DEVICE_FUNCTION State reduce_row(BLOCK block, const Operand<T> &row, u64 first, u64 count,
                                 Function function)
{
    SHARED(State, states, MAX_THREADS);
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    THREADS_OF(block, t) {
        State state = State::initial();
        ROLLED for (u64 i = t; i < count; i += threads)
            state.step(function(widen(row[first + i])), i);
        states[t] = state;
    }
    BARRIER();
    ROLLED for (u32 left = threads; left > 1;) {
        const u32 half = (left + 1) / 2;
        THREADS_OF(block, t) {
            if (t + half < left)
                states[t].merge(states[t + half]);
        }
        BARRIER();
        left = half;
    }
    const State all = states[0];
    BARRIER();
    return all;
}

// out[i] = function(operands[i]...) for every i below count.
template <class Out, class Function, class... In>
DEVICE_FUNCTION void map_row(BLOCK block, u64 count, Out *out, Function function,
                             const Operand<In> &...operands)
{
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    THREADS_OF(block, t) {
        for (u64 i = t; i < count; i += threads)
            out[i] = narrow<Out>(function(widen(operands[i])...));
    }
}

#elif KERNEL_ON_GPU

#include <uhal/warp.h>

// States in shared memory, word by word, so that neighbors lie in different banks.
template <class State, u32 count> struct SharedStates {
    static constexpr u32 WORDS = (sizeof(State) + 3) / 4;
    u32 words[WORDS][count];

    DEVICE_METHOD void set(u32 at, const State &state)
    {
        u32 parts[WORDS] = {};
        memcpy(parts, &state, sizeof state);
        for (u32 n = 0; n < WORDS; ++n)
            words[n][at] = parts[n];
    }
    DEVICE_METHOD State get(u32 at) const
    {
        u32 parts[WORDS];
        for (u32 n = 0; n < WORDS; ++n)
            parts[n] = words[n][at];
        State state;
        memcpy(&state, parts, sizeof state);
        return state;
    }
};

// The state of the lane `distance` below, or any state if that lane does not exist.
template <class State>
DEVICE_FUNCTION State state_below(const State &state, u32 distance, u32 all_lanes)
{
    constexpr u32 WORDS = (sizeof(State) + 3) / 4;
    u32 words[WORDS] = {};
    memcpy(words, &state, sizeof state);
    for (u32 n = 0; n < WORDS; ++n)
        words[n] = __shfl_down_sync(all_lanes, words[n], distance);
    State other;
    memcpy(&other, words, sizeof other);
    return other;
}

// Merges the states of a block, for every work-item: first in each warp, then of all warps.
template <class State, class Register>
DEVICE_FUNCTION State of_block(BLOCK block, Register &state)
{
    typedef SharedStates<State, MAX_THREADS / WARP_LANES> States;
    SHARED(States, of_warps, 1);
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    const u32 lanes = uhal_lanes(block), lane = uhal_lane();
    const u32 all_lanes = ~u32(0) >> (WARP_LANES - lanes);
    u32 states = WARP_LANES;
    ROLLED for (u32 warps = threads;;) {
        ROLLED for (u32 half = WARP_LANES / 2; half != 0; half /= 2) {
            if (half >= states)
                continue;
            const State other = state_below(state(0), half, all_lanes);
            if (lane + half < lanes)
                state(0).merge(other);
        }
        warp_shuffle(block, state, 0, state);
        if (warps <= WARP_LANES)
            return state(0);
        warps = (threads + WARP_LANES - 1) / WARP_LANES;
        states = warps;
        THREADS_OF(block, t) {
            if (t % WARP_LANES == 0)
                of_warps[0].set(t / WARP_LANES, state(t));
        }
        BARRIER();
        // Each warp merges the states of all warps, so that no warp waits for the result.
        THREADS_OF(block, t) {
            const u32 left = threads - t / WARP_LANES * WARP_LANES;
            State all = State::initial();
            ROLLED for (u32 warp = t % WARP_LANES; warp < warps;
                        warp += left < WARP_LANES ? left : WARP_LANES)
                all.merge(of_warps[0].get(warp));
            state(t) = all;
        }
        BARRIER();
    }
}

// Types whose rows are loaded in vectors. Code for all types would be long.
template <class T> constexpr bool loads_vectors =
    sizeof(T) == 4 || (!Number<T>::is_integer && sizeof(T) == 2);

// The reduction of function(row[first]) … function(row[first + count - 1]), for every work-item.
template <class State, class T, class Function>
DEVICE_FUNCTION State reduce_row(BLOCK block, const Operand<T> &row, u64 first, u64 count,
                                 Function function)
{
    constexpr u32 EACH = vector_length<T>;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    REGISTER_OF(block, State, state, MAX_THREADS);
    THREADS_OF(block, t) {
        State own = State::initial();
        u64 done = 0;
        if (loads_vectors<T> && row.contiguous && misalignment<EACH>(row.data + first) == 0) {
            done = count & ~u64(EACH - 1);
            ROLLED for (u64 i = u64(t) * EACH; i < done; i += threads * EACH) {
                const vec<T, EACH> values = load_vector<EACH>(row.data + first + i);
                for (u32 n = 0; n < EACH; ++n)
                    own.step(function(widen(values[n])), i + n);
            }
        }
        ROLLED for (u64 i = done + t; i < count; i += threads)
            own.step(function(widen(row[first + i])), i);
        state(t) = own;
    }
    return of_block<State>(block, state);
}

// out[i] = function(operands[i]...) for every i below count; operands are contiguous.
template <class Out, class Function, class... In>
DEVICE_FUNCTION void map_row(BLOCK block, u64 count, Out *out, Function function,
                             const Operand<In> &...operands)
{
    constexpr u32 EACH = vector_length<Out, In...>;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    THREADS_OF(block, t) {
        u64 done = 0;
        if ((misalignment<EACH>(out) | ... | misalignment<EACH>(operands.data)) == 0) {
            done = count & ~u64(EACH - 1);
            // Long functions of f64 at once would take too many registers.
            constexpr bool in_turn = is_long<Function> && widest<Out, In...> == 8;
            ROLLED for (u64 i = u64(t) * EACH; i < done; i += threads * EACH) {
                const auto results_of = [&](const vec<In, EACH> &...values) {
                    if constexpr (in_turn)
                        return applied_in_turn<Out>(function, values...);
                    else
                        return applied<Out>(function, values...);
                };
                store_vector(out + i, results_of(load_vector<EACH>(operands.data + i)...));
            }
        }
        ROLLED for (u64 i = done + t; i < count; i += threads)
            out[i] = narrow<Out>(function(widen(operands.data[i])...));
    }
}

// A sum in one word, which a warp passes on at once.
template <class C> struct QuickSum {
    C value;

    DEVICE_METHOD static QuickSum initial() { return {C(0)}; }
    DEVICE_METHOD void step(C x, u64) { value += x; }
    DEVICE_METHOD void merge(const QuickSum &other) { value += other.value; }
    DEVICE_METHOD C result() const { return value; }
};

// The sum of values, in a tree.
template <u32 count, class C> DEVICE_FUNCTION C plain_sum(const C *values)
{
    if constexpr (count == 1)
        return values[0];
    else
        return plain_sum<count / 2>(values) + plain_sum<count - count / 2>(values + count / 2);
}

// A contiguous row in the registers of a block: it is read once, however often it is reduced.
template <class T> struct HeldRow {
    typedef Compute<T> C;
    static constexpr u32 EACH = vector_length<T>;
    static constexpr u32 HELD = 32;

    C values[HELD];
    u32 count;
    // Elements from a vector of a work-item to its next.
    u32 step;

    // Rows of f64 would take too many registers.
    template <class... Others>
    DEVICE_METHOD static bool fits(BLOCK, u64 count, const Others *...memory)
    {
        const u64 odd = (misalignment<EACH>(memory) | ... | (count & (EACH - 1)));
        return sizeof(T) < 8 && odd == 0 &&
               count <= u64(HELD) * blockDim.x * blockDim.y * blockDim.z;
    }

    // body(index of a value, index in the row) for the values that exist.
    template <class Body> DEVICE_METHOD void each_vector(u32 t, Body body) const
    {
        for (u32 n = 0; n < HELD; n += EACH) {
            const u32 at = n / EACH * step + t * EACH;
            if (at < count)
                body(n, at);
        }
    }

    DEVICE_METHOD HeldRow(BLOCK block, u64 length, const T *src)
        : count(u32(length)), step(blockDim.x * blockDim.y * blockDim.z * EACH)
    {
        // Hides from nvcc how count and step are computed: it would compute both anew for every
        // vector.
        asm("" : "+r"(count), "+r"(step));
        keep_sum(src);
        THREADS_OF(block, t) {
            each_vector(t, [&](u32 first, u32 at) {
                const vec<T, EACH> loaded = load_vector<EACH>(src + at);
                for (u32 n = 0; n < EACH; ++n)
                    values[first + n] = widen(loaded[n]);
            });
        }
    }

    // value(x) is a step's value; it may change x, which stays in the row.
    template <class State, class Value> DEVICE_METHOD State reduce(BLOCK block, Value value)
    {
        REGISTER_OF(block, State, state, MAX_THREADS);
        THREADS_OF(block, t) {
            State own = State::initial();
            each_vector(t, [&](u32 first, u32) {
                for (u32 n = 0; n < EACH; ++n)
                    own.step(value(values[first + n]), 0);
            });
            state(t) = own;
        }
        return of_block<State>(block, state);
    }

    // The sum of value(x). Groups of `together` values are added plainly, the groups' sums by State.
    template <u32 together, class State, class Value> DEVICE_METHOD C sum(BLOCK block, Value value)
    {
        REGISTER_OF(block, State, state, MAX_THREADS);
        THREADS_OF(block, t) {
            State own = State::initial();
            each_vector(t, [&](u32 first, u32) {
                C parts[EACH];
                for (u32 n = 0; n < EACH; ++n)
                    parts[n] = value(values[first + n]);
                for (u32 n = 0; n < EACH; n += together)
                    own.step(plain_sum<together>(parts + n), 0);
            });
            state(t) = own;
        }
        return of_block<State>(block, state).result();
    }

    // dst[i] = function(value, others[i]...).
    template <class Function, class... In>
    DEVICE_METHOD void store(BLOCK block, T *dst, Function function, const In *...others) const
    {
        keep_sum(dst);
        THREADS_OF(block, t) {
            each_vector(t, [&](u32 first, u32 at) {
                vec<T, EACH> results;
                store_results(results, first, function, load_vector<EACH>(others + at)...);
                store_vector(dst + at, results);
            });
        }
    }

  private:
    // Hides from nvcc how an address is computed, for the same reason.
    template <class Element> DEVICE_METHOD static void keep_sum(Element *&address)
    {
        u64 global = __cvta_generic_to_global(address);
        asm("" : "+l"(global));
        address = static_cast<Element *>(__cvta_global_to_generic(global));
    }

    template <class Function, class... Vectors>
    DEVICE_METHOD void store_results(vec<T, EACH> &results, u32 first, Function function,
                                     const Vectors &...others) const
    {
        for (u32 n = 0; n < EACH; ++n)
            results[n] = narrow<T>(function(values[first + n], widen(others[n])...));
    }
};

#else

#include "reduction_runs.h"

template <class State, class T, class Function>
DEVICE_FUNCTION State reduce_row(BLOCK, const Operand<T> &row, u64 first, u64 count,
                                 Function function)
{
    Reader<T> reader(row);
    return reduce_runs<State>(reader, first, count, function);
}

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map_row(BLOCK, u64 count, Out *out, Function function,
                             const Operand<In> &...operands)
{
    apply_to_row(count, out, function, Reader<In>(operands)...);
}

#endif

#endif
