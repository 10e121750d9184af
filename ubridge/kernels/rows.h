// For CPUs: strided arrays as lines, each along the innermost dims.
#ifndef UBRIDGE_ROWS_H
#define UBRIDGE_ROWS_H

#include "layout.h"

// The most elements that are taken at once, few enough to stay in the nearest cache.
constexpr u64 RUN = 1024;

// A layout whose innermost dims are joined into one if their elements have one stride.
struct Rows {
    Layout outer;
    u64 length;
    u64 stride;

    explicit Rows(const Layout &layout) : outer(layout), length(1), stride(1)
    {
        while (outer.num_dims > 0) {
            const u64 d = outer.num_dims - 1;
            if (layout.dims[d] != 1) {
                if (length != 1 && layout.strides[d] != stride * length)
                    break;
                stride = length == 1 ? layout.strides[d] : stride;
                length *= layout.dims[d];
            }
            --outer.num_dims;
        }
    }

    // The place of element `index`; `left` is the number of elements from it to its line's end.
    u64 at(u64 index, u64 &left) const
    {
        u64 column = index;
        const u64 row = split_off(column, length);
        left = length - column;
        return outer.at(row) + column * stride;
    }

    // The same; from this line on, `lines` lines lie `apart`.
    u64 at(u64 index, u64 &left, u64 &lines, u64 &apart) const
    {
        lines = 1;
        apart = 0;
        if (outer.num_dims > 0) {
            const u64 d = outer.num_dims - 1;
            lines = outer.dims[d] - index / length % outer.dims[d];
            apart = outer.strides[d];
        }
        return at(index, left);
    }
};

#endif
