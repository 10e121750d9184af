// Operations of a transformer between its matrix products, each in one pass. f16 and bf16 are
// computed in f32 and rounded once.
#include "elementwise.h"
#include "logistic.h"
#include "normalize.h"
#include "reduction.h"

DEVICE_FUNCTION f32 logarithm(f32 x)
{
    return logf(x);
}
DEVICE_FUNCTION f64 logarithm(f64 x)
{
    return log(x);
}

template <class C> struct Minus {
    C subtrahend;
    C logarithm_of_total;
    DEVICE_METHOD C operator()(C x) const { return x - subtrahend - logarithm_of_total; }
};

template <template <class> class State, class T>
DEVICE_FUNCTION void log_softmax(BLOCK block, u64 count, const T *src, T *dst)
{
    typedef Compute<T> C;
#if defined(__CUDACC__)
    if (same_type<State<C>, PlainSum<C>> && HeldRow<T>::fits(block, count, src, dst)) {
        HeldRow<T> held(block, count, src);
        const C above = held.template reduce<LargestNumber<C>>(block, Same{}).result();
        const C all = held.template reduce<State<C>>(block, ExponentialAbove<C>{above}).result();
        held.store(block, dst, Minus<C>{above, logarithm(all)});
        return;
    }
#endif
    const Operand<T> row(src);
    const C base = reduce_row<Largest<C>>(block, row, 0, count, Same{}).result();
    const C total =
        reduce_row<State<C>>(block, row, 0, count, ExponentialAbove<C>{base}).result();
    map_row(block, count, dst, Minus<C>{base, logarithm(total)}, row);
}

// For results of type T.
template <class T> struct SiluTimes : LongFunction {
    DEVICE_METHOD Compute<T> operator()(Compute<T> gate, Compute<T> up) const
    {
        return logistic_for<T>(gate, gate, up);
    }
};

template <class W> struct Replace {
    W replacement;
    DEVICE_METHOD W operator()(u8 masked, W value) const
    {
        return masked != 0 ? replacement : value;
    }
};

// The elements of two tensors side by side, row after row.
template <class W>
DEVICE_FUNCTION void concatenate(BLOCK block, const W *ltensor, const W *rtensor, W *out, u64 rows,
                                 u64 left, u64 right)
{
    const u64 width = left + right;
#if KERNEL_ON_GPU
    GRID_STRIDE_OF(block, i, rows * width) {
        u64 column = i;
        const u64 row = split_off(column, width);
        out[i] = column < left ? ltensor[row * left + column]
                               : rtensor[row * right + column - left];
    }
#else
    const u64 end = block.uhal_last(rows * width);
    for (u64 i = block.uhal_first(rows * width), length; i < end; i += length) {
        u64 column = i;
        const u64 row = split_off(column, width);
        const bool is_left = column < left;
        const W *const from =
            is_left ? ltensor + row * left + column : rtensor + row * right + column - left;
        const u64 rest = (is_left ? left : width) - column;
        length = rest < end - i ? rest : end - i;
        memcpy(out + i, from, length * sizeof(W));
    }
#endif
}

// log_softmax: contiguous rows, one a block; `compensated` other than 0 adds rounding errors.
// maskfill: out = mask ? value : inp; info is null when both are contiguous, otherwise dims, strides
// of mask, strides of inp.
// kvconcat: concatenation along a dim. `rows` is the product of the earlier dims, left and right
// are each tensor's number of elements in that dim and the later dims.
#define FUSED(T)                                                                                   \
    KERNEL(log_softmax_##T, (const T *src, T *dst, i32 n_cols, i32 compensated))                   \
    {                                                                                              \
        const u64 start = u64(blockIdx.x) * u32(n_cols);                                           \
        if (compensated != 0)                                                                      \
            log_softmax<Sum>(THIS_BLOCK, u32(n_cols), src + start, dst + start);                   \
        else                                                                                       \
            log_softmax<PlainSum>(THIS_BLOCK, u32(n_cols), src + start, dst + start);              \
    }                                                                                              \
    KERNEL(silu_mul_##T, (u64 numel, const T *gate, const T *up, T *out))                          \
    {                                                                                              \
        map(THIS_BLOCK, numel, out, SiluTimes<Digits<T>>{}, Operand<T>(gate), Operand<T>(up));      \
    }                                                                                              \
    KERNEL(maskfill_##T, (u64 numel, u64 num_dims, const u64 *info, const u8 *mask, const T *inp,  \
                          T value, T *out))                                                        \
    {                                                                                              \
        map(THIS_BLOCK, numel, words(out), Replace<Word<T>>{word(value)},                          \
            Operand<u8>(mask, num_dims, info, info + num_dims),                                    \
            Operand<Word<T>>(words(inp), num_dims, info, info + 2 * num_dims));                    \
    }                                                                                              \
    KERNEL(kvconcat_##T, (const T *ltensor, const T *rtensor, T *out, u64 rows, u64 left,          \
                          u64 right))                                                              \
    {                                                                                              \
        concatenate(THIS_BLOCK, words(ltensor), words(rtensor), words(out), rows, left, right);    \
    }

FUSED(bf16)
FUSED(f16)
FUSED(f32)
FUSED(f64)
