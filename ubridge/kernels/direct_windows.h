// Convolutions of few results without a product, for CPUs: the taps of the window are added one after
// the other to whole rows of sums.
//
// Rows of the input are first staged as f32, with the padding's zeros. For a stride above 1,
// columns a stride apart become neighbors. So every tap reads neighbors.
#ifndef UBRIDGE_DIRECT_WINDOWS_H
#define UBRIDGE_DIRECT_WINDOWS_H

#include "windows.h"

enum : u64 {
    FEW_RESULTS = 4,       // most channels of a group for which it is faster, measured with AVX2
    STAGED = 1 << 13,      // elements of the input that are staged at a time
    CHANNELS = 8,          // channels that are staged together, at most
    MOST_STAGED = 1 << 18, // elements that a single row of results may need
};

// The staged rows of one channel.
struct Stage : Reach {
    u64 step, together; // number of columns `step` apart that become neighbors
    u64 pitch;          // distance of these runs

    template <class T> explicit Stage(const Windows<T> &x) : Reach(x), step(x.step)
    {
        together = smaller(step, reach_across + 1);
        pitch = whole_times(x.across + reach_across / step, LANES) + 4 * LANES;
    }

    u64 row() const { return together * pitch; }
    u64 rows(u64 results) const { return (results - 1) * step + reach_down + 1; }
    u64 place(const Tap &tap) const
    {
        const u64 across = u64(tap.across - least_across);
        return u64(tap.down - least_down) * row() + across % step * pitch + across / step;
    }

    // A row of the input, from its first element on, or zeros.
    template <class T> void fill(f32 *to, const T *from, const Windows<T> &x) const
    {
        if (from == nullptr) {
            memset(to, 0, row() * sizeof(f32));
            return;
        }
        for (u64 i = 0; i < together; ++i, to += pitch) {
            const i64 start = least_across + i64(i);
            const u64 before = smaller(start < 0 ? (u64(-start) + step - 1) / step : 0, pitch);
            const u64 first = u64(start + i64(before * step));
            const u64 left = first < x.columns ? (x.columns - first + step - 1) / step : 0;
            const u64 end = before + smaller(left, pitch - before);
            const u64 apart = step * x.column_step;
            const T *const source = from + first * x.column_step;
            for (u64 j = 0; j < before; ++j)
                to[j] = 0.0f;
            if (apart == 1)
                Widened<T>::contiguous(reinterpret_cast<u32 *>(to + before), source, end - before);
            else if (apart == 2)
                for (u64 j = before; j < end; ++j)
                    to[j] = f32(source[2 * (j - before)]);
            else
                for (u64 j = before; j < end; ++j)
                    to[j] = f32(source[(j - before) * apart]);
            for (u64 j = end; j < pitch; ++j)
                to[j] = 0.0f;
        }
    }
};

// Whether a row of results needs at most MOST_STAGED elements of the input.
template <class T> static inline bool is_near(const Windows<T> &x)
{
    for (u64 i = 0; i < x.count; ++i) {
        const Tap &tap = x.taps[i];
        if (u64(tap.down + (1 << 12)) > 1 << 13 || u64(tap.across + (1 << 12)) > 1 << 13)
            return false;
    }
    const Stage stage(x);
    return stage.pitch <= MOST_STAGED && stage.row() <= MOST_STAGED / (stage.reach_down + 1);
}

// Taps of staged channels, and their weights for each of some results.
struct Taps {
    const u64 *places;
    const f32 *weights;
    u64 weights_step;
    u64 count;
};

// Sums of `results` channels in `vectors` vectors; the sums are written or accumulated.
template <u64 results, u64 vectors>
static inline void sum_taps(f32 *sums, u64 of_result, const f32 *staged, const Taps &taps, bool add)
{
    Floats made[results][vectors] = {};
    if (add)
        for (u64 result = 0; result < results; ++result)
            for (u64 i = 0; i < vectors; ++i)
                made[result][i] = widened(sums + result * of_result + i * LANES);
    for (u64 tap = 0; tap < taps.count; ++tap) {
        const f32 *const from = staged + taps.places[tap];
        const f32 *const weights = taps.weights + tap;
#pragma GCC unroll 4
        for (u64 i = 0; i < vectors; ++i) {
            const Floats some = widened(from + i * LANES);
#pragma GCC unroll 4
            for (u64 result = 0; result < results; ++result)
                made[result][i] += weights[result * taps.weights_step] * some;
        }
    }
    for (u64 result = 0; result < results; ++result)
        for (u64 i = 0; i < vectors; ++i)
            memcpy(sums + result * of_result + i * LANES, &made[result][i], sizeof(Floats));
}

template <u64 results>
static inline void sum_row(u64 count, f32 *sums, u64 of_result, u64 columns, const f32 *staged,
                           const Taps &taps, bool add)
{
    if constexpr (results > 1)
        if (count < results)
            return sum_row<results - 1>(count, sums, of_result, columns, staged, taps, add);
    u64 column = 0;
    if constexpr (results <= 2)
        for (; column + 2 * LANES < columns; column += 4 * LANES)
            sum_taps<results, 4>(sums + column, of_result, staged + column, taps, add);
    for (; column + LANES < columns; column += 2 * LANES)
        sum_taps<results, 2>(sums + column, of_result, staged + column, taps, add);
    if (column < columns)
        sum_taps<results, 1>(sums + column, of_result, staged + column, taps, add);
}

template <class T>
static void add_taps(const Weights<T> &left, const Windows<T> &x, const Positions<T> &out)
{
    const Stage stage(x);
    const u64 channels = x.depth / x.count;
    const u64 part = smaller(channels, CHANNELS);
    u64 rows = 1;
    while (rows < x.down && part * stage.rows(rows + 1) * stage.row() <= STAGED)
        ++rows;
    const u64 plane = stage.rows(rows) * stage.row();
    const u64 pitch = whole_times(x.across, LANES) + 4 * LANES;
    const u64 of_result = rows * pitch;
    const u64 size = part * plane + left.lines * of_result + left.lines * x.depth;
    const std::unique_ptr<u32, Released> memory(
        allocated(size + part * x.count * (sizeof(u64) / sizeof(u32))));
    u64 *const places = reinterpret_cast<u64 *>(memory.get());
    f32 *const staged = reinterpret_cast<f32 *>(places + part * x.count);
    f32 *const sums = staged + part * plane;
    f32 *const weights = sums + left.lines * of_result;

    for (u64 i = 0; i < part * x.count; ++i)
        places[i] = i / x.count * plane + stage.place(x.taps[i % x.count]);
    for (u64 line = 0; line < left.lines; ++line)
        for (u64 i = 0; i < x.depth; ++i)
            weights[line * x.depth + i] = f32(left.at(line, i));
    const u64 last_row = (x.line + x.lines - 1) / x.across + 1;
    for (u64 row = x.line / x.across; row < last_row;) {
        const u64 first = row % x.down;
        const u64 count = smaller(smaller(rows, x.down - first), last_row - row);
        const T *const of_batch = x.data + row / x.down * x.batch_step;
        for (u64 channel = 0; channel < channels; channel += part) {
            const u64 some = smaller(part, channels - channel);
            for (u64 i = 0; i < some; ++i)
                for (u64 j = 0; j < stage.rows(count); ++j) {
                    const u64 place = first * x.step + j + u64(stage.least_down);
                    const T *const from = of_batch + (channel + i) * x.channel_step;
                    stage.fill(staged + i * plane + j * stage.row(),
                               place < x.rows ? from + place * x.row_step : nullptr, x);
                }
            const Taps taps = {places, weights + channel * x.count, x.depth, some * x.count};
            for (u64 i = 0; i < count; ++i)
                sum_row<FEW_RESULTS>(left.lines, sums + i * pitch, of_result, x.across,
                                     staged + i * x.step * stage.row(), taps, channel > 0);
        }
        for (u64 i = 0; i < count; ++i) {
            // The first and the last row may be shared with other blocks.
            const u64 at = (row + i) * x.across;
            const u64 begin = at < x.line ? x.line - at : 0;
            const u64 end = smaller(x.across, x.line + x.lines - at);
            for (u64 line = 0; line < left.lines; ++line)
                out.write(line, at + begin - x.line, sums + line * of_result + i * pitch + begin,
                          end - begin);
        }
        row += count;
    }
}

#endif
