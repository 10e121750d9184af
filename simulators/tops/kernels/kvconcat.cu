/* Ubridge's concatenation of tensors with three or four axes along axis 0 or 2. Any other axis does
 * nothing. `dims` holds the left shape, then the right shape. */
#include "gcu.h"

namespace {

struct Sides {
    u64 rows; // of the left side; the same on the right where axis 2 is joined
    u64 right_rows;
    u64 left;
    u64 right; // elements of a row
};

Sides measure(const u64 *dims, u64 axes) {
    const u64 *other = dims + axes;
    const bool four = axes > 3;
    return {four ? dims[0] * dims[1] : dims[0], four ? other[0] * other[1] : other[0],
            four ? dims[2] * dims[3] : dims[1] * dims[2],
            four ? other[2] * other[3] : other[1] * other[2]};
}

template <class T>
void concatenate(const Sips &sips, const T *left, const T *right, T *out, const u64 *dims, u64 axes,
                 i32 axis) {
    const Sides sides = measure(dims, axes);
    const auto copy = [](T *to, const T *from, u64 count) {
        for (u64 i = 0; i < count; ++i) {
            to[i] = from[i];
        }
    };
    if (axis == 0 && sips.first == 0) {
        copy(out, left, sides.rows * sides.left);
        copy(out + sides.rows * sides.left, right, sides.right_rows * sides.right);
    }
    if (axis == 2) {
        each_element(sips, sides.rows, [&](u64 row) {
            T *to = out + row * (sides.left + sides.right);
            copy(to, left + row * sides.left, sides.left);
            copy(to + sides.left, right + row * sides.right, sides.right);
        });
    }
}

} // namespace

#define KVCONCAT(name, type)                                                                       \
    KERNEL(name, (type * left, type * right, type * out, u64 * dims, u64 dim_size,                 \
                  i32 concat_dim)) {                                                               \
        concatenate(SIPS, left, right, out, dims, dim_size, concat_dim);                           \
    }

KVCONCAT(kvconcat_f16, f16)
KVCONCAT(kvconcat_bf16, bf16)
KVCONCAT(kvconcat_f32, f32)
KVCONCAT(kvconcat_f64, f64)
KVCONCAT(kvconcat_u8, u8)
