/* Ubridge's binary entries. If any stride of the right operand is zero, the whole right operand
 * counts as one element. Otherwise both operands are read linearly. */
#include "gcu.h"

namespace {

template <class T, class Out, class Operation>
void combine(const Sips &sips, u64 numel, u64 num_dims, const u64 *dims_and_strides, const T *a,
             const T *b, Out *out, const Operation &operation) {
    u64 right = 1;
    for (u64 axis = 0; axis < num_dims; ++axis) {
        // All three parts are copied, used or not.
        const volatile u64 *words = dims_and_strides;
        (void)words[axis];
        (void)words[num_dims + axis];
        right *= words[2 * num_dims + axis];
    }
    each_element(sips, numel, [&](u64 i) {
        out[i] = Out(operation(wide(a[i]), wide(b[right == 0 ? 0 : i])));
    });
}

inline f32 remainder_of(f32 x, f32 y) {
    return fmodf(x, y);
}

// No manual describes a GCU's result for a zero divisor. Here the result is 0, as in Ubridge's own
// kernels; the CPU's instruction would trap.
inline u32 remainder_of(u32 x, u32 y) {
    return y == 0 ? 0 : x % y;
}

inline f32 quotient_of(f32 x, f32 y) {
    return x / y;
}

inline u32 quotient_of(u32 x, u32 y) {
    return y == 0 ? 0 : x / y;
}

} // namespace

#define BINARY(name, type, result, expression)                                                     \
    KERNEL(name, (u64 numel, u64 num_dims, u64 * dims_and_strides, type * a, type * b,             \
                  result * out)) {                                                                 \
        combine(SIPS, numel, num_dims, dims_and_strides, a, b, out,                                \
                [](Wide<type> x, Wide<type> y) { return expression; });                            \
    }

#define BINARIES(suffix, type)                                                                     \
    BINARY(badd_##suffix, type, type, x + y)                                                       \
    BINARY(bsub_##suffix, type, type, x - y)                                                       \
    BINARY(bmul_##suffix, type, type, x *y)                                                        \
    BINARY(bdiv_##suffix, type, type, quotient_of(x, y))                                           \
    BINARY(bmaximum_##suffix, type, type, x > y ? x : y)                                           \
    BINARY(bminimum_##suffix, type, type, x < y ? x : y)                                           \
    BINARY(mod_##suffix, type, type, remainder_of(x, y))                                           \
    BINARY(eq_##suffix, type, u8, x == y)                                                          \
    BINARY(ne_##suffix, type, u8, x != y)                                                          \
    BINARY(ge_##suffix, type, u8, x >= y)                                                          \
    BINARY(gt_##suffix, type, u8, x > y)                                                           \
    BINARY(lt_##suffix, type, u8, x < y)                                                           \
    BINARY(le_##suffix, type, u8, x <= y)

BINARIES(bf16, bf16)
BINARIES(f16, f16)
BINARIES(f32, f32)
BINARIES(u32, u32)
