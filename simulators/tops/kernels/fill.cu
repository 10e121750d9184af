/* Ubridge's fills of contiguous elements; the count is an int. */
#include "gcu.h"

#define FILL(name, type)                                                                           \
    KERNEL(name, (type * out, i32 total, type value)) {                                            \
        each_element(SIPS, total > 0 ? (u64)total : 0, [&](u64 i) { out[i] = value; });            \
    }

FILL(fill_f32, f32)
FILL(fill_f16, f16)
FILL(fill_bf16, bf16)
FILL(fill_f64, f64)
FILL(fill_i32, i32)
FILL(fill_u32, u32)
FILL(fill_i16, i16)
FILL(fill_bool, bool)
FILL(fill_i8, i8)
FILL(fill_u8, u8)
FILL(fill_u16, u16)
FILL(fill_i64, i64)
