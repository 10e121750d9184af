// Kernels for generating tokens one by one. They read positions from device memory, so neither the
// arguments nor the geometry of a launch depend on the position.
#include "elementwise.h"

#include <uhal/report.h>

// target[r, position + t, c] = inp[r, t, c]; tokens beyond the target are reported and skipped.
template <class W>
DEVICE_FUNCTION void append(BLOCK block, const char *entry, u64 numel, const i64 *position,
                            const W *inp, W *target, u64 tokens, u64 capacity, u64 width)
{
    const i64 first = *position;
#if KERNEL_ON_GPU
    const u64 run = 1;
#else
    // A CPU copies one token at a time, with one division a token.
    const u64 run = width;
#endif
    GRID_STRIDE_OF(block, i, numel / run) {
        u64 column = i * run;
        u64 token = split_off(column, width);
        const u64 row = split_off(token, tokens);
        const i64 place = first + i64(token);
        W *const to = target + (row * capacity + u64(place)) * width + column;
        if (place >= 0 && u64(place) < capacity)
            for (u64 next = 0; next < run; ++next)
                to[next] = inp[i * run + next];
        else if (column == 0 && row == 0)
            report_index(entry, token, place, capacity);
    }
}

// target[slots[t], c] = inp[t, c]; a token of slot -1 is skipped, other slots beyond the target are
// reported and skipped.
template <class W>
DEVICE_FUNCTION void paged_append(BLOCK block, const char *entry, u64 numel, const i64 *slots,
                                  const W *inp, W *target, u64 capacity, u64 width)
{
#if KERNEL_ON_GPU
    const u64 run = 1;
#else
    const u64 run = width;
#endif
    GRID_STRIDE_OF(block, i, numel / run) {
        u64 column = i * run;
        const u64 token = split_off(column, width);
        const i64 place = slots[token];
        W *const to = target + u64(place) * width + column;
        if (place >= 0 && u64(place) < capacity)
            for (u64 next = 0; next < run; ++next)
                to[next] = inp[i * run + next];
        else if (place != -1 && column == 0)
            report_index(entry, token, place, capacity);
    }
}

// Rotates one pair of a head by its angle.
template <class T>
DEVICE_FUNCTION void turn(const T *inp, T *out, u64 first, u64 second, f32 cos, f32 sin)
{
    typedef Compute<T> C;
    const C x = widen(inp[first]);
    const C y = widen(inp[second]);
    out[first] = narrow<T>(x * C(cos) - y * C(sin));
    out[second] = narrow<T>(x * C(sin) + y * C(cos));
}

template <class T>
DEVICE_FUNCTION void rope_at(BLOCK block, const char *entry, u64 rows, const i64 *position,
                             const T *inp, const f32 *cos, const f32 *sin, T *out, u64 heads,
                             u64 width, u64 turned, u64 positions, bool neighbors)
{
    const i64 first = *position;
#if KERNEL_ON_GPU
    // One work-item for each pair and for each element that is not rotated.
    const u64 each = width - turned / 2;
    GRID_STRIDE_OF(block, i, rows * each) {
        u64 own = i;
        const u64 row = split_off(own, each);
        const i64 place = first + i64(row / heads);
        const T *const from = inp + row * width;
        if (place < 0 || u64(place) >= positions) {
            if (own == 0 && row % heads == 0)
                report_index(entry, row / heads, place, positions);
        } else if (own >= turned / 2) {
            out[row * width + own + turned / 2] = from[own + turned / 2];
        } else {
            const u64 angle = u64(place) * (turned / 2) + own;
            const u64 one = neighbors ? 2 * own : own;
            turn(from, out + row * width, one, neighbors ? one + 1 : own + turned / 2, cos[angle],
                 sin[angle]);
        }
    }
#else
    GRID_STRIDE_OF(block, row, rows) {
        const i64 place = first + i64(row / heads);
        if (place >= 0 && u64(place) < positions) {
            const u64 angles = u64(place) * (turned / 2);
            const T *const from = inp + row * width;
            T *const to = out + row * width;
            UHAL_INDEPENDENT
            for (u64 pair = 0; pair < turned / 2; ++pair)
                turn(from, to, neighbors ? 2 * pair : pair,
                     neighbors ? 2 * pair + 1 : pair + turned / 2, cos[angles + pair],
                     sin[angles + pair]);
            for (u64 column = turned; column < width; ++column)
                to[column] = from[column];
        } else if (row % heads == 0) {
            report_index(entry, row / heads, place, positions);
        }
    }
#endif
}

// inp is (rows, tokens, width), target (rows, capacity, width), both contiguous; `position` points
// to the first token's index in target. In paged_append inp is (tokens, width), target (capacity,
// width). inp and out of rope_at have shape (tokens, heads, width). The first `turned` elements are
// rotated by row `position` + token of cos and sin, (positions, turned / 2).
#define DECODE(T)                                                                                  \
    KERNEL(kv_append_##T, (u64 numel, const i64 *position, const T *inp, T *target, u64 tokens,    \
                           u64 capacity, u64 width))                                               \
    {                                                                                              \
        append(THIS_BLOCK, "kv_append_" #T, numel, position, words(inp), words(target), tokens,    \
               capacity, width);                                                                   \
    }                                                                                              \
    KERNEL(paged_append_##T,                                                                       \
           (u64 numel, const i64 *slots, const T *inp, T *target, u64 capacity, u64 width))        \
    {                                                                                              \
        paged_append(THIS_BLOCK, "paged_append_" #T, numel, slots, words(inp), words(target),      \
                     capacity, width);                                                             \
    }                                                                                              \
    KERNEL(rope_at_##T, (u64 rows, const i64 *position, const T *inp, const f32 *cos,              \
                         const f32 *sin, T *out, u64 heads, u64 width, u64 turned, u64 positions,  \
                         bool neighbors))                                                          \
    {                                                                                              \
        rope_at(THIS_BLOCK, "rope_at_" #T, rows, position, inp, cos, sin, out, heads, width,       \
                turned, positions, neighbors);                                                     \
    }

DECODE(bf16)
DECODE(f16)
DECODE(f32)
DECODE(f64)
