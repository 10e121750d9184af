// out = ids != 0 ? t : f elementwise, `where_<type of ids>_<type>`.
//
// info is null when all three are contiguous. Otherwise it holds dims, then strides of ids, of t
// and of f.
#include "elementwise.h"

struct Select {
    template <class I, class T> DEVICE_METHOD T operator()(I condition, T yes, T no) const
    {
        return condition != I(0) ? yes : no;
    }
};

// The values are only moved, so that one select serves all types of a size.
#define WHERE(entry, I, T)                                                                         \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *info, const I *ids, const T *t, const T *f, \
                   T *out))                                                                        \
    {                                                                                              \
        map(THIS_BLOCK, numel, words(out), Select{},                                               \
            Operand<Word<I>>(words(ids), num_dims, info, info + num_dims),                         \
            Operand<Word<T>>(words(t), num_dims, info, info + 2 * num_dims),                       \
            Operand<Word<T>>(words(f), num_dims, info, info + 3 * num_dims));                      \
    }

#define WHERE_EACH_TYPE(I)                                                                         \
    WHERE(where_##I##_bf16, I, bf16)                                                               \
    WHERE(where_##I##_f16, I, f16)                                                                 \
    WHERE(where_##I##_f32, I, f32)                                                                 \
    WHERE(where_##I##_f64, I, f64)                                                                 \
    WHERE(where_##I##_f8e4m3, I, f8e4m3)                                                           \
    WHERE(where_##I##_fp8_e4m3, I, f8e4m3)                                                         \
    WHERE(where_##I##_u8, I, u8)                                                                   \
    WHERE(where_##I##_u32, I, u32)                                                                 \
    WHERE(where_##I##_i16, I, i16)                                                                 \
    WHERE(where_##I##_i32, I, i32)                                                                 \
    WHERE(where_##I##_i64, I, i64)

WHERE_EACH_TYPE(u8)
WHERE_EACH_TYPE(u32)
WHERE_EACH_TYPE(i64)
WHERE(where_i16_fp8_e4m3, i16, f8e4m3)
WHERE(where_i32_fp8_e4m3, i32, f8e4m3)
