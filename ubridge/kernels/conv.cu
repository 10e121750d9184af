// Convolutions, their matrices of windows, pooling and resizing of (batch, channel, length) and
// (batch, channel, height, width). Results are contiguous; any launch geometry is right.
//
// info holds dims and strides of src and, if present, of the kernel. Sums are taken in f32
// for f16 and bf16. Candle calls the second last dim w in pooling and nearest resizing, and the
// last dim w elsewhere. Here each parameter is named after the dim it is compared with.
#include "layout.h"
#include "number.h"

#include <math.h>

DEVICE_FUNCTION f64 floor_of(f64 x)
{
    return floor(x);
}

// The remainder of index by extent; index becomes the quotient.
DEVICE_FUNCTION u64 take(u64 &index, u64 extent)
{
    u64 remainder = index;
    index = split_off(remainder, extent);
    return remainder;
}

// Finds the place of a window's tap in a padded input; false if the tap is in the padding.
DEVICE_FUNCTION bool tap(u64 out, u64 offset, u64 stride, u64 padding, u64 dilation, u64 extent,
                         u64 &place)
{
    place = out * stride + offset * dilation;
    const bool inside = place >= padding && place - padding < extent;
    place -= padding;
    return inside;
}

// Finds the input element of a tap for a result of the transposed convolution; false if none
// exists.
DEVICE_FUNCTION bool transposed_tap(u64 out, u64 offset, u64 stride, u64 padding, u64 dilation,
                                    u64 extent, u64 &place)
{
    const u64 reached = out + padding;
    if (reached < offset * dilation)
        return false;
    u64 rest = reached - offset * dilation;
    place = split_off(rest, stride);
    return rest == 0 && place < extent;
}

// dst (b, l_out, c, l_k)
template <class T>
DEVICE_FUNCTION T window_1d(u64 i, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation,
                            const u64 *info, const T *src)
{
    const u64 offset = take(i, l_k);
    const u64 channel = take(i, info[1]);
    const u64 out = take(i, l_out);
    u64 l;
    if (!tap(out, offset, stride, padding, dilation, info[2], l))
        return T(0.0f);
    return src[i * info[3] + channel * info[4] + l * info[5]];
}

// dst (b, h_out, w_out, c, h_k, w_k)
template <class T>
DEVICE_FUNCTION T window_2d(u64 i, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding,
                            u64 dilation, const u64 *info, const T *src)
{
    const u64 across = take(i, w_k);
    const u64 down = take(i, h_k);
    const u64 channel = take(i, info[1]);
    const u64 out_w = take(i, w_out);
    const u64 out_h = take(i, h_out);
    u64 h, w;
    if (!tap(out_h, down, stride, padding, dilation, info[2], h) ||
        !tap(out_w, across, stride, padding, dilation, info[3], w))
        return T(0.0f);
    return src[i * info[4] + channel * info[5] + h * info[6] + w * info[7]];
}

// src (b, l_in, c_out, k), dst (b, c_out, l_out): the windows added where they overlap.
template <class T>
DEVICE_FUNCTION T unwindowed_1d(u64 i, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride,
                                const T *src)
{
    const u64 out = take(i, l_out);
    const u64 channel = take(i, c_out);
    Compute<T> sum = 0;
    ROLLED for (u64 k = 0; k < k_size; ++k) {
        u64 l;
        if (transposed_tap(out, k, stride, 0, 1, l_in, l))
            sum = add(sum, widen(src[((i * l_in + l) * c_out + channel) * k_size + k]));
    }
    return narrow<T>(sum);
}

// kernel (c_out, c_in, k), or (c_in, c_out, k) of the transposed convolution
template <bool transposed, class T>
DEVICE_FUNCTION T convolved_1d(u64 i, u64 l_out, u64 stride, u64 padding, u64 dilation,
                               const u64 *info, const T *src, const T *kernel)
{
    const u64 *const k_dims = info + 6;
    const u64 *const k_strides = info + 9;
    const u64 out = take(i, l_out);
    const u64 channel = take(i, k_dims[transposed ? 1 : 0]);
    const u64 out_step = k_strides[transposed ? 1 : 0];
    const u64 in_step = k_strides[transposed ? 0 : 1];
    Compute<T> sum = 0;
    ROLLED for (u64 k = 0; k < k_dims[2]; ++k) {
        u64 l;
        if (!(transposed ? transposed_tap(out, k, stride, padding, dilation, info[2], l)
                         : tap(out, k, stride, padding, dilation, info[2], l)))
            continue;
        const T *values = src + i * info[3] + l * info[5];
        const T *weights = kernel + channel * out_step + k * k_strides[2];
        ROLLED for (u64 c = 0; c < info[1]; ++c) {
            sum = add(sum, multiply(widen(*values), widen(*weights)));
            values += info[4];
            weights += in_step;
        }
    }
    return narrow<T>(sum);
}

// kernel (c_out, c_in, h_k, w_k), or (c_in, c_out, h_k, w_k) of the transposed convolution
template <bool transposed, class T>
DEVICE_FUNCTION T convolved_2d(u64 i, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation,
                               const u64 *info, const T *src, const T *kernel)
{
    const u64 *const k_dims = info + 8;
    const u64 *const k_strides = info + 12;
    const u64 out_w = take(i, w_out);
    const u64 out_h = take(i, h_out);
    const u64 channel = take(i, k_dims[transposed ? 1 : 0]);
    const u64 out_step = k_strides[transposed ? 1 : 0];
    const u64 in_step = k_strides[transposed ? 0 : 1];
    Compute<T> sum = 0;
    ROLLED for (u64 down = 0; down < k_dims[2]; ++down) {
        u64 h, w;
        if (!(transposed ? transposed_tap(out_h, down, stride, padding, dilation, info[2], h)
                         : tap(out_h, down, stride, padding, dilation, info[2], h)))
            continue;
        ROLLED for (u64 across = 0; across < k_dims[3]; ++across) {
            if (!(transposed ? transposed_tap(out_w, across, stride, padding, dilation, info[3], w)
                             : tap(out_w, across, stride, padding, dilation, info[3], w)))
                continue;
            const T *values = src + i * info[4] + h * info[6] + w * info[7];
            const T *weights =
                kernel + channel * out_step + down * k_strides[2] + across * k_strides[3];
            ROLLED for (u64 c = 0; c < info[1]; ++c) {
                sum = add(sum, multiply(widen(*values), widen(*weights)));
                values += info[5];
                weights += in_step;
            }
        }
    }
    return narrow<T>(sum);
}

// Sums of u8 and u32 are taken in u64.
template <class C, bool integer> struct PoolSum {
    typedef C Type;
};
template <class C> struct PoolSum<C, true> {
    typedef u64 Type;
};

// A result of pooling: its window begins at `corner` and has k_2 x k_3 elements.
struct Window {
    u64 corner;
    u64 k_2;
    u64 k_3;
    u64 step_2;
    u64 step_3;

    DEVICE_METHOD Window(u64 i, u64 size_2, u64 size_3, u64 stride_2, u64 stride_3,
                         const u64 *info)
        : k_2(size_2), k_3(size_3), step_2(info[6]), step_3(info[7])
    {
#if defined(__CUDACC__)
        // Hides from nvcc that sizes and strides do not change: nvcc would keep them in registers.
        asm volatile("" : "+l"(info));
#endif
        const u64 out_3 = take(i, (info[3] - k_3) / stride_3 + 1);
        const u64 out_2 = take(i, (info[2] - k_2) / stride_2 + 1);
        const u64 channel = take(i, info[1]);
        corner = i * info[4] + channel * info[5] + out_2 * stride_2 * step_2 +
                 out_3 * stride_3 * step_3;
    }
};

template <class T> DEVICE_FUNCTION T average(const Window &window, const T *src)
{
    typedef typename PoolSum<Compute<T>, Number<T>::is_integer>::Type S;
    S sum = 0;
    ROLLED for (u64 a = 0; a < window.k_2; ++a)
        ROLLED for (u64 b = 0; b < window.k_3; ++b)
            sum += S(widen(src[window.corner + a * window.step_2 + b * window.step_3]));
    return narrow<T>(Compute<T>(sum / S(window.k_2 * window.k_3)));
}

template <class T> DEVICE_FUNCTION T largest(const Window &window, const T *src)
{
    Compute<T> result = widen(src[window.corner]);
    ROLLED for (u64 a = 0; a < window.k_2; ++a)
        ROLLED for (u64 b = 0; b < window.k_3; ++b)
            result = maximum(result,
                             widen(src[window.corner + a * window.step_2 + b * window.step_3]));
    return narrow<T>(result);
}

// Number of windows; 0 when a window is larger than the input.
DEVICE_FUNCTION u64 windows(u64 k_2, u64 k_3, u64 stride_2, u64 stride_3, const u64 *info)
{
    if (k_2 > info[2] || k_3 > info[3])
        return 0;
    return info[0] * info[1] * ((info[2] - k_2) / stride_2 + 1) *
           ((info[3] - k_3) / stride_3 + 1);
}

DEVICE_FUNCTION u64 nearest(u64 out, f64 scale, u64 extent)
{
    const u64 place = u64(floor_of(f64(out) * scale));
    return place < extent ? place : extent - 1;
}

// dst (b, c, out_2, out_3)
template <class T>
DEVICE_FUNCTION T nearest_2d(u64 i, u64 out_2, u64 out_3, f64 scale_2, f64 scale_3,
                             const u64 *info, const T *src)
{
    const u64 place_3 = nearest(take(i, out_3), scale_3, info[3]);
    const u64 place_2 = nearest(take(i, out_2), scale_2, info[2]);
    const u64 channel = take(i, info[1]);
    return src[i * info[4] + channel * info[5] + place_2 * info[6] + place_3 * info[7]];
}

// Two neighbors along a dim and the share of the second; PyTorch's rules.
struct Between {
    u64 first;
    u64 second;
    f64 share;

    DEVICE_METHOD Between(u64 out, u64 out_extent, u64 extent, bool align_corners, bool has_scale,
                          f64 scale)
    {
        f64 place;
        if (align_corners) {
            place = out_extent > 1 ? f64(out) * (f64(extent - 1) / f64(out_extent - 1)) : 0.0;
        } else {
            const f64 step = has_scale ? 1.0 / scale : f64(extent) / f64(out_extent);
            place = step * (f64(out) + 0.5) - 0.5;
            place = place < 0.0 ? 0.0 : place;
        }
        const u64 below = u64(place);
        first = below < extent ? below : extent - 1;
        second = first + 1 < extent ? first + 1 : first;
        share = place - f64(first);
        share = share > 1.0 ? 1.0 : share;
    }
};

// dst (b, c, h_out, w_out)
template <class T>
DEVICE_FUNCTION T bilinear_2d(u64 i, const Between &h, const Between &w, u64 channel,
                              const u64 *info, const T *src)
{
    const T *const plane = src + i * info[4] + channel * info[5];
    const f64 upper_left = f64(widen(plane[h.first * info[6] + w.first * info[7]]));
    const f64 upper_right = f64(widen(plane[h.first * info[6] + w.second * info[7]]));
    const f64 lower_left = f64(widen(plane[h.second * info[6] + w.first * info[7]]));
    const f64 lower_right = f64(widen(plane[h.second * info[6] + w.second * info[7]]));
    const f64 upper = upper_left * (1.0 - w.share) + upper_right * w.share;
    const f64 lower = lower_left * (1.0 - w.share) + lower_right * w.share;
    return narrow<T>(convert<T>(upper * (1.0 - h.share) + lower * h.share));
}

#define WINDOWS(T)                                                                                 \
    KERNEL(im2col1d_##T, (u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation,  \
                          const u64 *info, const T *src, T *dst))                                  \
    {                                                                                              \
        GRID_STRIDE(i, threads * l_k) {                                                            \
            dst[i] = window_1d(i, l_out, l_k, stride, padding, dilation, info, src);               \
        }                                                                                          \
    }                                                                                              \
    KERNEL(im2col_##T, (u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride,         \
                        u64 padding, u64 dilation, const u64 *info, const T *src, T *dst))         \
    {                                                                                              \
        GRID_STRIDE(i, dst_numel) {                                                                \
            dst[i] = window_2d(i, h_out, w_out, h_k, w_k, stride, padding, dilation, info, src);   \
        }                                                                                          \
    }                                                                                              \
    KERNEL(col2im1d_##T, (u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride,      \
                          const T *src, T *dst))                                                   \
    {                                                                                              \
        GRID_STRIDE(i, dst_el) {                                                                   \
            dst[i] = unwindowed_1d(i, l_out, l_in, c_out, k_size, stride, src);                    \
        }                                                                                          \
    }

#define CONVOLUTIONS(T)                                                                            \
    KERNEL(conv1d_##T, (u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation,           \
                        const u64 *info, const T *src, const T *kernel, T *dst))                   \
    {                                                                                              \
        (void)src_numel;                                                                           \
        GRID_STRIDE(i, info[0] * info[6] * l_out) {                                                \
            dst[i] =                                                                               \
                convolved_1d<false>(i, l_out, stride, padding, dilation, info, src, kernel);       \
        }                                                                                          \
    }                                                                                              \
    KERNEL(conv2d_##T, (u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding,              \
                        u64 dilation, const u64 *info, const T *src, const T *kernel, T *dst))     \
    {                                                                                              \
        (void)src_numel;                                                                           \
        GRID_STRIDE(i, info[0] * info[8] * w_out * h_out) {                                        \
            dst[i] = convolved_2d<false>(i, w_out, h_out, stride, padding, dilation, info, src,    \
                                         kernel);                                                  \
        }                                                                                          \
    }                                                                                              \
    KERNEL(conv_transpose1d_##T,                                                                   \
           (u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation,      \
            const u64 *info, const T *src, const T *kernel, T *dst))                               \
    {                                                                                              \
        (void)src_numel;                                                                           \
        (void)out_padding;                                                                         \
        GRID_STRIDE(i, info[0] * info[7] * l_out) {                                                \
            dst[i] = convolved_1d<true>(i, l_out, stride, padding, dilation, info, src, kernel);   \
        }                                                                                          \
    }                                                                                              \
    KERNEL(conv_transpose2d_##T,                                                                   \
           (u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding,         \
            u64 dilation, const u64 *info, const T *src, const T *kernel, T *dst))                 \
    {                                                                                              \
        (void)src_numel;                                                                           \
        (void)out_padding;                                                                         \
        GRID_STRIDE(i, info[0] * info[9] * w_out * h_out) {                                        \
            dst[i] = convolved_2d<true>(i, w_out, h_out, stride, padding, dilation, info, src,     \
                                        kernel);                                                   \
        }                                                                                          \
    }

#define POOLING(T)                                                                                 \
    KERNEL(avg_pool2d_##T, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride,           \
                            const u64 *info, const T *src, T *dst))                                \
    {                                                                                              \
        (void)src_numel;                                                                           \
        GRID_STRIDE(i, windows(w_k, h_k, w_stride, h_stride, info)) {                              \
            dst[i] = average(Window(i, w_k, h_k, w_stride, h_stride, info), src);                  \
        }                                                                                          \
    }                                                                                              \
    KERNEL(max_pool2d_##T, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride,           \
                            const u64 *info, const T *src, T *dst))                                \
    {                                                                                              \
        (void)src_numel;                                                                           \
        GRID_STRIDE(i, windows(w_k, h_k, w_stride, h_stride, info)) {                              \
            dst[i] = largest(Window(i, w_k, h_k, w_stride, h_stride, info), src);                  \
        }                                                                                          \
    }

#define RESIZING(T)                                                                                \
    KERNEL(upsample_nearest2d_##T, (u64 w_out, u64 h_out, f64 w_scale, f64 h_scale,                \
                                    const u64 *info, const T *src, T *dst))                        \
    {                                                                                              \
        GRID_STRIDE(i, info[0] * info[1] * w_out * h_out) {                                        \
            dst[i] = nearest_2d(i, w_out, h_out, w_scale, h_scale, info, src);                     \
        }                                                                                          \
    }                                                                                              \
    KERNEL(upsample_bilinear2d_##T,                                                                \
           (u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h,               \
            bool has_scale_w, f64 scale_w, const u64 *info, const T *src, T *dst))                 \
    {                                                                                              \
        GRID_STRIDE(i, info[0] * info[1] * w_out * h_out) {                                        \
            u64 batch = i;                                                                         \
            const u64 x = take(batch, w_out);                                                      \
            const u64 y = take(batch, h_out);                                                      \
            const u64 channel = take(batch, info[1]);                                              \
            const Between h(y, h_out, info[2], align_corners, has_scale_h, scale_h);               \
            const Between w(x, w_out, info[3], align_corners, has_scale_w, scale_w);               \
            dst[i] = bilinear_2d(batch, h, w, channel, info, src);                                 \
        }                                                                                          \
    }

#define EACH_TYPE(KERNELS)                                                                         \
    KERNELS(bf16)                                                                                  \
    KERNELS(f16)                                                                                   \
    KERNELS(f32)                                                                                   \
    KERNELS(f64)                                                                                   \
    KERNELS(u8)                                                                                    \
    KERNELS(u32)

EACH_TYPE(WINDOWS)
EACH_TYPE(CONVOLUTIONS)
EACH_TYPE(POOLING)
EACH_TYPE(RESIZING)
