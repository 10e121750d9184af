/* Ubridge's convolutions: `info` holds shape and strides of the source, then of the kernel, as in
 * Candle. Inputs that do not fit a cluster's L2 end the kernel without an error. */
#include "gcu.h"

namespace {

constexpr u64 most_input_bytes = u64{60} << 20;
constexpr u64 most_kernel_elements = 4096;

/* Whether position `at`, counted with padding, lies in an axis; subtracts the padding. */
bool inside(u64 &at, u64 padding, u64 length) {
    const bool there = at >= padding && at < length + padding;
    at -= padding;
    return there;
}

template <class T>
void conv1d(const Sips &sips, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64 *info,
            const T *src, const T *kernel, T *dst) {
    const u64 *shape = info, *strides = info + 3, *k_shape = info + 6, *k_strides = info + 9;
    const u64 results = shape[0] * k_shape[0] * l_out;
    const bool fits = shape[0] * shape[1] * shape[2] * sizeof(T) <= most_input_bytes &&
                      k_shape[0] * k_shape[1] * k_shape[2] <= most_kernel_elements;
    if (!fits) {
        return;
    }
    // Only the first block's SIPs find the input in their L2.
    const bool loaded = sips.first == 0;
    each_element(sips, results, [&](u64 i) {
        const u64 l = i % l_out, c_out = i / l_out % k_shape[0], b = i / l_out / k_shape[0];
        Wide<T> total = 0;
        for (u64 c = 0; loaded && c < k_shape[1]; ++c) {
            for (u64 offset = 0; offset < k_shape[2]; ++offset) {
                u64 at = (stride * l + offset) * dilation;
                if (inside(at, padding, shape[2])) {
                    total += wide(src[b * strides[0] + c * strides[1] + at * strides[2]]) *
                             wide(kernel[c_out * k_strides[0] + c * k_strides[1] +
                                         offset * k_strides[2]]);
                }
            }
        }
        dst[i] = T(total);
    });
}

template <class T>
void conv2d(const Sips &sips, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation,
            const u64 *info, const T *src, const T *kernel, T *dst) {
    const u64 *shape = info, *strides = info + 4, *k_shape = info + 8, *k_strides = info + 12;
    const u64 results = shape[0] * k_shape[0] * h_out * w_out;
    if (shape[0] * shape[1] * shape[2] * shape[3] * sizeof(T) > most_input_bytes) {
        return;
    }
    each_element(sips, results, [&](u64 i) {
        const u64 x = i % w_out, y = i / w_out % h_out;
        const u64 c_out = i / w_out / h_out % k_shape[0], b = i / w_out / h_out / k_shape[0];
        f32 total = 0;
        for (u64 c = 0; c < k_shape[1]; ++c) {
            for (u64 row = 0; row < k_shape[2]; ++row) {
                for (u64 column = 0; column < k_shape[3]; ++column) {
                    u64 h = stride * y + dilation * row, w = stride * x + dilation * column;
                    const bool vertical = inside(h, padding, shape[2]);
                    if (inside(w, padding, shape[3]) && vertical) {
                        total += f32(src[b * strides[0] + c * strides[1] + h * strides[2] +
                                         w * strides[3]]) *
                                 f32(kernel[c_out * k_strides[0] + c * k_strides[1] +
                                            row * k_strides[2] + column * k_strides[3]]);
                    }
                }
            }
        }
        dst[i] = T(total);
    });
}

} // namespace

#define CONV1D(name, type)                                                                         \
    KERNEL(name, (u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, u64 * info,     \
                  type * src, type * kernel, type * dst)) {                                        \
        (void)src_numel;                                                                           \
        conv1d(SIPS, l_out, stride, padding, dilation, info, src, kernel, dst);                    \
    }
#define CONV2D(name, type)                                                                         \
    KERNEL(name, (u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation,      \
                  u64 * info, type * src, type * kernel, type * dst)) {                            \
        (void)src_numel;                                                                           \
        conv2d(SIPS, w_out, h_out, stride, padding, dilation, info, src, kernel, dst);             \
    }

CONV1D(conv1d_f32, f32)
CONV1D(conv1d_f64, f64)
CONV1D(conv1d_u8, u8)
CONV1D(conv1d_u32, u32)
CONV1D(conv1d_bf16, bf16)
CONV1D(conv1d_f16, f16)
CONV2D(conv2d_bf16, bf16)
CONV2D(conv2d_f16, f16)
CONV2D(conv2d_f32, f32)
