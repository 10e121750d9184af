// The blocked product of packed operands, for CPUs: products of matrices, and convolutions.
//
// Operands and results are classes. Operands have `lines`, `depth` and `part_of`. A left operand
// also has `pack_left`, a right operand `pack_right`, and a result has `write`.
#ifndef UBRIDGE_PACKED_PRODUCT_H
#define UBRIDGE_PACKED_PRODUCT_H

#include "packing.h"

#include <stdlib.h>

#include <memory>
#include <new>

#if defined(__AMX_BF16__)
#include "amx.h"
#endif

enum : u64 {
    PART = 256,  // rows and columns that are multiplied at a time
    DEPTH = 192, // words along the summed axis
};
// The sums of a strip and ROWS rows fill the registers.
#if defined(__AVX512F__)
enum : u64 { ROWS = 12 };
#elif defined(__aarch64__)
enum : u64 { ROWS = 8 };
#else
enum : u64 { ROWS = 6 };
#endif

template <class T> DEVICE_FUNCTION Floats multiplied(Floats sums, u32 left, LaneWords right, Widened<T>)
{
    f32 factor;
    memcpy(&factor, &left, sizeof factor);
    return sums + factor * Floats(right);
}

#if defined(__AVX512BF16__)
DEVICE_FUNCTION Floats multiplied(Floats sums, u32 left, LaneWords right, Paired)
{
    const LaneWords factor = left - LaneWords{};
    return Floats(_mm512_dpbf16_ps(__m512(sums), __m512bh(factor), __m512bh(right)));
}
#endif

// Multiplies `rows` rows by a strip. sums[i, j], `step` from row to row, are written or
// accumulated. Not inlined, so that the function has all registers: an address in memory costs as
// much as a factor.
template <class Scheme, u64 rows>
__attribute__((noinline)) static void multiply_strip(const u32 *left, u64 left_step,
                                                     const u32 *strip, u64 words, f32 *sums,
                                                     u64 step, bool add)
{
    Floats made[rows][2] = {};
    // Instructions address three rows from one register.
    const u32 *lines[(rows + 2) / 3];
#pragma GCC unroll 4
    for (u64 i = 0; i < (rows + 2) / 3; ++i)
        lines[i] = left + 3 * i * left_step;
    for (u64 word = 0; word < words; ++word) {
        const LaneWords *const right = reinterpret_cast<const LaneWords *>(strip + word * STRIP);
#pragma GCC unroll 12
        for (u64 row = 0; row < rows; ++row) {
            const u32 factor = lines[row / 3][row % 3 * left_step + word];
            made[row][0] = multiplied(made[row][0], factor, right[0], Scheme());
            made[row][1] = multiplied(made[row][1], factor, right[1], Scheme());
        }
    }
#pragma GCC unroll 12
    for (u64 row = 0; row < rows; ++row) {
        Floats *const to = reinterpret_cast<Floats *>(sums + row * step);
        to[0] = add ? to[0] + made[row][0] : made[row][0];
        to[1] = add ? to[1] + made[row][1] : made[row][1];
    }
}

template <class Scheme, u64 rows>
static inline void multiply_rest(u64 count, const u32 *left, u64 left_step, const u32 *strip,
                                 u64 words, f32 *sums, u64 step, bool add)
{
    if (count == rows)
        multiply_strip<Scheme, rows>(left, left_step, strip, words, sums, step, add);
    else if constexpr (rows > 1)
        multiply_rest<Scheme, rows - 1>(count, left, left_step, strip, words, sums, step, add);
}

// The operands of a part and its sums: left is lines of words, right strips.
struct Part {
    const u32 *left;
    u64 left_step;
    const u32 *right;
    f32 *sums;
    u64 rows;
    u64 columns;
};

// The next part of the right operand to pack; a product prefetches this part in small pieces. Its
// lines are contiguous.
struct Next {
    const u8 *from;
    u64 lines, step, bytes; // lines' distance and length

    template <class Other> static Next of(const Other &) { return {}; }

    template <class T> static Next of(const Operand<T> &x)
    {
        const u8 *const from = reinterpret_cast<const u8 *>(x.data);
        if (x.depth_step == 1)
            return {from, x.lines, x.line_step * sizeof(T), x.depth * sizeof(T)};
        if (x.line_step == 1)
            return {from, x.depth, x.depth_step * sizeof(T), x.lines * sizeof(T)};
        return {};
    }

    void ask_for(u64 share, u64 shares) const
    {
        for (u64 line = lines * share / shares; line < lines * (share + 1) / shares; ++line)
            for (u64 at = 0; at < bytes; at += 64)
                __builtin_prefetch(from + line * step + at, 0, 2);
    }
};

template <class Scheme>
static inline void multiply_part(const Part &part, u64 words, bool add, const Next &next)
{
    const u64 step = whole_times(part.columns, STRIP);
    const u64 lines = (part.rows + ROWS - 1) / ROWS, shares = lines * (step / STRIP);
    u64 share = 0;
    for (u64 column = 0; column < part.columns; column += STRIP)
        for (u64 row = 0; row < part.rows; row += ROWS) {
            next.ask_for(share++, shares);
            multiply_rest<Scheme, ROWS>(smaller(ROWS, part.rows - row),
                                        part.left + row * part.left_step, part.left_step,
                                        part.right + column * words, words,
                                        part.sums + row * step + column, step, add);
        }
}

#if defined(__AMX_BF16__)
static_assert(STRIP == 2 * TILE, "a strip is two tiles wide");

// Multiplies 32 rows by a strip; `words` is a whole number of tiles.
static inline void multiply_tiles(const u32 *left, u64 left_step, const u32 *strip, u64 words,
                                  f32 *sums, u64 step, bool add)
{
    f32 *const lower = sums + TILE * step;
    if (add) {
        AMX_LOAD(0, sums, step);
        AMX_LOAD(1, sums + TILE, step);
        AMX_LOAD(2, lower, step);
        AMX_LOAD(3, lower + TILE, step);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (u64 word = 0; word < words; word += TILE) {
        AMX_LOAD(4, left + word, left_step);
        AMX_LOAD(5, left + TILE * left_step + word, left_step);
        AMX_LOAD(6, strip + word * STRIP, STRIP);
        AMX_LOAD(7, strip + word * STRIP + TILE, STRIP);
        AMX_MULTIPLY(0, 4, 6);
        AMX_MULTIPLY(1, 4, 7);
        AMX_MULTIPLY(2, 5, 6);
        AMX_MULTIPLY(3, 5, 7);
    }
    AMX_STORE(0, sums, step);
    AMX_STORE(1, sums + TILE, step);
    AMX_STORE(2, lower, step);
    AMX_STORE(3, lower + TILE, step);
}

template <>
inline void multiply_part<Paired>(const Part &part, u64 words, bool add, const Next &next)
{
    const TileShapes shapes;
    const u64 step = whole_times(part.columns, STRIP);
    const u64 lines = (part.rows + 2 * TILE - 1) / (2 * TILE), shares = lines * (step / STRIP);
    u64 share = 0;
    for (u64 column = 0; column < part.columns; column += STRIP)
        for (u64 row = 0; row < part.rows; row += 2 * TILE) {
            next.ask_for(share++, shares);
            multiply_tiles(part.left + row * part.left_step, part.left_step,
                           part.right + column * words, words, part.sums + row * step + column,
                           step, add);
        }
}
#endif

struct Released {
    void operator()(void *memory) const { free(memory); }
};

// Padded size of operands: tiles take whole lines of words, and whole rows.
template <class Scheme> static inline u64 filled(u64 length, [[maybe_unused]] u64 of_tiles)
{
#if defined(__AMX_BF16__)
    return Scheme::PER_WORD == 2 ? whole_times(length, of_tiles * TILE) : length;
#else
    return length;
#endif
}

template <class Scheme> static inline u64 words_of(u64 depth)
{
    return filled<Scheme>((depth + Scheme::PER_WORD - 1) / Scheme::PER_WORD, 1);
}

template <class T>
static inline Operand<T> part_of(const Operand<T> &x, u64 line, u64 lines, u64 first, u64 depth)
{
    return {x.data + line * x.line_step + first * x.depth_step, x.line_step, x.depth_step, lines,
            depth};
}

static u32 *allocated(u64 words)
{
    // At least one line: some systems return null for an allocation of 0 bytes.
    void *const memory = aligned_alloc(64, whole_times(words * sizeof(u32) + 1, 64));
    if (memory == nullptr)
        throw std::bad_alloc();
    return static_cast<u32 *>(memory);
}

// Row-major results, `step` from row to row.
template <class T> struct Matrix {
    T *data;
    u64 step;

    void write(u64 row, u64 column, const f32 *sums, u64 count) const
    {
        T *const to = data + row * step + column;
        for (u64 j = 0; j < count; ++j)
            to[j] = T(sums[j]);
    }
};

template <class Scheme, class Left, class Right, class Result>
static void multiply_piece(const Left &a, const Right &b, const Result &out)
{
    const u64 most_words = smaller(DEPTH, words_of<Scheme>(a.depth));
    // Lines that lie a power of two apart would share places of the cache.
    const u64 left_step = whole_times(most_words, LANES) + 16;
    const u64 left_words = whole_times(smaller(PART, a.lines), 2 * LANES) * left_step;
    const u64 columns = whole_times(smaller(PART, b.lines), STRIP);
    const u64 right_words = columns * whole_times(most_words, LANES);
    const u64 sums_words = whole_times(smaller(PART, a.lines), 2 * LANES) * columns;
    const std::unique_ptr<u32, Released> memory(allocated(left_words + right_words + sums_words));
    u32 *const right = memory.get();
    u32 *const left = right + right_words;
    f32 *const sums = reinterpret_cast<f32 *>(left + left_words);

    if (a.depth == 0)
        memset(sums, 0, sums_words * sizeof(f32));
    for (u64 row = 0; row < a.lines; row += PART)
        for (u64 column = 0; column < b.lines; column += PART) {
            const Part part = {left, left_step, right, sums, smaller(PART, a.lines - row),
                               smaller(PART, b.lines - column)};
            const u64 step = whole_times(part.columns, STRIP);
            for (u64 first = 0; first < a.depth; first += DEPTH * Scheme::PER_WORD) {
                const u64 depth = smaller(DEPTH * Scheme::PER_WORD, a.depth - first);
                const u64 words = words_of<Scheme>(depth);
                pack_left<Scheme>(left, left_step, part_of(a, row, part.rows, first, depth),
                                 filled<Scheme>(part.rows, 2), words);
                pack_right<Scheme>(right, part_of(b, column, part.columns, first, depth), step,
                                  words);
                const bool ends = first + depth == a.depth;
                const u64 next = ends ? 0 : first + depth;
                const u64 next_column = ends ? column + part.columns : column;
                const u64 next_columns = smaller(PART, b.lines - next_column);
                const u64 next_depth = smaller(DEPTH * Scheme::PER_WORD, a.depth - next);
                multiply_part<Scheme>(
                    part, words, first != 0,
                    Next::of(part_of(b, next_column, next_columns, next, next_depth)));
            }
            for (u64 i = 0; i < part.rows; ++i)
                out.write(row + i, column, sums + i * step, part.columns);
        }
}

#if defined(__AVX512BF16__)
typedef Paired SchemeOf_bf16;
#else
typedef Widened<bf16> SchemeOf_bf16;
#endif
typedef Widened<f16> SchemeOf_f16;
typedef Widened<f32> SchemeOf_f32;

#endif
