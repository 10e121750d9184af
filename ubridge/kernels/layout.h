// Places of elements in strided arrays: Candle's layouts, which are `num_dims` lengths, then
// `num_dims` strides, outermost first, counted in elements. No layout means contiguous.
#ifndef UBRIDGE_LAYOUT_H
#define UBRIDGE_LAYOUT_H

#include <uhal/kernel.h>

// value / by, leaving the remainder in value. Most sizes fit 32 bits, and a GPU divides those in a
// fraction of the time.
DEVICE_FUNCTION u64 split_off(u64 &value, u64 by)
{
    if ((value | by) >> 32 == 0) {
        const u32 quotient = u32(value) / u32(by);
        value = u32(value) % u32(by);
        return quotient;
    }
    const u64 quotient = value / by;
    value %= by;
    return quotient;
}

struct Layout {
    u64 num_dims;
    const u64 *dims;
    const u64 *strides;

    // The stride of a dim of one element does not matter.
    DEVICE_METHOD bool is_contiguous() const
    {
        u64 expected = 1;
        ROLLED for (u64 d = num_dims; d-- > 0;) {
            if (dims[d] != 1 && strides[d] != expected)
                return false;
            expected *= dims[d];
        }
        return true;
    }

    // The place of the element with this row-major index.
    DEVICE_METHOD u64 at(u64 index) const
    {
        u64 place = 0;
        ROLLED for (u64 d = num_dims; d-- > 0;) {
            u64 coordinate = index;
            index = split_off(coordinate, dims[d]);
            place += coordinate * strides[d];
        }
        return place;
    }
};

// One of an operation's inputs.
template <class T> struct Operand {
    const T *data;
    Layout layout;
    bool contiguous;

    // Contiguous without a layout.
    DEVICE_METHOD explicit Operand(const T *values) : data(values), layout{}, contiguous(true) {}

    // `dims` null: contiguous.
    DEVICE_METHOD Operand(const T *values, u64 num_dims, const u64 *dims, const u64 *strides)
        : data(values), layout{num_dims, dims, strides},
          contiguous(dims == nullptr || layout.is_contiguous())
    {
    }

    DEVICE_METHOD T operator[](u64 index) const
    {
        return data[contiguous ? index : layout.at(index)];
    }
};

#endif
