// What generating one token after the other does besides: places are read from device memory, so
// that neither the arguments nor the geometry of a launch depends on them.
#include "elementwise.h"

#include <uhal/report.h>

// target[r, position + t, c] = inp[r, t, c]; tokens beyond the target are reported and skipped.
template <class W>
DEVICE_FUNCTION void append(BLOCK block, const char *entry, u64 numel, const i64 *position,
                            const W *inp, W *target, u64 tokens, u64 capacity, u64 width)
{
    const i64 first = *position;
    GRID_STRIDE_OF(block, i, numel) {
        u64 column = i;
        u64 token = split_off(column, width);
        const u64 row = split_off(token, tokens);
        const i64 place = first + i64(token);
        if (place >= 0 && u64(place) < capacity)
            target[(row * capacity + u64(place)) * width + column] = inp[i];
        else if (column == 0 && row == 0)
            report_index(entry, token, place, capacity);
    }
}

// inp is (rows, tokens, width), target (rows, capacity, width), both contiguous; the first token
// goes to the place that `position` points to.
#define DECODE(T)                                                                                  \
    KERNEL(kv_append_##T, (u64 numel, const i64 *position, const T *inp, T *target, u64 tokens,    \
                           u64 capacity, u64 width))                                               \
    {                                                                                              \
        append(THIS_BLOCK, "kv_append_" #T, numel, position, words(inp), words(target), tokens,    \
               capacity, width);                                                                   \
    }

DECODE(bf16)
DECODE(f16)
DECODE(f32)
DECODE(f64)
