// Selecting and adding by index: `is_`, `gather_`, `ia_`, `s_`, `sa_` + `<type of ids>_<type>`.
//
// Arrays are seen as (left, dim, right) around the dim that is indexed and are contiguous. An id
// of the highest value of its type means "none", unless the top bit of the dim's length is set.
// Selecting "none" gives 0; writing skips it. Any other id out of bounds has the same effect and
// is reported (uhal/report.h).
#include "layout.h"
#include "number.h"

#include <uhal/report.h>

// The length of an indexed dim, as a kernel is given it. If the top bit is set, no id means
// "none".
struct Indexed {
    u64 length;
    bool has_none;

    DEVICE_METHOD explicit Indexed(u64 given) : length(given & ~TOP_BIT), has_none(given < TOP_BIT) {}

    template <class I> DEVICE_METHOD bool is_none(I id) const
    {
        return has_none & (id == Limits<I>::highest);
    }
    template <class I> DEVICE_METHOD bool holds(I id) const
    {
        return (u64(id) < length) & !is_none(id);
    }

  private:
    static constexpr u64 TOP_BIT = u64(1) << 63;
};

// Returns whether an id selects something; reports an id that is out of bounds.
template <class I>
DEVICE_FUNCTION bool selects(const char *entry, I id, u64 position, Indexed dim)
{
    if (dim.holds(id))
        return true;
    if (!dim.is_none(id))
        report_index(entry, position, i64(id), dim.length);
    return false;
}

// out[l, j, r] = inp[l, ids[j], r]
template <class I, class T>
DEVICE_FUNCTION void index_select(BLOCK block, const char *entry, u64 numel,
                                  const Operand<I> &ids, const T *inp, T *out, Indexed dim,
                                  u64 ids_dim, u64 right)
{
#if KERNEL_ON_GPU
    GRID_STRIDE_OF(block, i, numel) {
        u64 column = i;
        u64 position = split_off(column, right);
        const u64 before = split_off(position, ids_dim);
        const I id = ids[position];
        if (selects(entry, id, position, dim))
            out[i] = inp[(before * dim.length + u64(id)) * right + column];
        else
            out[i] = 0;
    }
#else
    const u64 last = block.uhal_last(numel);
    for (u64 i = block.uhal_first(numel); i < last;) {
        u64 column = i;
        u64 position = split_off(column, right);
        const u64 before = split_off(position, ids_dim);
        const u64 length = right - column < last - i ? right - column : last - i;
        const I id = ids[position];
        if (selects(entry, id, position, dim))
            memcpy(out + i, inp + (before * dim.length + u64(id)) * right + column,
                   length * sizeof(T));
        else
            memset(out + i, 0, length * sizeof(T));
        i += length;
    }
#endif
}

#if !KERNEL_ON_GPU
// A bound of the ids that select something: one comparison for each id.
template <class I> static u64 bound_of(Indexed dim)
{
    const u64 none = u64(Limits<I>::highest);
    return dim.has_none && none < dim.length ? none : dim.length;
}

// out[k] = from[ids[k] * right + k], or with a right of 1 from[ids[k]], for one run of elements.
template <bool lone, class I, class T>
static void gather_run(const char *entry, const I *ids, u64 position, const T *from, T *out,
                       u64 length, Indexed dim, u64 right)
{
    const u64 bound = bound_of<I>(dim);
    u64 k = 0;
    for (; k < length && u64(ids[k]) < bound; ++k)
        out[k] = lone ? from[u64(ids[k])] : from[u64(ids[k]) * right + k];
    for (; k < length; ++k) {
        const bool found = selects(entry, ids[k], position + k, dim);
        out[k] = found ? from[u64(ids[k]) * right + (lone ? 0 : k)] : T(0);
    }
}
#endif

// out[l, j, r] = inp[l, ids[l, j, r], r]
template <class I, class T>
DEVICE_FUNCTION void gather(BLOCK block, const char *entry, u64 numel, const I *ids, const T *inp,
                            T *out, Indexed dim, u64 ids_dim, u64 right)
{
#if KERNEL_ON_GPU
    GRID_STRIDE_OF(block, i, numel) {
        u64 column = i;
        u64 position = split_off(column, right);
        const u64 before = split_off(position, ids_dim);
        const I id = ids[i];
        const bool found = selects(entry, id, i, dim);
        out[i] = found ? inp[(before * dim.length + u64(id)) * right + column] : T(0);
    }
#else
    // Runs in which only ids and columns change: a row, or all rows of one j if right is 1.
    const u64 last = block.uhal_last(numel);
    for (u64 i = block.uhal_first(numel); i < last;) {
        u64 column = i;
        u64 position = split_off(column, right);
        const u64 before = split_off(position, ids_dim);
        const u64 rest = right == 1 ? ids_dim - position : right - column;
        const u64 length = rest < last - i ? rest : last - i;
        const T *const from = inp + before * dim.length * right + column;
        if (right == 1)
            gather_run<true>(entry, ids + i, i, from, out + i, length, dim, right);
        else
            gather_run<false>(entry, ids + i, i, from, out + i, length, dim, right);
        i += length;
    }
#endif
}

// The update of an element of out that an id selects.
template <class T> struct Store {
    DEVICE_METHOD void operator()(T &target, T value) const { target = value; }
};
template <class T> struct Accumulate {
    DEVICE_METHOD void operator()(T &target, T value) const
    {
        target = narrow<T>(add(widen(target), widen(value)));
    }
};

#if !KERNEL_ON_GPU
// Updates target[ids[k] * right + k], or with a right of 1 target[ids[k]], for one run of elements.
template <bool lone, class I, class T, class Update>
static void scatter_run(const char *entry, const I *ids, u64 position, const T *from, T *target,
                        u64 length, Indexed dim, u64 right, Update update)
{
    const u64 bound = bound_of<I>(dim);
    u64 k = 0;
    for (; k < length && u64(ids[k]) < bound; ++k)
        update(target[lone ? u64(ids[k]) : u64(ids[k]) * right + k], from[k]);
    for (; k < length; ++k)
        if (selects(entry, ids[k], position + k, dim))
            update(target[lone ? u64(ids[k]) : u64(ids[k]) * right + k], from[k]);
}
#endif

// out[l, id, r] becomes update(out[l, id, r], inp[l, j, r]) for j = 0, 1, … in this order. An id is
// ids[j], or ids[l, j, r] with `id_each`. A work-item owns all of one l and r, so nothing races.
template <bool id_each, class I, class T, class Update>
DEVICE_FUNCTION void scatter(BLOCK block, const char *entry, const I *ids, const T *inp, T *out,
                             u64 left, u64 src_dim, Indexed dim, u64 right, Update update)
{
#if KERNEL_ON_GPU
    GRID_STRIDE_OF(block, i, left * right) {
        u64 column = i;
        const u64 before = split_off(column, right);
        ROLLED for (u64 j = 0; j < src_dim; ++j) {
            const u64 source = (before * src_dim + j) * right + column;
            const u64 position = id_each ? source : j;
            const I id = ids[position];
            if (selects(entry, id, position, dim))
                update(out[(before * dim.length + u64(id)) * right + column], inp[source]);
        }
    }
#else
    // Whole rows: the order of updates of an element is the same.
    const u64 last = block.uhal_last(left * right);
    if (right == 1) {
        for (u64 i = block.uhal_first(left); i < last; ++i) {
            const u64 position = id_each ? i * src_dim : 0;
            scatter_run<true>(entry, ids + position, position, inp + i * src_dim,
                              out + i * dim.length, src_dim, dim, 1, update);
        }
        return;
    }
    for (u64 i = block.uhal_first(left * right); i < last;) {
        u64 column = i;
        const u64 before = split_off(column, right);
        const u64 length = right - column < last - i ? right - column : last - i;
        for (u64 j = 0; j < src_dim; ++j) {
            const u64 source = (before * src_dim + j) * right + column;
            T *const target = out + before * dim.length * right + column;
            if constexpr (id_each) {
                scatter_run<false>(entry, ids + source, source, inp + source, target, length, dim,
                                   right, update);
            } else if (const I id = ids[j]; selects(entry, id, j, dim)) {
                UHAL_INDEPENDENT
                for (u64 k = 0; k < length; ++k)
                    update(target[u64(id) * right + k], inp[source + k]);
            }
        }
        i += length;
    }
#endif
}

// info of is_: dims and strides of ids, null when they are contiguous. ids_dim of ia_ is the indexed
// dim of inp too. Unused parameters are present because Candle passes them.
#define INDEXING_WITHOUT_STORE(I, name, T)                                                         \
    KERNEL(is_##I##_##name, (u64 numel, u64 num_dims, const u64 *info, const I *ids, const T *inp, \
                             T *out, u64 left, u64 src_dim, u64 ids_dim, u64 right))               \
    {                                                                                              \
        (void)left;                                                                                \
        index_select(THIS_BLOCK, "is_" #I "_" #name, numel,                                        \
                     Operand<I>(ids, num_dims, info, info + num_dims), words(inp), words(out),     \
                     Indexed(src_dim), ids_dim, right);                                            \
    }                                                                                              \
    KERNEL(gather_##I##_##name, (u64 numel, const I *ids, const T *inp, T *out, u64 left,          \
                                 u64 src_dim, u64 ids_dim, u64 right))                             \
    {                                                                                              \
        (void)left;                                                                                \
        gather(THIS_BLOCK, "gather_" #I "_" #name, numel, ids, words(inp), words(out),             \
               Indexed(src_dim), ids_dim, right);                                                  \
    }                                                                                              \
    KERNEL(ia_##I##_##name, (const I *ids, u64 ids_dim, const T *inp, T *out, u64 left,            \
                             u64 src_dim, u64 dst_dim, u64 right))                                 \
    {                                                                                              \
        (void)src_dim;                                                                             \
        scatter<false>(THIS_BLOCK, "ia_" #I "_" #name, ids, inp, out, left, ids_dim,               \
                       Indexed(dst_dim), right, Accumulate<T>{});                                  \
    }                                                                                              \
    KERNEL(sa_##I##_##name, (const I *ids, const T *inp, T *out, u64 left, u64 src_dim,            \
                             u64 dst_dim, u64 right))                                              \
    {                                                                                              \
        scatter<true>(THIS_BLOCK, "sa_" #I "_" #name, ids, inp, out, left, src_dim,                \
                      Indexed(dst_dim), right, Accumulate<T>{});                                   \
    }

#define INDEXING(I, name, T)                                                                       \
    INDEXING_WITHOUT_STORE(I, name, T)                                                             \
    KERNEL(s_##I##_##name, (const I *ids, const T *inp, T *out, u64 left, u64 src_dim,             \
                            u64 dst_dim, u64 right))                                               \
    {                                                                                              \
        scatter<true>(THIS_BLOCK, "s_" #I "_" #name, ids, words(inp), words(out), left, src_dim,   \
                      Indexed(dst_dim), right, Store<Word<T>>{});                                  \
    }

#define INDEXING_EACH_TYPE(I)                                                                      \
    INDEXING(I, bf16, bf16)                                                                        \
    INDEXING(I, f16, f16)                                                                          \
    INDEXING(I, f32, f32)                                                                          \
    INDEXING(I, f64, f64)                                                                          \
    INDEXING(I, f8e4m3, f8e4m3)                                                                    \
    INDEXING(I, f8_e4m3, f8e4m3)                                                                   \
    INDEXING(I, u8, u8)                                                                            \
    INDEXING(I, u32, u32)                                                                          \
    INDEXING(I, i16, i16)                                                                          \
    INDEXING(I, i32, i32)                                                                          \
    INDEXING(I, i64, i64)

INDEXING_EACH_TYPE(i64)
INDEXING_EACH_TYPE(u32)
INDEXING_EACH_TYPE(u8)

// As in Candle's build for compute capability 8.9, only f8 has ids of these types.
INDEXING_WITHOUT_STORE(i32, f8_e4m3, f8e4m3)
INDEXING_WITHOUT_STORE(i16, f8_e4m3, f8e4m3)

// out[j] = row ids[j] of a table with `rows` rows of `width`.
#define EMBEDDING(I, T)                                                                            \
    KERNEL(embedding_##I##_##T, (const I *ids, const T *table, T *out, u64 count, u64 rows,        \
                                 u64 width))                                                       \
    {                                                                                              \
        index_select(THIS_BLOCK, "embedding_" #I "_" #T, count * width, Operand<I>(ids),           \
                     words(table), words(out), Indexed(rows), count, width);                       \
    }

#define EMBEDDING_EACH_TYPE(I)                                                                     \
    EMBEDDING(I, bf16)                                                                             \
    EMBEDDING(I, f16)                                                                              \
    EMBEDDING(I, f32)                                                                              \
    EMBEDDING(I, f64)

EMBEDDING_EACH_TYPE(i64)
EMBEDDING_EACH_TYPE(u32)
EMBEDDING_EACH_TYPE(u8)
