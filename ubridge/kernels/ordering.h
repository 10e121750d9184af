// Sorted rows, and the order of rows, on a CPU. Several rows are sorted side by side. A few rows,
// and long ones, are sorted one by one: by a radix sort of their keys, eight bits a pass. This sort
// is stable, and leaves out passes over equal digits.
#ifndef UBRIDGE_ORDERING_H
#define UBRIDGE_ORDERING_H

#include <string.h>

#include <memory>
#include <utility>

#include "sort_keys.h"
#include "sorting_network.h"

enum : u64 {
    FEW_ELEMENTS = 40, // rows up to this length are sorted by insertion
    // Vectors of rows that are sorted side by side: they stay in a core's own cache, and the stages
    // of the network take less time than the passes of a radix sort.
    MOST_VECTORS = VECTOR_BYTES >= 32 ? 4096 : 1024,
    CONVERTED = 64 // elements of a row that become words together
};

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

// -- words ---------------------------------------------------------------------------------------

// Words in the order of a row's elements: the key, then the index, so that no two are equal.
template <bool ascending, class T, bool wide = (sizeof(T) > 2)> struct IndexedWord {
    typedef u64 Bits;
    typedef u32 Result;

    static Bits of(T x, u64 index) { return u64(key_of<ascending>(x)) << 32 | index; }
    static Result result(Bits bits) { return u32(bits); }
};
template <bool ascending, class T> struct IndexedWord<ascending, T, false> {
    typedef u32 Bits;
    typedef u32 Result;

    static Bits of(T x, u64 index) { return u32(key_of<ascending>(x)) << 16 | u32(index); }
    static Result result(Bits bits) { return bits & 0xFFFF; }
};
// Elements as unsigned integers of their order. The two zeros differ, and so do NaN, of which the
// sign is lost.
template <bool ascending, class T> struct ElementWord {
    typedef Word<T> Bits;
    typedef T Result;
    static constexpr Bits SIGN = Bits(u64(1) << (8 * sizeof(T) - 1));

    static Bits of(T x, u64 = 0)
    {
        Bits bits = word(x);
        if constexpr (Number<T>::is_integer) {
            bits = is_signed<T> ? Bits(bits ^ SIGN) : bits;
        } else {
            bits = is_unordered(bits) ? Bits(bits & Bits(~SIGN)) : bits;
            bits = Bits(bits & SIGN) != 0 ? Bits(~bits) : Bits(bits | SIGN);
        }
        return ascending ? bits : Bits(~bits);
    }
    static Result result(Bits bits)
    {
        bits = ascending ? bits : Bits(~bits);
        if constexpr (Number<T>::is_integer)
            bits = is_signed<T> ? Bits(bits ^ SIGN) : bits;
        else
            bits = Bits(bits & SIGN) != 0 ? Bits(bits ^ SIGN) : Bits(~bits);
        T x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }

    static bool is_unordered(Bits bits) { return Bits(bits & Bits(~SIGN)) > Infinity<T>::bits; }
    static bool is_zero(Bits bits) { return Bits(bits & Bits(~SIGN)) == 0; }

    // Brings zeros and NaN of a sorted row into the order in which the row had them.
    static void restore(const T *row, T *sorted, u64 length)
    {
        if constexpr (!Number<T>::is_integer) {
            bool has_zeros = false, has_nan = false;
            for (u64 i = 0; i < length; ++i) {
                has_zeros |= word(row[i]) == SIGN;
                has_nan |= is_unordered(word(row[i]));
            }
            if (has_zeros)
                restore(row, sorted, length, is_zero);
            if (has_nan)
                restore(row, sorted, length, is_unordered);
        }
    }

  private:
    static void restore(const T *row, T *sorted, u64 length, bool (*is_equal)(Bits))
    {
        u64 place = 0;
        while (!is_equal(word(sorted[place])))
            ++place;
        for (u64 i = 0; i < length; ++i)
            if (is_equal(word(row[i])))
                sorted[place++] = row[i];
    }
};

// -- rows side by side ---------------------------------------------------------------------------

// Sorts some rows, at most as many as a vector has lanes.
template <class Kind, class T>
static void sort_some(const T *x, typename Kind::Result *out, u64 rows, u64 length,
                      typename Kind::Bits *all)
{
    typedef typename Kind::Bits Bits;
    constexpr u64 lanes = SideBySide<Bits>::ROWS;
    alignas(VECTOR_BYTES) Bits part[lanes][CONVERTED] = {};
    for (u64 first = 0; first < length; first += CONVERTED) {
        const u64 some = smaller(CONVERTED, length - first);
        for (u64 row = 0; row < rows; ++row)
            for (u64 i = 0; i < some; ++i)
                part[row][i] = Kind::of(x[row * length + first + i], first + i);
        for (u64 i = 0; i < some; ++i)
            for (u64 row = 0; row < lanes; ++row)
                all[(first + i) * lanes + row] = part[row][i];
    }
    u64 size = 1;
    while (size < length)
        size *= 2;
    sort_lanes(reinterpret_cast<typename SideBySide<Bits>::Type *>(all), length, size);
    for (u64 first = 0; first < length; first += CONVERTED) {
        const u64 some = smaller(CONVERTED, length - first);
        for (u64 i = 0; i < some; ++i)
            for (u64 row = 0; row < lanes; ++row)
                part[row][i] = all[(first + i) * lanes + row];
        for (u64 row = 0; row < rows; ++row)
            for (u64 i = 0; i < some; ++i)
                out[row * length + first + i] = Kind::result(part[row][i]);
    }
}

// Sorts rows in groups; returns the number of rows that it sorted. It leaves a group that would
// waste most lanes.
template <class Kind, class T>
static u64 sort_together(const T *x, typename Kind::Result *out, u64 rows, u64 length)
{
    typedef typename Kind::Bits Bits;
    constexpr u64 lanes = SideBySide<Bits>::ROWS;
    if (length > MOST_VECTORS || rows < lanes / 4 || length == 0)
        return 0;
    struct Aligned {
        alignas(VECTOR_BYTES) Bits lanes[VECTOR_BYTES / sizeof(Bits)];
    };
    const std::unique_ptr<Aligned[]> all(new Aligned[length]);
    u64 done = 0;
    for (u64 some; rows - done >= (lanes + 3) / 4; done += some) {
        some = smaller(lanes, rows - done);
        sort_some<Kind>(x + done * length, out + done * length, some, length, all[0].lanes);
    }
    return done;
}

// -- rows one by one -----------------------------------------------------------------------------

// out gets the order of each row's elements.
template <bool ascending, class T>
static void order_rows(const T *x, u32 *out, u64 rows, u64 length)
{
    typedef typename KeyedOf<(sizeof(T) > 4)>::Type Keyed;
    u64 done = 0;
    if constexpr (sizeof(T) <= 4)
        done = sort_together<IndexedWord<ascending, T>>(x, out, rows, length);
    if (done == rows)
        return;
    const std::unique_ptr<Keyed[]> memory(new Keyed[2 * length]);
    Keyed *const row = memory.get();
    for (u64 r = done; r < rows; ++r) {
        const T *const from = x + r * length;
        for (u64 i = 0; i < length; ++i)
            row[i] = Keyed(key_of<ascending>(from[i]), u32(i));
        const Keyed *sorted = row;
        if (length <= FEW_ELEMENTS)
            insert_in_order(row, length);
        else
            sorted = in_order<sizeof(T)>(row, row + length, length);
        for (u64 i = 0; i < length; ++i)
            out[r * length + i] = sorted[i].index();
    }
}

template <class Bits> struct Plain {
    Bits bits;
    u64 key() const { return bits; }
};

// out gets the sorted elements of each row. Elements that are equal keep their order.
template <bool ascending, class T>
static void sort_rows(const T *x, T *out, u64 rows, u64 length)
{
    typedef ElementWord<ascending, T> Kind;
    typedef Plain<typename Kind::Bits> Key;
    const u64 done = sort_together<Kind>(x, out, rows, length);
    if (done < rows) {
        const std::unique_ptr<Key[]> memory(new Key[2 * length]);
        Key *const row = memory.get();
        for (u64 r = done; r < rows; ++r) {
            for (u64 i = 0; i < length; ++i)
                row[i].bits = Kind::of(x[r * length + i]);
            const Key *sorted = row;
            if (length <= FEW_ELEMENTS)
                insert_in_order(row, length);
            else
                sorted = in_order<sizeof(T)>(row, row + length, length);
            for (u64 i = 0; i < length; ++i)
                out[r * length + i] = Kind::result(sorted[i].bits);
        }
    }
    for (u64 r = 0; r < rows; ++r)
        Kind::restore(x + r * length, out + r * length, length);
}

#endif
