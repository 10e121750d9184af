// Filling and copying of parts: `fill_<type>`, `const_set_<type>`, `copy2d_<type>`.
#include "layout.h"
#include "number.h"

#if !KERNEL_ON_GPU
#include "runs.h"
#endif

// out[place of i] = value for every i below numel.
template <class T>
DEVICE_FUNCTION void set(BLOCK block, u64 numel, T *out, const Layout &layout, T value)
{
#if KERNEL_ON_GPU
    GRID_STRIDE_OF(block, i, numel) { out[layout.at(i)] = value; }
#else
    const Rows rows(layout);
    const u64 last = block.uhal_last(numel);
    for (u64 i = block.uhal_first(numel); i < last;) {
        u64 left;
        T *row = out + rows.at(i, left);
        const u64 length = left < last - i ? left : last - i;
        for (u64 column = 0; column < length; ++column)
            row[column * rows.stride] = value;
        i += length;
    }
#endif
}

// Row i of `columns` elements goes from src + i * src_step to dst + i * dst_step.
template <class T>
DEVICE_FUNCTION void copy_rows(BLOCK block, const T *src, T *dst, u64 rows, u64 columns,
                               u64 src_step, u64 dst_step)
{
    const u64 numel = rows * columns;
#if KERNEL_ON_GPU
    GRID_STRIDE_OF(block, i, numel) {
        u64 column = i;
        const u64 row = split_off(column, columns);
        dst[row * dst_step + column] = src[row * src_step + column];
    }
#else
    const u64 last = block.uhal_last(numel);
    for (u64 i = block.uhal_first(numel); i < last;) {
        const u64 row = i / columns;
        const u64 column = i % columns;
        const u64 length = columns - column < last - i ? columns - column : last - i;
        memmove(dst + row * dst_step + column, src + row * src_step + column, length * sizeof(T));
        i += length;
    }
#endif
}

// const_set: info is null for a contiguous out; otherwise it holds dims and strides of out.
#define FILL(name, T)                                                                              \
    KERNEL(fill_##name, (T *buf, T value, u64 numel))                                             \
    {                                                                                              \
        const Word<T> bits = word(value);                                                          \
        GRID_STRIDE(i, numel) { words(buf)[i] = bits; }                                            \
    }                                                                                              \
    KERNEL(const_set_##name, (u64 numel, u64 num_dims, const u64 *info, T value, T *out))          \
    {                                                                                              \
        const Layout layout = {num_dims, info, info + num_dims};                                   \
        const Word<T> bits = word(value);                                                          \
        if (info == nullptr || layout.is_contiguous()) {                                           \
            GRID_STRIDE(i, numel) { words(out)[i] = bits; }                                        \
        } else {                                                                                   \
            set(THIS_BLOCK, numel, words(out), layout, bits);                                      \
        }                                                                                          \
    }                                                                                              \
    KERNEL(copy2d_##name, (const T *src, T *dst, u32 d1, u32 d2, u32 src_s, u32 dst_s))            \
    {                                                                                              \
        copy_rows(THIS_BLOCK, words(src), words(dst), d1, d2, src_s, dst_s);                       \
    }

FILL(u8, u8)
FILL(u32, u32)
FILL(i16, i16)
FILL(i32, i32)
FILL(i64, i64)
FILL(f32, f32)
FILL(f64, f64)
FILL(f16, f16)
FILL(bf16, bf16)
FILL(f8e4m3, f8e4m3)
FILL(f8_e4m3, f8e4m3)
