// Packs the operands of a product before they are multiplied, for CPUs.
//
// Elements become words of 32 bits: one f32, or two bf16 that are neighbors along the summed
// axis, as instructions for bf16 require. The left operand becomes lines of words along the summed
// axis, one a row. The right operand becomes strips of neighboring columns, with a line in each
// strip for each word of the summed axis. Operands may have any strides; an operand that is
// contiguous along neither axis is read one element at a time. LaneWords beyond the operands' ends
// are zero.
#ifndef UBRIDGE_PACKING_H
#define UBRIDGE_PACKING_H

#include <string.h>

#include "vectors.h"

// Columns that are multiplied together.
enum : u64 { STRIP = 2 * LANES };

// `lines` rows of a left or columns of a right operand, `depth` elements along the summed axis.
template <class T> struct Operand {
    const T *data;
    u64 line_step;
    u64 depth_step;
    u64 lines;
    u64 depth;
};

// A word is an element as f32.
template <class T> struct Widened {
    typedef T Element;
    enum : u64 { PER_WORD = 1 };

    static inline u32 word(T first, T)
    {
        const f32 wide = f32(first);
        u32 bits;
        memcpy(&bits, &wide, sizeof bits);
        return bits;
    }

    static inline void contiguous(u32 *words, const T *from, u64 count)
    {
        u64 i = 0;
        // GCC would copy the vector through the stack for memcpy.
        for (; i + LANES <= count; i += LANES)
            *reinterpret_cast<Floats *>(words + i) = widened(from + i);
        for (; i < count; ++i)
            words[i] = word(from[i], T(0));
    }
};

// A word is two elements that are multiplied and added together.
struct Paired {
    typedef bf16 Element;
    enum : u64 { PER_WORD = 2 };

    static inline u32 word(bf16 first, bf16 second)
    {
        return u32(first.bits) | u32(second.bits) << 16;
    }

    static inline void contiguous(u32 *words, const bf16 *from, u64 count)
    {
        memcpy(words, from, count * sizeof(u32));
    }
};

// LaneWords first … first + count - 1 of one line, along the summed axis.
template <class Scheme>
static inline void line_of_depth(u32 *words, u64 count, const Operand<typename Scheme::Element> &x,
                                 u64 line, u64 first)
{
    typedef typename Scheme::Element T;
    const T *const from = x.data + line * x.line_step + first * Scheme::PER_WORD * x.depth_step;
    const u64 step = x.depth_step;
    const u64 left = line < x.lines && first * Scheme::PER_WORD < x.depth
                         ? x.depth - first * Scheme::PER_WORD
                         : 0;
    const u64 whole = smaller(count, left / Scheme::PER_WORD);
    if (step == 1)
        Scheme::contiguous(words, from, whole);
    else
        for (u64 i = 0; i < whole; ++i) {
            const T *const one = from + i * Scheme::PER_WORD * step;
            words[i] = Scheme::word(one[0], one[(Scheme::PER_WORD - 1) * step]);
        }
    u64 done = whole;
    if (done < count && done * Scheme::PER_WORD < left) // one of the two elements remains
        words[done] = Scheme::word(from[done * Scheme::PER_WORD * step], T(0)), ++done;
    for (; done < count; ++done)
        words[done] = 0;
}

// Word number `word` of lines first … first + count - 1.
template <class Scheme>
static inline void line_of_lines(u32 *words, u64 count, const Operand<typename Scheme::Element> &x,
                                 u64 word, u64 first)
{
    typedef typename Scheme::Element T;
    const u64 depth = word * Scheme::PER_WORD;
    const u64 left = first < x.lines && depth < x.depth ? smaller(count, x.lines - first) : 0;
    const T *const from = x.data + first * x.line_step + depth * x.depth_step;
    const u64 step = x.line_step;
    if (Scheme::PER_WORD == 2 && depth + 1 < x.depth) {
        const T *const next = from + x.depth_step;
        if (step == 1)
            for (u64 i = 0; i < left; ++i)
                words[i] = Scheme::word(from[i], next[i]);
        else
            for (u64 i = 0; i < left; ++i)
                words[i] = Scheme::word(from[i * step], next[i * step]);
    } else if (Scheme::PER_WORD == 1 && step == 1) {
        Scheme::contiguous(words, from, left);
    } else {
        for (u64 i = 0; i < left; ++i)
            words[i] = Scheme::word(from[i * step], T(0));
    }
    for (u64 i = left; i < count; ++i)
        words[i] = 0;
}

// LANES words of one line, from `word` on; with `is_whole` all are within the operand.
template <class Scheme>
static inline void lanes_of_depth(u32 *words, const Operand<typename Scheme::Element> &x, u64 line,
                                  u64 word, bool is_whole)
{
    if (is_whole)
        Scheme::contiguous(words, x.data + line * x.line_step + word * Scheme::PER_WORD, LANES);
    else
        line_of_depth<Scheme>(words, LANES, x, line, word);
}

template <class Scheme>
static inline bool are_whole(const Operand<typename Scheme::Element> &x, u64 line, u64 lines,
                             u64 word)
{
    return line + lines <= x.lines && x.depth_step == 1 &&
           (word + LANES) * Scheme::PER_WORD <= x.depth;
}

#if defined(__clang__)
template <u64 stage, bool high, int... lane>
static inline LaneWords exchanged(LaneWords a, LaneWords b, std::integer_sequence<int, lane...>)
{
    constexpr int step = stage;
    return __builtin_shufflevector(
        a, b, (lane & step ? int(LANES) + lane - (high ? 0 : step) : lane + (high ? step : 0))...);
}
#else
template <u64 stage, bool high, int... lane>
static inline LaneWords exchanged(LaneWords a, LaneWords b, std::integer_sequence<int, lane...>)
{
    constexpr int step = stage;
    typedef i32 Lanes __attribute__((vector_size(VECTOR_BYTES)));
    const Lanes from = {
        (lane & step ? int(LANES) + lane - (high ? 0 : step) : lane + (high ? step : 0))...};
    return LaneWords(__builtin_shuffle(a, b, from));
}
#endif

// LANES lines of LANES words become columns: lines `stage` apart swap their off-diagonal parts.
template <u64 stage> static inline void transpose(LaneWords (&lines)[LANES])
{
    typedef std::make_integer_sequence<int, int(LANES)> All;
#pragma GCC unroll 16
    for (u64 i = 0; i < LANES; ++i) {
        if (i & stage)
            continue;
        const LaneWords a = lines[i];
        const LaneWords b = lines[i + stage];
        lines[i] = exchanged<stage, false>(a, b, All());
        lines[i + stage] = exchanged<stage, true>(a, b, All());
    }
    if constexpr (stage > 1)
        transpose<stage / 2>(lines);
}

// `words` words of `lines` lines, `step` apart; both are rounded up to whole numbers when written.
template <class Scheme>
static inline void pack_left(u32 *out, u64 step, const Operand<typename Scheme::Element> &x,
                            u64 lines, u64 words)
{
    if (x.depth_step == 1 || x.line_step != 1) {
        for (u64 line = 0; line < lines; ++line)
            line_of_depth<Scheme>(out + line * step, words, x, line, 0);
        return;
    }
    for (u64 word = 0; word < words; word += LANES)
        for (u64 line = 0; line < lines; line += LANES) {
            LaneWords block[LANES];
            for (u64 i = 0; i < LANES; ++i)
                line_of_lines<Scheme>(reinterpret_cast<u32 *>(block + i), LANES, x, word + i, line);
            transpose<LANES / 2>(block);
            for (u64 i = 0; i < LANES; ++i)
                memcpy(out + (line + i) * step + word, block + i, sizeof(LaneWords));
        }
}

// Strips of `words` lines, each of STRIP words; `lines` is a whole number of strips.
template <class Scheme>
static inline void pack_right(u32 *out, const Operand<typename Scheme::Element> &x, u64 lines,
                             u64 words)
{
    if (x.line_step == 1 || x.depth_step != 1) {
        for (u64 word = 0; word < words; ++word)
            for (u64 line = 0; line < lines; line += STRIP)
                line_of_lines<Scheme>(out + line * words + word * STRIP, STRIP, x, word, line);
        return;
    }
    for (u64 line = 0; line < lines; line += LANES)
        for (u64 word = 0; word < words; word += LANES) {
            LaneWords block[LANES];
            const bool is_whole = are_whole<Scheme>(x, line, LANES, word);
            for (u64 i = 0; i < LANES; ++i) {
                lanes_of_depth<Scheme>(reinterpret_cast<u32 *>(block + i), x, line + i, word,
                                       is_whole);
                // The lines lie too far apart for a CPU's own prefetching.
                __builtin_prefetch(x.data + (line + LANES + i) * x.line_step +
                                   word * Scheme::PER_WORD);
            }
            transpose<LANES / 2>(block);
            u32 *const strip = out + line / STRIP * STRIP * words + line % STRIP;
            for (u64 i = 0; i < smaller(LANES, words - word); ++i)
                memcpy(strip + (word + i) * STRIP, block + i, sizeof(LaneWords));
        }
}

#endif
