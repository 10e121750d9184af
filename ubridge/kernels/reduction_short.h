// For CPUs: reductions of short rows, many of them together. Joining the lanes of a single row
// would take most of the time, so the lanes of sixteen rows are joined together.
#ifndef UBRIDGE_REDUCTION_SHORT_H
#define UBRIDGE_REDUCTION_SHORT_H

#include "reduction_runs.h"

// The longest of the short rows; lanes of a row; rows taken together.
enum : u64 { SHORT_ROW = 128, ROW_LANES = 16, ROWS_TOGETHER = 16 };

// Combines two values of a state; `identity` changes no value. Only for floats: GCC 12 with
// AVX-512 gets sums of 16-bit integers wrong in this form, and places of values would be lost.
template <class State> struct Fold {
    static constexpr bool exists = false;
};
template <class C, bool compensated> struct Fold<SumOf<C, compensated>> {
    typedef C Value;
    static constexpr bool exists = !Number<C>::is_integer;
    DEVICE_METHOD static C identity() { return C(0); }
    DEVICE_METHOD static C both(C a, C b) { return add(a, b); }
};
template <class C, class Order> struct Fold<Extreme<C, Order>> {
    typedef C Value;
    static constexpr bool exists = !Number<C>::is_integer;
    DEVICE_METHOD static C identity() { return Order::template worst<C>(); }
    DEVICE_METHOD static C both(C a, C b) { return Order::of_all(a, b); }
};

// Combines neighboring values in pairs until `results` values are left.
template <class F, u64 count, u64 results, class C>
inline void fold_neighbors(const C *values, C *out)
{
    alignas(64) C half[count / 2];
    for (u64 i = 0; i < count / 2; ++i)
        half[i] = F::both(values[2 * i], values[2 * i + 1]);
    if constexpr (count / 2 == results)
        memcpy(out, half, sizeof half);
    else
        fold_neighbors<F, count / 2, results>(half, out);
}

// Out of line, so that the lanes of a row stay in registers.
template <class C> __attribute__((noinline)) void copy_rest(const C *values, u64 count, C *rest)
{
    for (u64 i = 0; i < count; ++i)
        rest[i] = values[i];
}

// The lanes of one row. `readable` elements, at least the row's, may be read.
template <class F, class C>
inline void fold_row(const C *values, u64 count, u64 readable, C *result)
{
    C lanes[ROW_LANES];
    for (u64 lane = 0; lane < ROW_LANES; ++lane)
        lanes[lane] = F::identity();
    u64 i = 0;
    for (; i + ROW_LANES <= count; i += ROW_LANES)
        for (u64 lane = 0; lane < ROW_LANES; ++lane)
            lanes[lane] = F::both(lanes[lane], values[i + lane]);
    const u64 left = count - i;
    if (left != 0) {
        // The identity replaces elements of the next row.
        alignas(64) C rest[2 * ROW_LANES];
        if (i + ROW_LANES <= readable)
            memcpy(rest, values + i, sizeof lanes);
        else
            copy_rest(values + i, left, rest);
        for (u64 lane = 0; lane < ROW_LANES; ++lane)
            rest[left + lane] = F::identity();
        for (u64 lane = 0; lane < ROW_LANES; ++lane)
            lanes[lane] = F::both(lanes[lane], rest[lane]);
    }
    memcpy(result, lanes, sizeof lanes);
}

// Rows of `count` values one after the other, of which `readable` may be read.
template <class F, class C>
__attribute__((noinline)) void fold_rows(const C *values, u64 rows, u64 count, u64 readable,
                                         C *results)
{
    alignas(64) C lanes[ROWS_TOGETHER * ROW_LANES] = {};
    alignas(64) C folded[ROWS_TOGETHER];
    for (u64 row = 0; row < rows; row += ROWS_TOGETHER) {
        const u64 together = rows - row < ROWS_TOGETHER ? rows - row : u64(ROWS_TOGETHER);
        for (u64 i = 0; i < together; ++i) {
            const u64 first = (row + i) * count;
            fold_row<F>(values + first, count, readable - first, lanes + i * ROW_LANES);
        }
        fold_neighbors<F, ROWS_TOGETHER * ROW_LANES, ROWS_TOGETHER>(lanes, folded);
        for (u64 i = 0; i < together; ++i)
            results[row + i] = folded[i];
    }
}

// Rows first … last of an operand of `numel` elements.
template <class State, class T, class Out>
inline void reduce_short_rows(const Operand<T> &operand, u64 first, u64 last, u64 count, u64 numel,
                              Out *dst)
{
    typedef typename Fold<State>::Value C;
    Reader<T> reader(operand);
    alignas(64) C results[RUN];
    const u64 most = reader.in_place ? u64(RUN) : RUN / count;
    for (u64 row = first; row < last; row += most) {
        const u64 rows = last - row < most ? last - row : most;
        const u64 readable = reader.in_place ? numel - row * count : rows * count;
        fold_rows<Fold<State>>(reader.read(row * count, rows * count), rows, count, readable,
                               results);
        for (u64 i = 0; i < rows; ++i)
            dst[row + i] = Out(results[i]);
    }
}

#endif
