// out = inp * mul + add elementwise, `affine_<type>`: floats with one rounding where the target has a
// fused multiply-add, integers wrapping.
//
// info is null for a contiguous inp, otherwise its dims and strides. inp null means in place: the
// operation then reads out, in row-major order like every result.
#include "elementwise.h"

template <class T> struct Affine {
    T mul;
    T add_;
    DEVICE_METHOD T operator()(T x) const
    {
        if constexpr (Number<T>::is_integer)
            return add(multiply(x, mul), add_);
        else
            return x * mul + add_;
    }
};

#define AFFINE(name, T)                                                                            \
    KERNEL(affine_##name, (u64 numel, u64 num_dims, const u64 *info, const T *inp, T *out, T mul,  \
                           T add))                                                                 \
    {                                                                                              \
        const Operand<T> operand = inp == nullptr                                                  \
                                       ? Operand<T>(out)                                           \
                                       : Operand<T>(inp, num_dims, info, info + num_dims);         \
        map(THIS_BLOCK, numel, out, Affine<Compute<T>>{widen(mul), widen(add)}, operand);          \
    }

AFFINE(bf16, bf16)
AFFINE(f16, f16)
AFFINE(f32, f32)
AFFINE(f64, f64)
AFFINE(f8e4m3, f8e4m3)
AFFINE(f8_e4m3, f8e4m3)
AFFINE(u8, u8)
AFFINE(u32, u32)
AFFINE(i16, i16)
AFFINE(i32, i32)
AFFINE(i64, i64)
