// A phase of a convolution's group as a product of matrices, for GPUs: rows are channels of the
// results, columns are positions of all batches, and the depth is the taps of all channels.
#ifndef UBRIDGE_CONVOLUTION_PARTS_H
#define UBRIDGE_CONVOLUTION_PARTS_H

#include "convolution_axes.h"
#include "layout.h"

#include <uhal/vector.h>

// The taps of an axis that a phase uses lie at equal distances.
struct AxisTaps {
    u64 count;
    u64 first, apart;  // elements of the window
    i64 delta, farther; // offset of the first tap, distance of the offsets

    DEVICE_METHOD AxisTaps(const Axis &axis, u64 phase) : count(0), first(0), delta(0)
    {
        while (first < axis.window && !axis.meets(phase, first, delta))
            ++first;
        u64 next = first + 1;
        i64 next_delta = delta;
        while (next < axis.window && !axis.meets(phase, next, next_delta))
            ++next;
        apart = next - first;
        if (first < axis.window)
            count = (axis.window - first + apart - 1) / apart;
        farther = next_delta - delta;
    }
};

// A tap of a channel: its offset in the input from a position, in elements, rows and columns, and in
// the weights of a result.
struct alignas(16) TapPlace {
    i64 offset;
    u64 weight;
    i64 down, across;
};

template <class T> struct Part {
    const T *src;
    const T *weights;
    T *dst;
    const u64 *src_strides;
    u64 input_rows, input_columns;
    u64 results, positions, depth;
    u64 down, across, step;
    AxisTaps taps_down, taps_across;
    u64 line_step, channel_step, tap_row_step, tap_column_step; // of the weights
    u64 dst_batch, dst_channel, dst_row, dst_column;

    DEVICE_METHOD Part(const Convolution &c, u64 index, const T *whole_src, const T *kernel,
                       T *whole_dst)
        : Part(c, index / c.phases(), index % c.phases() / c.across.phases(),
               index % c.across.phases(), whole_src, kernel, whole_dst)
    {
    }

    DEVICE_METHOD Part(const Convolution &c, u64 group, u64 phase_down, u64 phase_across,
                       const T *whole_src, const T *kernel, T *whole_dst)
        : src_strides(c.info + 4), input_rows(c.info[2]), input_columns(c.info[3]),
          results(c.results()), down(c.down.positions(phase_down)),
          across(c.across.positions(phase_across)), step(c.across.step()),
          taps_down(c.down, phase_down), taps_across(c.across, phase_across),
          line_step(c.info[c.is_transposed ? 13 : 12]),
          channel_step(c.info[c.is_transposed ? 12 : 13]), tap_row_step(c.info[14]),
          tap_column_step(c.info[15]), dst_channel(c.down.results * c.across.results),
          dst_row(c.across.results * c.down.spread()), dst_column(c.across.spread())
    {
        dst_batch = c.groups * results * dst_channel;
        positions = c.info[0] * down * across;
        depth = c.inputs() * taps_down.count * taps_across.count;
        src = whole_src + group * c.inputs() * src_strides[1];
        weights = kernel + group * (c.is_transposed ? c.inputs() * channel_step : results * line_step);
        dst = whole_dst + group * results * dst_channel + phase_down * c.across.results + phase_across;
    }

    DEVICE_METHOD TapPlace tap(u64 place) const
    {
        const u64 channel = split_off(place, taps_down.count * taps_across.count);
        const u64 row = split_off(place, taps_across.count);
        const u64 tap_row = taps_down.first + row * taps_down.apart;
        const u64 tap_column = taps_across.first + place * taps_across.apart;
        const i64 below = taps_down.delta + i64(row) * taps_down.farther;
        const i64 behind = taps_across.delta + i64(place) * taps_across.farther;
        return {i64(channel * src_strides[1]) + below * i64(src_strides[2]) +
                    behind * i64(src_strides[3]),
                channel * channel_step + tap_row * tap_row_step + tap_column * tap_column_step, below,
                behind};
    }

    // A position: its element of the input, and that element's place in the image.
    struct Position {
        const T *data;
        u64 row, column, rows, columns;

        DEVICE_METHOD T at(const TapPlace &tap) const
        {
            const auto [below, behind] = load_vector<2>(&tap.down).at;
            const bool inside = row + u64(below) < rows && column + u64(behind) < columns;
            return inside ? data[tap.offset] : T(0.0f);
        }
    };

    DEVICE_METHOD Position position(u64 index) const
    {
        const u64 row_index = split_off(index, across);
        const u64 column = index * step;
        u64 row = row_index;
        const u64 batch = split_off(row, down);
        row *= step;
        const T *const data =
            src + batch * src_strides[0] + row * src_strides[2] + column * src_strides[3];
        return {data, row, column, input_rows, input_columns};
    }

    DEVICE_METHOD void store(u64 channel, u64 index, T sum) const
    {
        u64 row = split_off(index, across);
        const u64 batch = split_off(row, down);
        dst[batch * dst_batch + channel * dst_channel + row * dst_row + index * dst_column] = sum;
    }
};

#endif
