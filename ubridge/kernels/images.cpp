// Pooling and resizing for CPUs, a row of the result at a time, with the same results as the kernels
// of these names in conv.cu. On CPUs, the index arithmetic of these kernels would cost more than
// the elements.
//
// info holds dims and strides of src, (batch, channels, height, width). A plane is a channel of an
// image. Results are contiguous; a block takes a piece of all their rows, in any number of blocks.
#include "number.h"
#include "vectors.h"

#include <math.h>

#include <memory>

template <class T> struct Images {
    const u64 *info;
    const T *src;

    u64 planes() const { return info[0] * info[1]; }
    const T *plane(u64 index) const
    {
        return src + index / info[1] * info[4] + index % info[1] * info[5];
    }
};

// -- pooling --------------------------------------------------------------------------------------

enum : u64 { TOGETHER = 512 }; // neighboring results

struct Largest {
    template <class C> static C joined(C a, C x) { return maximum(a, x); }
    template <class C> static C result(C a, u64) { return a; }
};

struct Mean {
    template <class C> static C joined(C a, C x) { return a + x; }
    template <class C> static C result(C a, u64 count) { return a / C(count); }
};

// Sums of u8 and u32 are taken in u64.
template <class T, bool integer> struct StateOf {
    typedef Compute<T> Type;
};
template <class T> struct StateOf<T, true> {
    typedef u64 Type;
};
template <class T> using State = typename StateOf<T, Number<T>::is_integer>::Type;

// Elements that lie `apart`, widened. Constant distances become vector code.
template <class T>
__attribute__((noinline)) static void take(const T *from, u64 apart, u64 count, State<T> *to)
{
    if (apart == 1)
        for (u64 i = 0; i < count; ++i)
            to[i] = State<T>(widen(from[i]));
    else if (apart == 2)
        for (u64 i = 0; i < count; ++i)
            to[i] = State<T>(widen(from[2 * i]));
    else
        for (u64 i = 0; i < count; ++i)
            to[i] = State<T>(widen(from[i * apart]));
}

template <class Rule, class S>
__attribute__((noinline)) static void join(S *states, const S *values, u64 count)
{
    for (u64 i = 0; i < count; ++i)
        states[i] = Rule::joined(states[i], values[i]);
}

// The length of windows along a dim, and the distance from window to window.
struct Steps {
    u64 window, stride;

    u64 results(u64 extent) const { return window > extent ? 0 : (extent - window) / stride + 1; }
};

template <class Rule, class T>
__attribute__((noinline)) static void pool(BLOCK block, const Images<T> &images, Steps down,
                                           Steps across, T *dst)
{
    const u64 *const info = images.info;
    const u64 height = down.results(info[2]), width = across.results(info[3]);
    const u64 apart = across.stride * info[7];
    const Piece rows(images.planes() * height, block.blockIdx.x, block.gridDim.x, 1);
    alignas(64) State<T> states[TOGETHER], values[TOGETHER];
    for (u64 row = rows.first; row < rows.first + rows.length; ++row)
        for (u64 column = 0; column < width; column += TOGETHER) {
            const u64 count = smaller(TOGETHER, width - column);
            const T *const corner = images.plane(row / height) +
                                    row % height * down.stride * info[6] + column * apart;
            for (u64 a = 0; a < down.window; ++a)
                for (u64 b = 0; b < across.window; ++b) {
                    const bool begins = (a | b) == 0;
                    take(corner + a * info[6] + b * info[7], apart, count,
                         begins ? states : values);
                    if (!begins)
                        join<Rule>(states, values, count);
                }
            T *const to = dst + row * width + column;
            for (u64 i = 0; i < count; ++i)
                to[i] = narrow<T>(Compute<T>(Rule::result(states[i], down.window * across.window)));
        }
}

// -- resizing -------------------------------------------------------------------------------------

template <class W>
__attribute__((noinline)) static void resize_nearest(BLOCK block, const Images<W> &images, u64 height, u64 width,
                           f64 row_scale, f64 column_scale, W *dst)
{
    const u64 *const info = images.info;
    const auto nearest = [](u64 out, f64 scale, u64 extent) {
        return smaller(u64(floor(f64(out) * scale)), extent - 1);
    };
    const Piece rows(images.planes() * height, block.blockIdx.x, block.gridDim.x, 1);
    const std::unique_ptr<u64[]> places(new u64[width]);
    for (u64 column = 0; column < width; ++column)
        places[column] = nearest(column, column_scale, info[3]) * info[7];
    const W *made = nullptr;
    for (u64 row = rows.first; row < rows.first + rows.length; ++row) {
        const W *const from = images.plane(row / height) +
                              nearest(row % height, row_scale, info[2]) * info[6];
        W *const to = dst + row * width;
        if (from == made)
            memcpy(to, to - width, width * sizeof(W));
        else
            for (u64 column = 0; column < width; ++column)
                to[column] = from[places[column]];
        made = from;
    }
}

// Maps places of results along a dim to places of the input, by PyTorch's rules.
struct Scale {
    u64 results, extent;
    bool align_corners, is_given;
    f64 given;
};

// Two neighbors along a dim and the share of the second.
struct Between {
    u64 first, second;
    f64 share;

    Between() = default;
    __attribute__((noinline)) Between(u64 out, const Scale &scale)
    {
        const u64 extent = scale.extent;
        f64 place;
        if (scale.align_corners) {
            place = scale.results > 1 ? f64(out) * (f64(extent - 1) / f64(scale.results - 1)) : 0.0;
        } else {
            const f64 step = scale.is_given ? 1.0 / scale.given : f64(extent) / f64(scale.results);
            place = step * (f64(out) + 0.5) - 0.5;
            place = place < 0.0 ? 0.0 : place;
        }
        first = smaller(u64(place), extent - 1);
        second = first + 1 < extent ? first + 1 : first;
        share = place - f64(first);
        share = share > 1.0 ? 1.0 : share;
    }
};

// Rows of the input, resized to the result's width. The two rows used last are kept, because
// neighboring rows of the result mix the same rows.
template <class T> class WideRows {
  public:
    WideRows(const Images<T> &images, const Scale &across)
        : step_(images.info[7]), width_(across.results), columns_(new Between[width_]),
          memory_(new f64[2 * width_])
    {
        for (u64 column = 0; column < width_; ++column)
            columns_[column] = Between(column, across);
    }

    // Valid until two other rows are taken.
    const f64 *row(const T *from)
    {
        if (from == made_[0] || from == made_[1])
            last_ = from == made_[1];
        else
            make(from, last_ = !last_);
        return memory_.get() + last_ * width_;
    }

  private:
    __attribute__((noinline)) void make(const T *from, u64 index)
    {
        f64 *const to = memory_.get() + index * width_;
        for (u64 column = 0; column < width_; ++column) {
            const Between &between = columns_[column];
            to[column] = f64(widen(from[between.first * step_])) * (1.0 - between.share) +
                         f64(widen(from[between.second * step_])) * between.share;
        }
        made_[index] = from;
    }

    const u64 step_, width_;
    const std::unique_ptr<Between[]> columns_;
    const std::unique_ptr<f64[]> memory_;
    const T *made_[2] = {};
    u64 last_ = 0;
};

template <class T>
static void resize_bilinear(BLOCK block, const Images<T> &images, const Scale &down,
                            const Scale &across, T *dst)
{
    const u64 height = down.results, width = across.results;
    const Piece rows(images.planes() * height, block.blockIdx.x, block.gridDim.x, 1);
    WideRows<T> wide(images, across);
    for (u64 row = rows.first; row < rows.first + rows.length; ++row) {
        const T *const plane = images.plane(row / height);
        const Between between(row % height, down);
        const f64 *const upper = wide.row(plane + between.first * images.info[6]);
        const f64 *const lower = wide.row(plane + between.second * images.info[6]);
        const f64 above = 1.0 - between.share, below = between.share;
        T *const to = dst + row * width;
        for (u64 column = 0; column < width; ++column)
            to[column] = narrow<T>(convert<T>(upper[column] * above + lower[column] * below));
    }
}

#define IMAGES(T)                                                                                  \
    KERNEL(avg_pool2d_##T, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride,           \
                            const u64 *info, const T *src, T *dst))                                \
    {                                                                                              \
        (void)src_numel;                                                                           \
        pool<Mean>(THIS_BLOCK, Images<T>{info, src}, {w_k, w_stride}, {h_k, h_stride}, dst);    \
    }                                                                                              \
    KERNEL(max_pool2d_##T, (u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride,           \
                            const u64 *info, const T *src, T *dst))                                \
    {                                                                                              \
        (void)src_numel;                                                                           \
        pool<Largest>(THIS_BLOCK, Images<T>{info, src}, {w_k, w_stride}, {h_k, h_stride}, dst); \
    }                                                                                              \
    KERNEL(upsample_nearest2d_##T, (u64 w_out, u64 h_out, f64 w_scale, f64 h_scale,                \
                                    const u64 *info, const T *src, T *dst))                        \
    {                                                                                              \
        resize_nearest(THIS_BLOCK, Images<Word<T>>{info, words(src)}, w_out, h_out, w_scale,       \
                       h_scale, words(dst));                                                       \
    }                                                                                              \
    KERNEL(upsample_bilinear2d_##T,                                                                \
           (u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h,               \
            bool has_scale_w, f64 scale_w, const u64 *info, const T *src, T *dst))                 \
    {                                                                                              \
        resize_bilinear(THIS_BLOCK, Images<T>{info, src},                                          \
                        {h_out, info[2], align_corners, has_scale_h, scale_h},                     \
                        {w_out, info[3], align_corners, has_scale_w, scale_w}, dst);               \
    }

IMAGES(bf16)
IMAGES(f16)
IMAGES(f32)
IMAGES(f64)
IMAGES(u8)
IMAGES(u32)
