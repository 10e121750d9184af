// Conversions, elementwise: `cast_<from>_<to>`, with the rules of `convert` in number.h.
//
// info is null for a contiguous inp; otherwise it holds dims and strides of inp.
#include "elementwise.h"

// All types computed in f32 share this conversion.
template <bool itself, class To> struct AlikeType {
    typedef To Type;
};
template <class To> struct AlikeType<false, To> {
    typedef f16 Type;
};

template <class To> struct Convert : LongFunction {
    template <class From> DEVICE_METHOD Compute<To> operator()(From x) const
    {
        return convert<To>(x);
    }
};

// Halves and f32 are converted by one instruction, or none.
template <class To, class From>
constexpr bool is_long<Convert<To>, From> = !(same_type<Compute<From>, f32> &&
                                              same_type<Compute<To>, f32>);

#define CAST(from_name, From, to_name, To)                                                         \
    KERNEL(cast_##from_name##_##to_name,                                                           \
           (u64 numel, u64 num_dims, const u64 *info, const From *inp, To *out))                   \
    {                                                                                              \
        map(THIS_BLOCK, numel, out, Convert<AlikeType<computes_itself<To>, To>::Type>{},           \
            Operand<From>(inp, num_dims, info, info + num_dims));                                  \
    }

#define CAST_TO_EACH(name, From)                                                                   \
    CAST(name, From, bf16, bf16)                                                                   \
    CAST(name, From, f16, f16)                                                                     \
    CAST(name, From, f32, f32)                                                                     \
    CAST(name, From, f64, f64)                                                                     \
    CAST(name, From, u8, u8)                                                                       \
    CAST(name, From, u32, u32)                                                                     \
    CAST(name, From, i16, i16)                                                                     \
    CAST(name, From, i32, i32)                                                                     \
    CAST(name, From, i64, i64)                                                                     \
    CAST(name, From, i8, i8)                                                                       \
    CAST(name, From, u16, u16)                                                                     \
    CAST(name, From, u64, u64)

// f8e4m3 under the name that Candle requests, and under the name in its kernels.
#define CAST_TO_F8(name, From)                                                                     \
    CAST(name, From, f8e4m3, f8e4m3)                                                               \
    CAST(name, From, f8_e4m3, f8e4m3)

#define CASTS(T)                                                                                   \
    CAST_TO_EACH(T, T)                                                                             \
    CAST_TO_F8(T, T)

CASTS(bf16)
CASTS(f16)
CASTS(f32)
CASTS(f64)
CASTS(u8)
CASTS(u32)
CASTS(i16)
CASTS(i32)
CASTS(i64)
CASTS(i8)
CASTS(u16)
CASTS(u64)
CAST_TO_EACH(f8e4m3, f8e4m3)
CAST_TO_EACH(f8_e4m3, f8e4m3)
CAST(f8e4m3, f8e4m3, f8e4m3, f8e4m3)
CAST(f8_e4m3, f8e4m3, f8_e4m3, f8e4m3)
