/* Ubridge's selections. With fewer elements than SIPs every SIP still writes one element. */
#include "gcu.h"

#define WHERE(condition, type)                                                                     \
    KERNEL(where_##condition##_##type,                                                             \
           (condition * ids, type * on_true, type * on_false, type * out, u64 numel)) {            \
        each_element_carelessly(SIPS, numel, [&](u64 i) {                                          \
            out[i] = ids[i] != 0 ? on_true[i] : on_false[i];                                       \
        });                                                                                        \
    }

#define WHERES(condition)                                                                          \
    WHERE(condition, f32) WHERE(condition, f64) WHERE(condition, u8) WHERE(condition, u32)         \
    WHERE(condition, i64)

WHERES(i64)
WHERES(u32)
WHERES(u8)
WHERE(u8, f16)
WHERE(u8, bf16)
