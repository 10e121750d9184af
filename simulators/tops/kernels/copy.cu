/* Ubridge's copies. The words after the counts are the result's shape, strides and axis order, then
 * the shape of the operand. Each operation uses some of these words. */
#include "gcu.h"

namespace {

enum : u64 { transposed = 1, broadcast = 2, narrowed = 4 };
constexpr u64 most_axes = 5;

/* Distance between the operand's elements along each axis of the result. */
struct Walk {
    u64 axes;
    u64 shape[most_axes];
    u64 step[most_axes];

    u64 at(u64 i) const {
        u64 offset = 0;
        for (u64 axis = axes; axis-- > 0;) {
            offset += i % shape[axis] * step[axis];
            i /= shape[axis];
        }
        return offset;
    }
};

/* Steps of a contiguous operand. */
void contiguous(const u64 *shape, u64 axes, u64 *step) {
    u64 elements = 1;
    for (u64 axis = axes; axis-- > 0;) {
        step[axis] = elements;
        elements *= shape[axis];
    }
}

bool prepare(u64 in_size, u64 out_size, u64 axes, u64 origin_axes, const u64 *info, u64 operation,
             Walk &walk) {
    const bool moves = operation == transposed || operation == broadcast || operation == narrowed;
    const u64 most = operation == transposed ? most_axes - 1 : most_axes;
    if (axes > most || (moves && axes < 2) || (operation == transposed && in_size != out_size) ||
        origin_axes > axes) {
        return false;
    }
    const u64 *origin = info + 3 * axes;
    u64 own[most_axes] = {};
    contiguous(origin, origin_axes, own);
    walk.axes = axes;
    for (u64 axis = 0; axis < axes; ++axis) {
        walk.shape[axis] = info[axis];
        switch (operation) {
        case transposed:
            walk.step[axis] = own[info[2 * axes + axis]];
            break;
        case broadcast: {
            const u64 missing = axes - origin_axes;
            const bool there = axis >= missing && origin[axis - missing] != 1;
            walk.step[axis] = there ? own[axis - missing] : 0;
            break;
        }
        case narrowed:
            walk.step[axis] = own[axis];
            break;
        default:
            walk.step[axis] = info[axes + axis];
        }
    }
    return true;
}

} // namespace

#define COPY(name, type)                                                                           \
    KERNEL(name, (u64 in_size, u64 out_size, u64 num_dims, u64 origin_num_dims, u64 * info,        \
                  type * in, type * out, u64 op_type)) {                                           \
        NEEDS_SHARED();                                                                            \
        Walk walk;                                                                                 \
        if (prepare(in_size, out_size, num_dims, origin_num_dims, info, op_type, walk)) {          \
            each_element(SIPS, out_size, [&](u64 i) { out[i] = in[walk.at(i)]; });                 \
        }                                                                                          \
    }

COPY(ucopy_bf16, bf16)
COPY(ucopy_f16, f16)
COPY(ucopy_f32, f32)
COPY(ucopy_u8, u8)
COPY(ucopy_i8, i8)
COPY(ucopy_u32, u32)
COPY(ucopy_f64, f64)
