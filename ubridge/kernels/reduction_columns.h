// For CPUs: reductions of neighboring columns together. The next result's values may be closer in
// memory than the next value of the same result, as in a sum over the first dim of a matrix. In
// this case, reading one column after the other would fetch every cache line many times.
#ifndef UBRIDGE_REDUCTION_COLUMNS_H
#define UBRIDGE_REDUCTION_COLUMNS_H

#include "reduction_runs.h"

// Number of columns taken together, and number of rows added in the computed type before a
// compensated addition.
enum : u64 { COLUMNS = 256, STEP = 16 };

template <class T> struct ColumnGroups {
    Layout kept;
    Layout reduced;
    const T *src;

    // The reduced dims come last; the product of their lengths is `count`.
    ColumnGroups(const Operand<T> &operand, u64 count) : kept(operand.layout), src(operand.data)
    {
        u64 found = 1;
        while (kept.num_dims > 0 && found < count)
            found *= kept.dims[--kept.num_dims];
        const u64 dims = operand.layout.num_dims - kept.num_dims;
        reduced = {dims, kept.dims + kept.num_dims, kept.strides + kept.num_dims};
    }

    u64 width() const { return kept.dims[kept.num_dims - 1]; }
    u64 step() const { return kept.strides[kept.num_dims - 1]; }

    bool worthwhile() const
    {
        return kept.num_dims > 0 && reduced.num_dims > 0 && width() >= STEP &&
               step() < reduced.strides[reduced.num_dims - 1];
    }

    // `columns` values of reduced row `row`, beginning at `place`.
    const Compute<T> *read(u64 place, u64 row, u64 columns, Compute<T> *buffer) const
    {
        const T *values = src + place + reduced.at(row);
        if constexpr (computes_itself<T>)
            if (step() == 1)
                return values;
        const u64 stride = step();
        for (u64 i = 0; i < columns; ++i)
            buffer[i] = widen(values[i * stride]);
        return buffer;
    }
};

template <class C, bool compensated, class Read>
inline void merge_rows(SumOf<C, compensated> *states, u64 columns, u64 first, u64 rows, Read read)
{
    alignas(64) C sums[COLUMNS] = {};
    for (u64 row = first; row < first + rows; ++row) {
        const C *values = read(row);
        for (u64 i = 0; i < columns; ++i)
            sums[i] = add(sums[i], values[i]);
    }
    for (u64 i = 0; i < columns; ++i)
        states[i].merge({sums[i], C(0)});
}

// The states of extremes and places.
template <class State, class Read>
inline void merge_rows(State *states, u64 columns, u64 first, u64 rows, Read read)
{
    for (u64 row = first; row < first + rows; ++row) {
        const auto *values = read(row);
        for (u64 i = 0; i < columns; ++i)
            states[i].step(values[i], row);
    }
}

// Places. Most rows have no better value than the best so far, which vectors find out; only columns
// that do have one are then taken row by row.
template <class C, class Order, class Read>
inline void merge_rows(Place<C, Order> *states, u64 columns, u64 first, u64 rows, Read read)
{
    alignas(64) C best[COLUMNS];
    alignas(64) Word<C> has_nan[COLUMNS] = {};
    u64 changed[COLUMNS], count = 0;
    for (u64 i = 0; i < columns; ++i)
        best[i] = Order::template worst<C>();
    for (u64 row = first; row < first + rows; ++row) {
        const C *values = read(row);
        for (u64 i = 0; i < columns; ++i) {
            best[i] = Order::better(values[i], best[i]) ? values[i] : best[i];
            has_nan[i] |= is_nan(values[i]) ? Word<C>(1) : Word<C>(0);
        }
    }
    for (u64 i = 0; i < columns; ++i) {
        changed[count] = i;
        count += first == 0 || has_nan[i] != 0 || Order::better(best[i], states[i].value);
    }
    for (u64 row = first; count > 0 && row < first + rows; ++row) {
        const C *values = read(row);
        for (u64 i = 0; i < count; ++i)
            states[changed[i]].step(values[changed[i]], row);
    }
}

// Results of this block, number `index` of `blocks`.
template <class State, class T, class Out>
inline void reduce_columns(const ColumnGroups<T> &groups, u64 index, u64 blocks, u64 results,
                           u64 count, u64 last_dim, Out *dst)
{
    const u64 width = groups.width();
    const u64 across = (width + COLUMNS - 1) / COLUMNS;
    State states[COLUMNS];
    alignas(64) Compute<T> buffer[COLUMNS];
    for (u64 group = index; group < results / width * across; group += blocks) {
        const u64 column = group % across * COLUMNS;
        const u64 columns = width - column < COLUMNS ? width - column : u64(COLUMNS);
        const u64 first = group / across * width + column;
        const u64 place = groups.kept.at(first);
        for (u64 i = 0; i < columns; ++i)
            states[i] = State::initial();
        for (u64 row = 0; row < count; row += STEP) {
            const u64 rows = count - row < STEP ? count - row : u64(STEP);
            merge_rows(states, columns, row, rows,
                       [&](u64 at) { return groups.read(place, at, columns, buffer); });
        }
        for (u64 i = 0; i < columns; ++i)
            dst[first + i] = Out(states[i].stored(last_dim));
    }
}

#endif
