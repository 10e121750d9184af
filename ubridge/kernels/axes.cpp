// Operations along one axis of (left, length, right), for CPUs: running sums, products, selection
// by ids, and the order of rows. Also elements limited to two bounds, and copies of rows. Arrays
// are contiguous; grids have one dimension, of any length.
//
// Floats are added in f64 and rounded once. Sums of f64 also add up rounding errors (Knuth's
// two-sum), so that the error does not grow with the length. f16 and bf16 are multiplied in f32.
#include "number.h"
#include "ordering.h"
#include "vectors.h"

#include <uhal/report.h>

enum : u64 {
    TOGETHER = 8, // rows whose chains of additions run side by side
    COLUMNS = 256 // neighbors that are added together
};

// The type of running sums of T.
template <class T, bool integer> struct Wider {
    typedef f64 Type;
};
template <class T> struct Wider<T, true> {
    typedef T Type;
};
template <class T> using Wide = typename Wider<T, Number<T>::is_integer>::Type;

// A wide value as T. f16 and bf16 are first rounded to f32; this adds f32's rounding error.
template <class T> static inline T rounded(Wide<T> x)
{
    return narrow<T>(Compute<T>(x));
}

template <class T> struct RunningSum {
    // The start value does not change the sign of a zero.
    Wide<T> sum = Number<T>::is_integer ? Wide<T>(0) : Wide<T>(-0.0);

    void take(T x) { sum = add(sum, Wide<T>(widen(x))); }
    T value() const { return rounded<T>(sum); }
};

template <> struct RunningSum<f64> {
    f64 sum = -0.0, slip = -0.0;

    void take(f64 x)
    {
        const f64 total = sum + x;
        const f64 back = total - sum;
        slip += (sum - (total - back)) + (x - back);
        sum = total;
    }
    f64 value() const
    {
        const f64 whole = sum + slip;
        // With an infinity `slip` is NaN and is dropped; a zero keeps its sign.
        return slip != 0.0 && whole == whole ? whole : sum;
    }
};

// The type of running products of T.
template <class T, bool integer> struct Factor {
    typedef Compute<T> Type;
};
template <class T> struct Factor<T, true> {
    typedef Modular<T> Type;
};

template <class T> struct RunningProduct {
    typedef typename Factor<T, Number<T>::is_integer>::Type Product;
    Product product = 1;

    void take(T x) { product *= Product(widen(x)); }
    void join(const RunningProduct &other) { product *= other.product; }
    T value() const { return T(product); }
};

// Some rows of neighbors. Without `each`, only the last state of a row is written.
template <class State, bool each, class T>
static inline void run_rows(const T *x, T *out, u64 rows, u64 length)
{
    State states[TOGETHER];
    for (u64 i = 0; i < length; ++i)
        for (u64 row = 0; row < rows; ++row) {
            states[row].take(x[row * length + i]);
            if (each)
                out[row * length + i] = states[row].value();
        }
    if (!each)
        for (u64 row = 0; row < rows; ++row)
            out[row] = states[row].value();
}

// The product of a row, by parallel chains; the order of factors may differ.
template <class T> static inline T product_of(const T *x, u64 length)
{
    RunningProduct<T> states[2 * LANES];
    u64 i = 0;
    for (; i + 2 * LANES <= length; i += 2 * LANES)
        for (u64 lane = 0; lane < 2 * LANES; ++lane)
            states[lane].take(x[i + lane]);
    for (; i < length; ++i)
        states[i % (2 * LANES)].take(x[i]);
    for (u64 lane = 1; lane < 2 * LANES; ++lane)
        states[0].join(states[lane]);
    return states[0].value();
}

// Some neighboring columns; elements of a column lie `right` apart.
template <class State, bool each, class T>
static inline void run_columns(const T *x, T *out, u64 columns, u64 length, u64 right)
{
    State states[COLUMNS];
    for (u64 i = 0; i < length; ++i)
        for (u64 column = 0; column < columns; ++column) {
            states[column].take(x[i * right + column]);
            if (each)
                out[i * right + column] = states[column].value();
        }
    if (!each)
        for (u64 column = 0; column < columns; ++column)
            out[column] = states[column].value();
}

// A block's share of left * right lines.
template <class State, bool each, class T>
static void run_lines(const T *x, T *out, const Piece &lines, u64 length, u64 right)
{
    const u64 last = lines.first + lines.length;
    for (u64 line = lines.first; line < last;) {
        const u64 left = line / right, column = line % right;
        const T *const from = x + left * length * right + column;
        T *const to = each ? out + left * length * right + column : out + line;
        if (right == 1) {
            const u64 rows = smaller(TOGETHER, last - line);
            if (!each && length >= 4 * LANES) {
                if constexpr (!each)
                    for (u64 row = 0; row < rows; ++row)
                        to[row] = product_of(from + row * length, length);
            } else if (rows == TOGETHER) {
                run_rows<State, each>(from, to, TOGETHER, length);
            } else {
                run_rows<State, each>(from, to, rows, length);
            }
            line += rows;
        } else {
            const u64 columns = smaller(smaller(COLUMNS, right - column), last - line);
            run_columns<State, each>(from, to, columns, length, right);
            line += columns;
        }
    }
}

#define LINES(T)                                                                                   \
    KERNEL(cumsum_##T, (const T *src, T *dst, u64 left, u64 length, u64 right))                    \
    {                                                                                              \
        const Piece lines(left * right, blockIdx.x, gridDim.x, TOGETHER);                          \
        run_lines<RunningSum<T>, true>(src, dst, lines, length, right);                            \
    }                                                                                              \
    KERNEL(prod_##T, (const T *src, T *dst, u64 left, u64 length, u64 right))                      \
    {                                                                                              \
        const Piece lines(left * right, blockIdx.x, gridDim.x, TOGETHER);                          \
        run_lines<RunningProduct<T>, false>(src, dst, lines, length, right);                       \
    }

LINES(bf16)
LINES(f16)
LINES(f32)
LINES(f64)
LINES(u8)
LINES(u32)
LINES(i16)
LINES(i32)
LINES(i64)

// -- bounds ---------------------------------------------------------------------------------------

// Elements below `low` become `low`, then elements above `high` become `high`. NaN stays NaN, and a
// bound of NaN makes everything NaN.
template <class T>
static inline void clip(const T *from, T *to, u64 count, Compute<T> low, Compute<T> high)
{
    if (low != low || high != high) {
        for (u64 i = 0; i < count; ++i)
            to[i] = narrow<T>(low + high);
        return;
    }
    for (u64 i = 0; i < count; ++i) {
        Compute<T> x = widen(from[i]);
        x = x < low ? low : x;
        to[i] = narrow<T>(x > high ? high : x);
    }
}

#define CLIP(T)                                                                                    \
    KERNEL(clip_##T, (u64 numel, const T *inp, T *out, f64 min, f64 max))                          \
    {                                                                                              \
        const Piece piece(numel, blockIdx.x, gridDim.x, 64);                                       \
        clip(inp + piece.first, out + piece.first, piece.length,                                   \
             widen(narrow<T>(convert<T>(min))), widen(narrow<T>(convert<T>(max))));                \
    }

CLIP(bf16)
CLIP(f16)
CLIP(f32)
CLIP(f64)

// -- choices --------------------------------------------------------------------------------------

// The kind of a run of ids: ascending, descending, in any order, or with ids that select nothing.
enum Order { UPWARD, DOWNWARD, ANY_ORDER, SOME_MISSING };

// The length of the axis that ids choose from. With `has_none` the highest id of its type selects
// nothing, and is not reported.
struct Bound {
    u64 length;
    bool has_none;

    template <class I> bool is_none(I id) const
    {
        return has_none & (id == Limits<I>::highest);
    }
    template <class I> bool holds(I id) const { return (u64(id) < length) & !is_none(id); }
};

template <class I> static inline Order order_of(const I *ids, u64 count, Bound bound)
{
    bool all = true, upward = true, downward = true;
    for (u64 i = 0; i < count; ++i)
        all &= bound.holds(ids[i]);
    for (u64 i = 1; i < count; ++i) {
        upward &= u64(ids[i]) == u64(ids[i - 1]) + 1;
        downward &= u64(ids[i]) + 1 == u64(ids[i - 1]);
    }
    return !all ? SOME_MISSING : upward ? UPWARD : downward ? DOWNWARD : ANY_ORDER;
}

// out[i] = from[ids[i]], and 0 for an id that selects nothing.
template <class I, class W>
static inline void choose(const char *entry, Order order, const I *ids, u64 count, u64 position,
                          const W *from, W *out, Bound bound)
{
    switch (order) {
    case UPWARD:
        memcpy(out, from + u64(ids[0]), count * sizeof(W));
        return;
    case DOWNWARD: {
        const W *const first = from + u64(ids[count - 1]);
        for (u64 i = 0; i < count; ++i)
            out[i] = first[count - 1 - i];
        return;
    }
    case ANY_ORDER:
        for (u64 i = 0; i < count; ++i)
            out[i] = from[u64(ids[i])];
        return;
    case SOME_MISSING:
        for (u64 i = 0; i < count; ++i) {
            const bool found = bound.holds(ids[i]);
            if (!found && !bound.is_none(ids[i]))
                report_index(entry, position + i, i64(ids[i]), bound.length);
            out[i] = found ? from[u64(ids[i])] : W(0);
        }
    }
}

// out[l, j] = inp[l, ids[j]], for elements of a number of bytes. Types of one size share the code.
template <class I, class W>
__attribute__((noinline)) static void choose_rows(const char *entry, const Piece &piece,
                                                  const I *ids, u64 count, const W *inp, W *out,
                                                  Bound bound)
{
    const u64 last = piece.first + piece.length;
    // A block of several rows classifies the ids once.
    const bool is_once = piece.length > count;
    const Order whole = is_once ? order_of(ids, count, bound) : ANY_ORDER;
    for (u64 i = piece.first; i < last;) {
        const u64 row = i / count, place = i % count;
        const u64 some = smaller(count - place, last - i);
        const Order order = is_once ? whole : order_of(ids + place, some, bound);
        choose(entry, order, ids + place, some, place, inp + row * bound.length, out + i, bound);
        i += some;
    }
}

#define CHOICE(I, T)                                                                               \
    KERNEL(is_##I##_##T,                                                                           \
           (const I *ids, const T *inp, T *out, u64 left, u64 src_dim, u64 ids_dim,                \
            bool has_none))                                                                        \
    {                                                                                              \
        const Piece piece(left * ids_dim, blockIdx.x, gridDim.x, 64);                              \
        if (piece.length > 0)                                                                      \
            choose_rows("is_" #I "_" #T, piece, ids, ids_dim, words(inp), words(out),              \
                        Bound{src_dim, has_none});                                                 \
    }

#define CHOICES(T)                                                                                 \
    CHOICE(u8, T)                                                                                  \
    CHOICE(u32, T)                                                                                 \
    CHOICE(i64, T)

CHOICES(bf16)
CHOICES(f16)
CHOICES(f32)
CHOICES(f64)
CHOICES(f8e4m3)
CHOICES(u8)
CHOICES(u32)
CHOICES(i16)
CHOICES(i32)
CHOICES(i64)

// -- order ----------------------------------------------------------------------------------------

#define IN_ORDER(name, T, Result, function)                                                        \
    KERNEL(name, (const T *x, Result *dst, u64 rows, u64 ncols))                                   \
    {                                                                                              \
        const Piece piece(rows, blockIdx.x, gridDim.x, 1);                                         \
        const u64 first = piece.first * ncols;                                                     \
        function(x + first, dst + first, piece.length, ncols);                                     \
    }
#define ORDER(T)                                                                                   \
    IN_ORDER(asort_asc_##T, T, u32, order_rows<true>)                                              \
    IN_ORDER(asort_desc_##T, T, u32, order_rows<false>)                                            \
    IN_ORDER(sort_asc_##T, T, T, sort_rows<true>)                                                  \
    IN_ORDER(sort_desc_##T, T, T, sort_rows<false>)

ORDER(bf16)
ORDER(f16)
ORDER(f32)
ORDER(f64)
ORDER(u8)
ORDER(u32)
ORDER(i16)
ORDER(i32)
ORDER(i64)

// -- rows with a pitch ----------------------------------------------------------------------------

enum : u64 { NARROW = 8 }; // columns of rows that are copied element by element

template <u64 columns, class W>
static inline void copy_narrow(const W *from, W *to, u64 rows, u64 from_step, u64 to_step)
{
    for (u64 row = 0; row < rows; ++row)
        for (u64 column = 0; column < columns; ++column)
            to[row * to_step + column] = from[row * from_step + column];
}

// Copies a row. CPUs compare the last 12 bits of addresses: they would take reads a little before
// the writes, modulo 4096, for reads of what was just written. Parts are then copied from the end.
static inline void copy_row(void *to, const void *from, u64 bytes)
{
    enum : u64 { PART = 256 }; // read whole before it is written
    const u64 ahead = (reinterpret_cast<u64>(to) - reinterpret_cast<u64>(from)) & 4095;
    if (ahead == 0 || ahead > 2 * PART) {
        memmove(to, from, bytes);
        return;
    }
    u64 left = bytes;
    for (; left >= PART; left -= PART)
        memmove(static_cast<u8 *>(to) + left - PART, static_cast<const u8 *>(from) + left - PART,
                PART);
    memmove(to, from, left);
}

// A block's share of rows * columns elements. Types of one size share the code.
template <class W>
__attribute__((noinline)) static void copy_rows(BLOCK block, const W *src, W *dst, u64 rows,
                                                u64 columns, u64 src_step, u64 dst_step)
{
    if (columns <= NARROW) {
        const Piece piece(rows, block.blockIdx.x, block.gridDim.x, 64);
        const W *const from = src + piece.first * src_step;
        W *const to = dst + piece.first * dst_step;
        switch (columns) {
        case 1:
            return copy_narrow<1>(from, to, piece.length, src_step, dst_step);
        case 2:
            return copy_narrow<2>(from, to, piece.length, src_step, dst_step);
        case 3:
            return copy_narrow<3>(from, to, piece.length, src_step, dst_step);
        case 4:
            return copy_narrow<4>(from, to, piece.length, src_step, dst_step);
        default:
            for (u64 row = 0; row < piece.length; ++row)
                for (u64 column = 0; column < columns; ++column)
                    to[row * dst_step + column] = from[row * src_step + column];
            return;
        }
    }
    const Piece piece(rows * columns, block.blockIdx.x, block.gridDim.x, 64);
    const u64 last = piece.first + piece.length;
    for (u64 i = piece.first; i < last;) {
        const u64 row = i / columns, column = i % columns;
        const u64 count = smaller(columns - column, last - i);
        copy_row(dst + row * dst_step + column, src + row * src_step + column, count * sizeof(W));
        i += count;
    }
}

#define COPY_ROWS(T)                                                                               \
    KERNEL(copy2d_##T, (const T *src, T *dst, u32 d1, u32 d2, u32 src_s, u32 dst_s))               \
    {                                                                                              \
        copy_rows(THIS_BLOCK, words(src), words(dst), d1, d2, src_s, dst_s);                       \
    }

COPY_ROWS(bf16)
COPY_ROWS(f16)
COPY_ROWS(f32)
COPY_ROWS(f64)
COPY_ROWS(f8e4m3)
COPY_ROWS(u8)
COPY_ROWS(u32)
COPY_ROWS(i16)
COPY_ROWS(i32)
COPY_ROWS(i64)
