// Binary operations and comparisons, elementwise. Results of `b<operation>_<type>` have the type
// of the operands. Results of `<comparison>_<type>` are u8, 0 or 1.
//
// dims_and_strides is null when both operands are contiguous, otherwise dims, strides of lhs,
// strides of rhs; a broadcast dim has the stride 0.
#include "elementwise.h"

#include <math.h>
#if defined(__HIP__)
#include <uhal/hip/inverse_functions.h>
#endif

DEVICE_FUNCTION f32 atan2_of(f32 y, f32 x) { return atan2f(y, x); }
DEVICE_FUNCTION f64 atan2_of(f64 y, f64 x) { return atan2(y, x); }

#define OPERATION(Name, Result, result)                                                            \
    struct Name {                                                                                  \
        template <class T> DEVICE_METHOD Result operator()(T a, T b) const { return result; }      \
    };

#define LONG_OPERATION(Name, Result, result)                                                       \
    struct Name : LongFunction {                                                                   \
        template <class T> DEVICE_METHOD Result operator()(T a, T b) const { return result; }      \
    };

OPERATION(Add, T, add(a, b))
OPERATION(Subtract, T, subtract(a, b))
OPERATION(Multiply, T, multiply(a, b))
LONG_OPERATION(Divide, T, divide(a, b))
OPERATION(Maximum, T, maximum(a, b))
OPERATION(Minimum, T, minimum(a, b))
LONG_OPERATION(ArcTangent, T, atan2_of(a, b))
OPERATION(Equal, u8, a == b)
OPERATION(NotEqual, u8, a != b)
OPERATION(Less, u8, a < b)
OPERATION(LessOrEqual, u8, a <= b)
OPERATION(Greater, u8, a > b)
OPERATION(GreaterOrEqual, u8, a >= b)

template <class T>
DEVICE_FUNCTION Operand<T> operand(const T *values, u64 num_dims, const u64 *info, u64 position)
{
    return Operand<T>(values, num_dims, info, info + num_dims * position);
}

#define BINARY(entry, T, Out, Operation)                                                           \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *dims_and_strides, const T *lhs,             \
                   const T *rhs, Out *out))                                                        \
    {                                                                                              \
        map(THIS_BLOCK, numel, out, Operation{}, operand(lhs, num_dims, dims_and_strides, 1),      \
            operand(rhs, num_dims, dims_and_strides, 2));                                          \
    }

#define ARITHMETIC(name, T)                                                                        \
    BINARY(badd_##name, T, T, Add)                                                                 \
    BINARY(bsub_##name, T, T, Subtract)                                                            \
    BINARY(bmul_##name, T, T, Multiply)                                                            \
    BINARY(bdiv_##name, T, T, Divide)                                                              \
    BINARY(bmaximum_##name, T, T, Maximum)                                                         \
    BINARY(bminimum_##name, T, T, Minimum)

#define FUNCTION(name, T) BINARY(batan2_##name, T, T, ArcTangent)

#define COMPARISON(name, T)                                                                        \
    BINARY(eq_##name, T, u8, Equal)                                                                \
    BINARY(ne_##name, T, u8, NotEqual)                                                             \
    BINARY(lt_##name, T, u8, Less)                                                                 \
    BINARY(le_##name, T, u8, LessOrEqual)                                                          \
    BINARY(gt_##name, T, u8, Greater)                                                              \
    BINARY(ge_##name, T, u8, GreaterOrEqual)

#define EACH_FLOAT(KIND)                                                                           \
    KIND(bf16, bf16)                                                                               \
    KIND(f16, f16)                                                                                 \
    KIND(f32, f32)                                                                                 \
    KIND(f64, f64)                                                                                 \
    KIND(f8e4m3, f8e4m3)                                                                           \
    KIND(f8_e4m3, f8e4m3)
#define EACH_TYPE(KIND)                                                                            \
    EACH_FLOAT(KIND)                                                                               \
    KIND(u8, u8)                                                                                   \
    KIND(u32, u32)                                                                                 \
    KIND(i16, i16)                                                                                 \
    KIND(i32, i32)                                                                                 \
    KIND(i64, i64)

EACH_TYPE(ARITHMETIC)
EACH_FLOAT(FUNCTION)
EACH_TYPE(COMPARISON)
