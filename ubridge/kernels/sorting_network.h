// For CPUs: rows that are sorted side by side. Vector i has element i of each row, so one minimum
// and one maximum order two elements of every row. The order of these pairs is Batcher's ("Sorting
// networks and their applications", 1968), in its form where each pair rises. Then elements beyond
// the end of a row, which would be the highest, never move and need no memory.
#ifndef UBRIDGE_SORTING_NETWORK_H
#define UBRIDGE_SORTING_NETWORK_H

#include "vectors.h"

template <class W> struct SideBySide {
    typedef W Type __attribute__((vector_size(VECTOR_BYTES), may_alias));
    static constexpr u64 ROWS = VECTOR_BYTES / sizeof(W);
};

#define UNROLLED _Pragma("GCC unroll 8")

template <class V> DEVICE_FUNCTION void order_pair(V &first, V &second)
{
    const V low = first < second ? first : second;
    second = first < second ? second : first;
    first = low;
}

// Several stages of a merge in registers, of `count` vectors that lie `step` apart. With `mirrored`
// they belong to two sorted halves, and the second half is read from its end.
template <bool mirrored, u32 count, class V>
DEVICE_FUNCTION void merge_few(V *all, u64 first, u64 step, u64 size, u64 length)
{
    u64 places[count];
    UNROLLED for (u32 k = 0; k < count; ++k)
        places[k] = mirrored && k >= count / 2 ? size - 1 - first - (count - 1 - k) * step
                                               : first + k * step;
    const auto ordered = [=](auto &&at, auto &&exists) {
        UNROLLED for (u32 distance = count / 2; distance > 0; distance /= 2)
            UNROLLED for (u32 k = 0; k < count; ++k) {
                const bool is_first = mirrored && distance == count / 2;
                const u32 other = is_first ? count - 1 - k : k + distance;
                if ((k & distance) == 0 && exists(other))
                    order_pair(at(k), at(other));
            }
    };
    if (places[count - 1] < length) {
        V held[count];
        UNROLLED for (u32 k = 0; k < count; ++k)
            held[k] = all[places[k]];
        ordered([&](u32 k) -> V & { return held[k]; }, [](u32) { return true; });
        UNROLLED for (u32 k = 0; k < count; ++k)
            all[places[k]] = held[k];
    } else {
        ordered([&](u32 k) -> V & { return all[places[k]]; },
                [&](u32 k) { return places[k] < length; });
    }
}

// Merges two sorted halves of `size` vectors, a power of two, of which only `length` exist.
template <class V> static void merge_halves(V *all, u64 size, u64 length)
{
    const u32 stages = u32(__builtin_ctzll(size));
    const u32 at_first = stages % 3 == 0 ? 3 : stages % 3;
    u64 left = size >> at_first;
    for (u64 i = 0; i < left; ++i) {
        if (at_first == 1)
            merge_few<true, 2>(all, i, left, size, length);
        else if (at_first == 2)
            merge_few<true, 4>(all, i, left, size, length);
        else
            merge_few<true, 8>(all, i, left, size, length);
    }
    for (; left > 1; left /= 8)
        for (u64 start = 0; start < length; start += left)
            for (u64 i = 0; i < left / 8; ++i)
                merge_few<false, 8>(all + start, i, left / 8, left, length - start);
}

// Sorts 8 vectors by the fewest comparisons (Knuth, "The Art of Computer Programming", volume 3,
// section 5.3.4).
template <class V> static inline void sort_eight(V *all)
{
    static constexpr u8 PAIRS[][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6},
                                      {3, 7}, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {2, 4}, {3, 5},
                                      {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6}};
    V held[8];
    UNROLLED for (u32 k = 0; k < 8; ++k)
        held[k] = all[k];
    _Pragma("GCC unroll 19") for (const auto &pair : PAIRS)
        order_pair(held[pair[0]], held[pair[1]]);
    UNROLLED for (u32 k = 0; k < 8; ++k)
        all[k] = held[k];
}

// Sorts each lane of `length` vectors; `size` is a power of two, and not below the length.
template <class V> static void sort_lanes(V *all, u64 length, u64 size)
{
    if (size > 8) {
        const u64 half = size / 2;
        sort_lanes(all, length < half ? length : half, half);
        if (length > half) {
            sort_lanes(all + half, length - half, half);
            merge_halves(all, size, length);
        }
    } else if (length == 8) {
        sort_eight(all);
    } else {
        for (u64 i = 1; i < length; ++i)
            for (u64 j = i; j > 0; --j)
                order_pair(all[j - 1], all[j]);
    }
}

#endif
