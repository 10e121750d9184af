// A convolution in groups of channels, and its phases.
//
// A transposed convolution is several convolutions: results that lie `stride` apart form a phase, which
// uses the same taps of the window. Along an axis a tap reads the input at `position * step + delta`.
#ifndef UBRIDGE_CONVOLUTION_AXES_H
#define UBRIDGE_CONVOLUTION_AXES_H

#include <uhal/kernel.h>

struct Axis {
    u64 input, results, window; // lengths
    u64 stride, padding, dilation;
    bool is_transposed;

    DEVICE_METHOD u64 phases() const
    {
        return !is_transposed ? 1 : stride < results ? stride : results;
    }
    DEVICE_METHOD u64 positions(u64 phase) const
    {
        return is_transposed ? (results - phase + stride - 1) / stride : results;
    }
    DEVICE_METHOD u64 step() const { return is_transposed ? 1 : stride; }
    // Distance of neighboring results of a phase.
    DEVICE_METHOD u64 spread() const { return is_transposed ? stride : 1; }

    // Whether results of a phase use an element of the window; `delta` is its offset in the input.
    DEVICE_METHOD bool meets(u64 phase, u64 element, i64 &delta) const
    {
        const i64 offset = i64(element * dilation) - i64(padding);
        if (!is_transposed) {
            delta = offset;
            return true;
        }
        const i64 reach = i64(phase) - offset;
        delta = reach / i64(stride);
        return reach % i64(stride) == 0;
    }
};

struct Convolution {
    const u64 *info;
    u64 groups;
    Axis down, across;
    bool is_transposed;

    // Channels of a group's input and results.
    DEVICE_METHOD u64 inputs() const { return info[1] / groups; }
    DEVICE_METHOD u64 results() const { return is_transposed ? info[9] : info[8] / groups; }
    DEVICE_METHOD u64 phases() const { return down.phases() * across.phases(); }
};

// The parameters of a launch. info holds dims and strides of src, (batch, channels, rows, columns), and
// of the kernel.
#define CONVOLUTION_PARAMETERS(T)                                                                  \
    (const u64 *info, const T *src, const T *kernel, T *dst, u64 h_out, u64 w_out, u64 groups,     \
     u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed)

// The convolution of a launch, from those parameters.
#define CONVOLUTION                                                                                \
    {                                                                                              \
        info, groups, {info[2], h_out, info[10], stride, h_padding, dilation, transposed},         \
            {info[3], w_out, info[11], stride, w_padding, dilation, transposed}, transposed        \
    }

#endif
