// The order of a row on a CPU: a radix sort of its keys, eight bits a pass. It is stable, and passes
// over equal digits are left out.
#ifndef UBRIDGE_ORDERING_H
#define UBRIDGE_ORDERING_H

#include <memory>
#include <utility>

#include "sort_keys.h"

enum : u64 { FEW_ELEMENTS = 40 }; // rows up to this length are sorted by insertion

// A key and the index of its element: in one word, if both fit.
struct Keyed32 {
    u64 both;

    Keyed32() = default;
    Keyed32(u32 key, u32 index) : both(u64(key) << 32 | index) {}
    u64 key() const { return both >> 32; }
    u32 index() const { return u32(both); }
};
struct Keyed64 {
    u64 whole;
    u32 position;

    Keyed64() = default;
    Keyed64(u64 key, u32 index) : whole(key), position(index) {}
    u64 key() const { return whole; }
    u32 index() const { return position; }
};
template <bool wide> struct KeyedOf {
    typedef Keyed32 Type;
};
template <> struct KeyedOf<true> {
    typedef Keyed64 Type;
};

template <class Keyed> static inline void insert_in_order(Keyed *row, u64 count)
{
    for (u64 i = 1; i < count; ++i) {
        const Keyed moved = row[i];
        u64 j = i;
        for (; j > 0 && row[j - 1].key() > moved.key(); --j)
            row[j] = row[j - 1];
        row[j] = moved;
    }
}

// Sorts by the lowest `digits` bytes of the keys; returns which of the two arrays holds the
// result.
template <u32 digits, class Keyed>
static inline const Keyed *in_order(Keyed *row, Keyed *other, u64 count)
{
    u32 counts[digits][256] = {};
    for (u64 i = 0; i < count; ++i) {
        const u64 key = row[i].key();
        for (u32 digit = 0; digit < digits; ++digit)
            ++counts[digit][key >> 8 * digit & 255];
    }
    for (u32 digit = 0; digit < digits; ++digit) {
        u32 *const starts = counts[digit];
        if (starts[row[0].key() >> 8 * digit & 255] == count)
            continue;
        u32 start = 0;
        for (u32 value = 0; value < 256; ++value)
            start += std::exchange(starts[value], start);
        for (u64 i = 0; i < count; ++i)
            other[starts[row[i].key() >> 8 * digit & 255]++] = row[i];
        std::swap(row, other);
    }
    return row;
}

// out gets the order of each row's elements.
template <bool ascending, class T>
static void order_rows(const T *x, u32 *out, u64 rows, u64 length)
{
    typedef typename KeyedOf<(sizeof(T) > 4)>::Type Keyed;
    if (rows == 0)
        return;
    const std::unique_ptr<Keyed[]> memory(new Keyed[2 * length]);
    Keyed *const row = memory.get();
    for (u64 r = 0; r < rows; ++r, x += length, out += length) {
        for (u64 i = 0; i < length; ++i)
            row[i] = Keyed(key_of<ascending>(x[i]), u32(i));
        const Keyed *sorted = row;
        if (length <= FEW_ELEMENTS)
            insert_in_order(row, length);
        else
            sorted = in_order<sizeof(T)>(row, row + length, length);
        for (u64 i = 0; i < length; ++i)
            out[i] = sorted[i].index();
    }
}

#endif
