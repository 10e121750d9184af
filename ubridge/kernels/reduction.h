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

#include "elementwise.h"

template <class C, bool compensated> struct SumOf {
    C value;
    C lost;

    DEVICE_METHOD static SumOf initial() { return {C(0), C(0)}; }
    DEVICE_METHOD void step(C x, u64) { merge({x, C(0)}); }
    DEVICE_METHOD void merge(const SumOf &other)
    {
        if constexpr (compensated && !Number<C>::is_integer) {
            // Knuth's two-sum: what `sum` misses, exactly.
            const C sum = value + other.value;
            const C part = sum - value;
            const C rest = (value - (sum - part)) + (other.value - part);
            lost += other.lost + rest;
            value = sum;
        } else {
            value = add(value, other.value);
        }
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

#if KERNEL_ON_GPU

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
