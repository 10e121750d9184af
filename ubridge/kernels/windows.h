// The windows of a convolution as an operand of a product, for CPUs.
//
// A convolution takes `taps` of its window at each position. A transposed convolution is several
// convolutions, its phases (`convolution_axes.h`).
#ifndef UBRIDGE_WINDOWS_H
#define UBRIDGE_WINDOWS_H

#include "convolution_axes.h"
#include "packed_product.h"

// An element of the window that the results of a phase use.
struct Tap {
    i64 down, across; // offset in the input from a position times the step
    u64 begin, end;   // the positions of a row whose columns lie in the input
    u64 weight;       // its index in the weights of a channel
};

// The input as an operand: its lines are positions of all batches, its depth taps of all channels.
template <class T> struct Windows {
    const T *data;
    u64 batch_step, channel_step, row_step, column_step;
    u64 rows, columns; // of the input
    u64 down, across;  // positions of a batch
    u64 step;
    const Tap *taps;
    u64 count; // of taps
    u64 line, lines, first, depth;

    // The inputs of `lines` positions, from `line` on, for number `index` of all channels' taps.
    void gather(T *to, u64 index) const
    {
        const Tap &tap = taps[(first + index) % count];
        const T *const plane = data + (first + index) / count * channel_step;
        u64 column = line % across;
        u64 row = line / across % down;
        const T *of_batch = plane + line / across / down * batch_step;
        for (u64 left = lines; left > 0;) {
            const u64 length = smaller(left, across - column);
            const u64 place = row * step + u64(tap.down);
            const u64 last = place < rows ? smaller(tap.end, column + length) : column;
            const u64 begin = smaller(tap.begin > column ? tap.begin : column, column + length);
            const u64 end = last > begin ? last : begin;
            for (u64 i = column; i < begin; ++i)
                *to++ = T(0.0f);
            if (end > begin) {
                const i64 from = i64(begin * step) + tap.across;
                copy(to, of_batch + place * row_step + u64(from) * column_step, end - begin);
                to += end - begin;
            }
            for (u64 i = end; i < column + length; ++i)
                *to++ = T(0.0f);
            left -= length;
            column = 0;
            if (++row == down) {
                row = 0;
                of_batch += batch_step;
            }
        }
    }

    void copy(T *to, const T *from, u64 length) const
    {
        const u64 apart = step * column_step;
        if (apart == 1)
            memcpy(to, from, length * sizeof(T));
        else if (apart == 2)
            for (u64 i = 0; i < length; ++i)
                to[i] = from[2 * i];
        else
            for (u64 i = 0; i < length; ++i)
                to[i] = from[i * apart];
    }
};

// Where the taps of a window begin, and how far they reach.
struct Reach {
    i64 least_down, least_across;
    u64 reach_down, reach_across; // from the least tap to the last tap

    template <class T> explicit Reach(const Windows<T> &x)
    {
        i64 most_down = least_down = x.taps[0].down, most_across = least_across = x.taps[0].across;
        for (u64 i = 1; i < x.count; ++i) {
            const Tap &tap = x.taps[i];
            least_down = tap.down < least_down ? tap.down : least_down;
            most_down = tap.down > most_down ? tap.down : most_down;
            least_across = tap.across < least_across ? tap.across : least_across;
            most_across = tap.across > most_across ? tap.across : most_across;
        }
        reach_down = u64(most_down - least_down);
        reach_across = u64(most_across - least_across);
    }
};

template <class T>
static inline Windows<T> part_of(const Windows<T> &x, u64 line, u64 lines, u64 first, u64 depth)
{
    Windows<T> part = x;
    part.line += line;
    part.lines = lines;
    part.first += first;
    part.depth = depth;
    return part;
}

// The lines of one word of the depth, which a product packs together; PART of them at most.
template <class Scheme> struct Lines {
    typedef typename Scheme::Element T;
    alignas(64) T values[Scheme::PER_WORD][PART];

    Operand<T> of(const Windows<T> &x, u64 word)
    {
        const u64 at = word * Scheme::PER_WORD;
        const u64 depth = at < x.depth ? smaller(Scheme::PER_WORD, x.depth - at) : 0;
        for (u64 i = 0; i < depth; ++i)
            x.gather(values[i], at + i);
        return {values[0], 1, PART, x.lines, depth};
    }
};

template <class Scheme>
static inline void pack_right(u32 *out, const Windows<typename Scheme::Element> &x, u64 lines,
                              u64 words)
{
    Lines<Scheme> made;
    for (u64 word = 0; word < words; ++word) {
        const Operand<typename Scheme::Element> given = made.of(x, word);
        for (u64 line = 0; line < lines; line += STRIP)
            line_of_lines<Scheme>(out + line * words + word * STRIP, STRIP, given, 0, line);
    }
}

template <class Scheme>
static inline void pack_left(u32 *out, u64 step, const Windows<typename Scheme::Element> &x,
                             u64 lines, u64 words)
{
    Lines<Scheme> made;
    u32 side[PART];
    for (u64 word = 0; word < words; ++word) {
        line_of_lines<Scheme>(side, lines, made.of(x, word), 0, 0);
        for (u64 line = 0; line < lines; ++line)
            out[line * step + word] = side[line];
    }
}

// The weights as an operand: its lines are channels of the result, its depth is the depth of the
// windows.
template <class T> struct Weights {
    const T *data;
    u64 line_step, channel_step;
    const Tap *taps;
    u64 count;
    bool is_contiguous; // along the depth
    u64 lines, first, depth;

    Operand<T> operand() const { return {data + first, line_step, 1, lines, depth}; }

    T at(u64 line, u64 index) const
    {
        const u64 place = first + index;
        return data[line * line_step + place / count * channel_step + taps[place % count].weight];
    }

    template <class Scheme> u32 word(u64 line, u64 index) const
    {
        const u64 place = index * Scheme::PER_WORD;
        if (line >= lines || place >= depth)
            return 0;
        return Scheme::word(at(line, place), place + 1 < depth ? at(line, place + 1) : T(0.0f));
    }
};

template <class T>
static inline Weights<T> part_of(const Weights<T> &x, u64 line, u64 lines, u64 first, u64 depth)
{
    Weights<T> part = x;
    part.data += line * x.line_step;
    part.lines = lines;
    part.first += first;
    part.depth = depth;
    return part;
}

template <class Scheme>
static inline void pack_left(u32 *out, u64 step, const Weights<typename Scheme::Element> &x,
                             u64 lines, u64 words)
{
    if (x.is_contiguous)
        return pack_left<Scheme>(out, step, x.operand(), lines, words);
    for (u64 line = 0; line < lines; ++line)
        for (u64 word = 0; word < words; ++word)
            out[line * step + word] = x.template word<Scheme>(line, word);
}

template <class Scheme>
static inline void pack_right(u32 *out, const Weights<typename Scheme::Element> &x, u64 lines,
                              u64 words)
{
    if (x.is_contiguous)
        return pack_right<Scheme>(out, x.operand(), lines, words);
    for (u64 line = 0; line < lines; ++line)
        for (u64 word = 0; word < words; ++word)
            out[line / STRIP * STRIP * words + word * STRIP + line % STRIP] =
                x.template word<Scheme>(line, word);
}

// The results of a phase: positions from `line` on, of some channels.
template <class T> struct Positions {
    T *data; // the first result of the phase
    u64 batch_step, channel_step, row_step, column_step;
    u64 down, across;
    u64 line;

    // The f32 sums of `count` positions, which lie `apart`.
    __attribute__((noinline)) void write(u64 channel, u64 position, const f32 *sums, u64 count,
                                         u64 apart) const
    {
        u64 row = (line + position) / across, column = (line + position) % across;
        for (u64 left = count; left > 0;) {
            const u64 length = smaller(left, across - column);
            T *const to = data + row / down * batch_step + channel * channel_step +
                          row % down * row_step + column * column_step;
            if (apart == 1 && column_step == 1)
                for (u64 i = 0; i < length; ++i)
                    to[i] = T(sums[i]);
            else
                for (u64 i = 0; i < length; ++i)
                    to[i * column_step] = T(sums[i * apart]);
            sums += length * apart;
            left -= length;
            column = 0;
            ++row;
        }
    }

    void write(u64 channel, u64 position, const f32 *sums, u64 count) const
    {
        write(channel, position, sums, count, 1);
    }

    // Prefetches a result of each of some channels for writing.
    void ask_for(u64 channel, u64 channels, u64 position) const
    {
        const u64 row = (line + position) / across, column = (line + position) % across;
        const T *const from = data + row / down * batch_step + channel * channel_step +
                              row % down * row_step + column * column_step;
        for (u64 i = 0; i < channels; ++i)
            __builtin_prefetch(from + i * channel_step, 1);
    }
};

// `Positions` of a product whose rows are positions and whose columns are channels.
template <class T> struct TurnedPositions {
    Positions<T> results;

    void write(u64 position, u64 channel, const f32 *sums, u64 count) const
    {
        for (u64 i = 0; i < count; ++i)
            results.write(channel + i, position, sums + i, 1, 1);
    }
};

#endif
