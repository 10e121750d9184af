// The loops of attention for CPUs, in a form that compilers turn into vector code.
#ifndef UBRIDGE_ATTENTION_LANES_H
#define UBRIDGE_ATTENTION_LANES_H

#include "number.h"

// The sum of products, in lanes.
template <class C, class T> DEVICE_FUNCTION C dot(u32 count, const C *a, const T *b) {
    enum : u32 { LANES = 32 };
    C lanes[LANES] = {};
    // Indices of 32 bits that wrap would prevent vector loads, so the pointers advance.
    for (; count >= LANES; count -= LANES, a += LANES, b += LANES)
        for (u32 lane = 0; lane < LANES; ++lane)
            lanes[lane] += a[lane] * widen(b[lane]);
    for (u32 lane = 0; lane < count; ++lane)
        lanes[lane] += a[lane] * widen(b[lane]);
    for (u32 width = LANES / 2; width > 0; width /= 2)
        for (u32 lane = 0; lane < width; ++lane)
            lanes[lane] += lanes[lane + width];
    return lanes[0];
}

// sums += the weighted rows, in the order of the rows. Four rows share each pass over the sums.
template <class C, class Values, class Place>
DEVICE_FUNCTION void add_rows(u32 count, const C *weights, Values v, const Place &place, u32 width,
                              C *sums) {
    u32 i = 0;
    for (; i + 4 <= count; i += 4) {
        const u64 at[4] = {place(i), place(i + 1), place(i + 2), place(i + 3)};
        const auto *const a = v.row(at[0]), *const b = v.row(at[1]);
        const auto *const c = v.row(at[2]), *const d = v.row(at[3]);
        const C of_a = v.scaled(weights[i], at[0]), of_b = v.scaled(weights[i + 1], at[1]);
        const C of_c = v.scaled(weights[i + 2], at[2]), of_d = v.scaled(weights[i + 3], at[3]);
        UHAL_INDEPENDENT
        for (u32 column = 0; column < width; ++column) {
            C sum = sums[column] + of_a * widen(a[column]);
            sum += of_b * widen(b[column]);
            sum += of_c * widen(c[column]);
            sums[column] = sum + of_d * widen(d[column]);
        }
    }
    for (; i < count; ++i) {
        const u64 at = place(i);
        const auto *const row = v.row(at);
        const C weight = v.scaled(weights[i], at);
        UHAL_INDEPENDENT
        for (u32 column = 0; column < width; ++column)
            sums[column] += weight * widen(row[column]);
    }
}

#endif
