// Rotary embeddings: each pair (x1, x2) becomes (x1 cos - x2 sin, x1 sin + x2 cos), computed in f32
// for f16 and bf16. `pair` counts pairs; the three layouts differ in the places of a pair's
// elements.
// cos and sin have d / 2 values for each of t positions. If stride_b, the number of elements of a
// batch in src, is not 0, each batch has its own cos and sin.
#ifndef UBRIDGE_ROPE_H
#define UBRIDGE_ROPE_H

#include "layout.h"
#include "number.h"

template <class T>
DEVICE_FUNCTION void rotate(const T *src, T *dst, u64 first, u64 second, T cos, T sin)
{
    const Compute<T> x1 = widen(src[first]);
    const Compute<T> x2 = widen(src[second]);
    const Compute<T> c = widen(cos);
    const Compute<T> s = widen(sin);
    dst[first] = narrow<T>(x1 * c - x2 * s);
    dst[second] = narrow<T>(x1 * s + x2 * c);
}

DEVICE_FUNCTION u64 batch_angles(u64 pair, u64 stride_b, u64 angles)
{
    u64 element = 2 * pair;
    return stride_b == 0 ? 0 : split_off(element, stride_b) * angles;
}

// src is (b, h, t, d); a pair lies in neighboring elements.
template <class T>
DEVICE_FUNCTION void rope_interleaved(u64 pair, const T *src, const T *cos, const T *sin, T *dst,
                                      u64 td, u64 stride_b)
{
    u64 angle = pair;
    split_off(angle, td / 2);
    angle += batch_angles(pair, stride_b, td / 2);
    rotate(src, dst, 2 * pair, 2 * pair + 1, cos[angle], sin[angle]);
}

// src is (b, h, t, d); a pair lies d / 2 apart.
template <class T>
DEVICE_FUNCTION void rope_halves(u64 pair, const T *src, const T *cos, const T *sin, T *dst, u64 td,
                                 u64 d, u64 stride_b)
{
    u64 column = pair;
    const u64 row = split_off(column, d / 2);
    u64 angle = pair;
    split_off(angle, td / 2);
    angle += batch_angles(pair, stride_b, td / 2);
    const u64 first = row * d + column;
    rotate(src, dst, first, first + d / 2, cos[angle], sin[angle]);
}

// src is (b, t, h, d); a pair lies d / 2 apart.
template <class T>
DEVICE_FUNCTION void rope_by_position(u64 pair, const T *src, const T *cos, const T *sin, T *dst,
                                      u64 t, u64 h, u64 d, u64 stride_b)
{
    u64 column = pair;
    const u64 row = split_off(column, d / 2);
    u64 head = row;
    u64 position = split_off(head, h);
    split_off(position, t);
    const u64 angle = position * (d / 2) + column + batch_angles(pair, stride_b, t * d / 2);
    const u64 first = row * d + column;
    rotate(src, dst, first, first + d / 2, cos[angle], sin[angle]);
}

#if !KERNEL_ON_GPU

// The work of a block on a CPU: runs of pairs that lie `apart` in a row of d elements, with
// consecutive angles. `angle_of` returns the angle of a run's first pair.
template <class T, class AngleOf>
inline void rope_runs(BLOCK block, u64 pairs, const T *src, const T *cos, const T *sin, T *dst,
                      u64 d, AngleOf angle_of)
{
    const u64 half = d / 2, last = block.uhal_last(pairs);
    for (u64 pair = block.uhal_first(pairs); pair < last;) {
        const u64 row = pair / half, column = pair % half, angle = angle_of(pair);
        const u64 count = half - column < last - pair ? half - column : last - pair;
        const u64 first = row * d + column;
        UHAL_INDEPENDENT
        for (u64 k = 0; k < count; ++k)
            rotate(src, dst, first + k, first + k + half, cos[angle + k], sin[angle + k]);
        pair += count;
    }
}

// The same for pairs of neighbors. Runs end where the angles begin anew.
template <class T>
inline void rope_neighbors(BLOCK block, u64 pairs, const T *src, const T *cos, const T *sin, T *dst,
                           u64 td, u64 stride_b)
{
    const u64 last = block.uhal_last(pairs);
    for (u64 pair = block.uhal_first(pairs); pair < last;) {
        const u64 place = pair % (td / 2), angle = place + batch_angles(pair, stride_b, td / 2);
        const u64 count = td / 2 - place < last - pair ? td / 2 - place : last - pair;
        UHAL_INDEPENDENT
        for (u64 k = 0; k < count; ++k)
            rotate(src, dst, 2 * (pair + k), 2 * (pair + k) + 1, cos[angle + k], sin[angle + k]);
        pair += count;
    }
}

#endif

#endif
