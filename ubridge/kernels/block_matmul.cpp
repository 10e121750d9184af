// Weights of blocks times vectors of bytes, for CPUs. `activations_<elements>_<type>` turns
// vectors into bytes. `product_<format>_<type>` multiplies by these bytes: out[v, row] = sum over
// l of weight[row, l] x[v, l]. Products of integers are exact. Their sums are taken in f32 and
// rounded once.
//
// `indexed_<format>` takes several weights, and the id of a weight for each product.
//
// A piece of the rows is computed in tiles, each for all vectors before the next tile, so that
// blocks are read from memory once. Grids are (pieces). ubridge/ops/blocks.py describes the
// bytes.
#include "block_panels.h"
#include "block_rows.h"

#include <uhal/report.h>

// -- vectors of bytes -----------------------------------------------------------------------------

template <class T, class Side, u32 ELEMENTS>
ONE_FUNCTION void quantize_piece(const T *x, u8 *out, const Piece &vectors, u64 columns)
{
    const u64 filled = whole_times(columns, FILLED);
    for (u64 v = vectors.first; v < vectors.first + vectors.length; ++v) {
        u8 *const to = out + v * (filled / 4 * 5);
        i8 *const quants = reinterpret_cast<i8 *>(to);
        Side *const sides = reinterpret_cast<Side *>(to + filled);
        for (u64 i = 0; i < columns; i += ELEMENTS) {
            f32 wide[ELEMENTS];
            widen(x + v * columns + i, ELEMENTS, wide);
            if constexpr (ELEMENTS == 32)
                quantize_32(wide, quants + i, sides + i / 32);
            else
                quantize_256(wide, quants + i, sides + i / 256);
        }
        memset(quants + columns, 0, filled - columns);
        memset(sides + columns / ELEMENTS, 0, (filled - columns) / 4);
    }
}

#define ACTIVATIONS(T, ELEMENTS)                                                                   \
    KERNEL(activations_##ELEMENTS##_##T, (const T *x, u8 *out, u64 vectors, u64 columns))          \
    {                                                                                              \
        const Piece piece(vectors, blockIdx.x, gridDim.x, 1);                                      \
        quantize_piece<T, Side##ELEMENTS, ELEMENTS>(x, out, piece, columns);                       \
    }

ACTIVATIONS(f32, 32)
ACTIVATIONS(f16, 32)
ACTIVATIONS(bf16, 32)
ACTIVATIONS(f32, 256)
ACTIVATIONS(f16, 256)
ACTIVATIONS(bf16, 256)

// -- products -------------------------------------------------------------------------------------

// The data that all tiles of a weight's piece share.
struct Work {
    const u8 *weight; // at the first row
    u64 rows, blocks;
    Vectors vectors;
    u64 count;
    u64 few; // number of vectors whose sums have the order of one vector's: no panels
};

#if HAS_WIDE

// results[vector][work.rows]. Each row of a pass of one vector belongs to another run of neighboring
// rows; each run is read from memory in order.
template <class Block>
ONE_FUNCTION void multiply_shared(const Block *rows, const Work &work, f32 *results)
{
    constexpr u32 IN_FOURS = Way<Block>::IN_FOURS;
    if constexpr (Way<Block>::IN_LANES)
        if (work.count != 1) {
            const VectorsByLanes<Block> vectors(work.vectors, work.count, work.blocks);
            vectors.multiply(rows, work.rows, results);
            return;
        }
    const SharedParts<Block> shared(work.vectors, work.count, work.blocks);
    if constexpr (!Way<Block>::IN_LANES)
        if (work.count != 1) {
            multiply_all(rows, work.rows, work.blocks, shared, results);
            return;
        }
    u64 row = 0;
    if constexpr (IN_FOURS != NEVER) {
        const u64 apart = IN_FOURS == ALWAYS || looks_far() ? work.rows / 4 : 0;
        for (; row < apart; ++row)
            multiply_rows<Block, 4>(rows + row * work.blocks, apart, work.blocks, shared, 0,
                                    results + row);
        row = apart * 4;
    }
    for (; row < work.rows; ++row)
        multiply_rows<Block, 1>(rows + row * work.blocks, 1, work.blocks, shared, 0, results + row);
}

#endif

// results[vector][work.rows].
template <class Block>
DEVICE_FUNCTION void multiply_few(const Block *rows, const Work &work, f32 *results)
{
#if HAS_WIDE
    if constexpr (Way<Block>::BLOCKS != 0)
        return multiply_shared(rows, work, results);
#endif
    for (u64 row = 0; row < work.rows; ++row)
        for (u64 v = 0; v < work.count; v += SPAN_VECTORS)
            multiply_spans(rows + row * work.blocks, work.blocks, work.vectors, v,
                           u32(smaller(SPAN_VECTORS, work.count - v)),
                           results + v * work.rows + row, work.rows);
}

// results[vector][step]; the first `length` of each vector are rows from `first` on.
typedef void (*Deliver)(const f32 *results, u64 step, u64 first, u64 length, u64 vectors, void *out,
                        u64 out_rows);

template <class Block>
ONE_FUNCTION void multiply_piece(const Work &work, Deliver deliver, void *out, u64 first_row,
                                 u64 out_rows)
{
    const Block *const rows = reinterpret_cast<const Block *>(work.weight);
#if HAS_WIDE
    constexpr Kind KIND = kind_of<Block>;
    static_assert(!KIND.has_minimum || KIND.raised == 0, "integers with a minimum are not raised");
    if (work.count > work.few && work.count > few_of<Block>) {
        const u64 columns = work.blocks * Block::ELEMENTS;
        Room room(work.count * PANEL + Panel::size(columns, KIND.span) +
                  Shares::size(work.count, columns, KIND.span));
        f32 *const results = room.take<f32>(work.count * PANEL);
        const Panel panel(room, columns, KIND.span);
        const Shares shares(room, work.count, columns, KIND.span, has_each<SideOf<Block>>);
        share<SideOf<Block>, KIND.span>(work.vectors, work.count, KIND.raised, shares);
        for (u64 row = 0; row < work.rows; row += PANEL) {
            const u64 length = smaller(PANEL, work.rows - row);
            const Block *const here = rows + row * work.blocks;
            unpack(here, work.blocks, length, panel);
            const Next next = {here + length * work.blocks,
                               smaller(PANEL, work.rows - row - length) * work.blocks *
                                   sizeof(Block)};
            multiply_panel<KIND.has_sign, KIND.has_minimum, KIND.span>(
                panel, work.vectors, work.count, shares, next, results);
            deliver(results, PANEL, first_row + row, length, work.count, out, out_rows);
        }
        return;
    }
#endif
    const Held<f32> results = hold<f32>(work.count * work.rows);
    multiply_few(rows, work, results.get());
    deliver(results.get(), work.rows, first_row, work.rows, work.count, out, out_rows);
}

template <class T>
ONE_FUNCTION void deliver_as(const f32 *results, u64 step, u64 first, u64 length, u64 vectors,
                             void *out, u64 out_rows)
{
    for (u64 v = 0; v < vectors; ++v)
        for (u64 row = 0; row < length; ++row)
            static_cast<T *>(out)[v * out_rows + first + row] = T(results[v * step + row]);
}

#define PRODUCT_AS(format, T, Block)                                                               \
    KERNEL(product_##format##_##T,                                                                 \
           (const void *weight, const u8 *x, T *out, u64 rows, u64 columns, u64 vectors, u64 few)) \
    {                                                                                              \
        const Piece piece(rows, blockIdx.x, gridDim.x, PANEL);                                     \
        const u64 blocks = columns / Block::ELEMENTS;                                              \
        const u8 *const from =                                                                     \
            static_cast<const u8 *>(weight) + piece.first * blocks * sizeof(Block);                \
        if (piece.length != 0)                                                                     \
            multiply_piece<Block>({from, piece.length, blocks, {x, columns}, vectors, few},        \
                                  deliver_as<T>, out, piece.first, rows);                          \
    }
#define PRODUCTS(format, Block)                                                                    \
    PRODUCT_AS(format, f32, Block)                                                                 \
    PRODUCT_AS(format, f16, Block)                                                                 \
    PRODUCT_AS(format, bf16, Block)

FORMATS_OF_CANDLE(PRODUCTS)
FORMATS_BESIDE(PRODUCTS)

// -- products by ids ------------------------------------------------------------------------------

// Several weights, one after the other. Each product is by one weight: product t multiplies vector
// t / sharing by the weight ids[t].
struct Choices {
    const char *entry;
    const u8 *weights;
    u64 count, rows, blocks, row_bytes;
    Vectors vectors;
    u64 sharing;
    const u32 *ids;
    u64 products;
    u64 few;
};

// Products in the order of their weights: weight w has the products order[ends[w - 1]] to
// order[ends[w] - 1]. Products whose id is out of bounds are behind ends[count - 1].
struct Order {
    Held<u32> ends, order;

    DEVICE_METHOD Order(const Choices &all)
        : ends(hold<u32>(all.count + 1)), order(hold<u32>(all.products))
    {
        memset(ends.get(), 0, (all.count + 1) * sizeof(u32));
        for (u64 t = 0; t < all.products; ++t)
            ++ends.get()[smaller(all.ids[t], all.count)];
        u32 before = 0;
        for (u64 w = 0; w <= all.count; ++w) {
            const u32 here = ends.get()[w];
            ends.get()[w] = before;
            before += here;
        }
        for (u64 t = 0; t < all.products; ++t)
            order.get()[ends.get()[smaller(all.ids[t], all.count)]++] = u32(t);
    }
};

// Results of products, at any rows of `out`.
struct Scattered {
    f32 *out;
    const u32 *products;
};

ONE_FUNCTION void scatter(const f32 *results, u64 step, u64 first, u64 length, u64 vectors,
                             void *out, u64 out_rows)
{
    const Scattered &to = *static_cast<const Scattered *>(out);
    for (u64 v = 0; v < vectors; ++v)
        for (u64 row = 0; row < length; ++row)
            to.out[to.products[v] * out_rows + first + row] = results[v * step + row];
}

// `multiply_piece` of a format; all other code is shared by the formats.
typedef void (*Multiply)(const Work &work, Deliver deliver, void *out, u64 first_row, u64 out_rows);

// A piece of the rows of every weight: products by one weight are computed together. An id out of
// bounds gives 0, and one piece reports it.
ONE_FUNCTION void multiply_chosen(const Choices &all, const Piece &piece, Multiply multiply,
                                  f32 *out)
{
    const Order order(all);
    const u64 vector_bytes = all.vectors.filled() / 4 * 5;
    u64 begin = 0;
    for (u64 w = 0; w < all.count; ++w) {
        const u64 count = order.ends.get()[w] - begin;
        if (count == 0)
            continue;
        const u32 *const products = order.order.get() + begin;
        const Held<u8> copies = hold<u8>(count > 1 ? count * vector_bytes : 0);
        const u8 *from = all.vectors.memory + products[0] / all.sharing * vector_bytes;
        if (count > 1) {
            for (u64 i = 0; i < count; ++i)
                memcpy(copies.get() + i * vector_bytes,
                       all.vectors.memory + products[i] / all.sharing * vector_bytes, vector_bytes);
            from = copies.get();
        }
        Scattered to = {out, products};
        const Work work = {all.weights + (w * all.rows + piece.first) * all.row_bytes, piece.length,
                           all.blocks, {from, all.vectors.columns}, count, all.few};
        multiply(work, scatter, &to, piece.first, all.rows);
        begin += count;
    }
    const u64 lost = all.products - begin;
    if (lost == 0)
        return;
    const u32 *const products = order.order.get() + begin;
    const Held<f32> zeros = hold<f32>(piece.length);
    memset(zeros.get(), 0, piece.length * sizeof(f32));
    Scattered to = {out, products};
    scatter(zeros.get(), 0, piece.first, piece.length, lost, &to, all.rows);
    for (u64 i = 0; i < lost && piece.first == 0; ++i)
        report_index(all.entry, products[i], all.ids[products[i]], all.count);
}

// A format: the elements and the bytes of a block, and its product functions.
struct Format {
    u64 elements, bytes;
    Multiply multiply;
};

ONE_FUNCTION void multiply_indexed(const Format &format, const char *entry, const void *weights,
                                   const u8 *x, const u32 *ids, f32 *out,
                                   const u64 (&sizes)[6], u64 block, u64 blocks)
{
    const u64 count = sizes[0], rows = sizes[1], columns = sizes[2];
    const Piece piece(rows, block, blocks, PANEL);
    const u64 each = columns / format.elements;
    const Choices all = {entry, static_cast<const u8 *>(weights), count, rows, each,
                         each * format.bytes, {x, columns}, sizes[4], ids, sizes[3], sizes[5]};
    if (piece.length != 0)
        multiply_chosen(all, piece, format.multiply, out);
}

// `sharing` neighboring products share one vector. Results are f32: 48 more kernels for f16 and
// bf16 would make the wheel too large.
#define INDEXED(format, Block)                                                                     \
    KERNEL(indexed_##format,                                                                       \
           (const void *weights, const u8 *x, const u32 *ids, f32 *out, u64 count, u64 rows,       \
            u64 columns, u64 products, u64 sharing, u64 few))                                      \
    {                                                                                              \
        multiply_indexed({Block::ELEMENTS, sizeof(Block), multiply_piece<Block>},                  \
                         "indexed_" #format, weights, x, ids, out,                                 \
                         {count, rows, columns, products, sharing, few}, blockIdx.x, gridDim.x);   \
    }

FORMATS_OF_CANDLE(INDEXED)
FORMATS_BESIDE(INDEXED)
