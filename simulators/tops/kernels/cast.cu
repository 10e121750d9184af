/* Ubridge's casts. With fewer elements than SIPs, every SIP still writes an element. */
#include "gcu.h"

#include <limits>

namespace {

template <class To, class From> To convert(From from) {
    const Wide<From> x = wide(from);
    if constexpr (std::is_floating_point_v<Wide<From>> && std::is_integral_v<To>) {
        // Rounds towards zero; values out of range become the nearest bound.
        const f64 least = f64(std::numeric_limits<To>::min());
        const f64 most = f64(std::numeric_limits<To>::max());
        const f64 whole = f64(x);
        return whole != whole ? To(0)
               : whole <= least ? std::numeric_limits<To>::min()
               : whole >= most  ? std::numeric_limits<To>::max()
                                : To(whole);
    } else {
        return To(x);
    }
}

} // namespace

#define CAST(from, to) CAST_OF(cast_##from##_##to, from, to)
#define CAST_OF(name, from, to)                                                                    \
    KERNEL(name, (u64 numel, from *in, to *out)) {                                                 \
        NEEDS_SHARED();                                                                            \
        each_element_carelessly(SIPS, numel, [&](u64 i) { out[i] = convert<to>(in[i]); });         \
    }

#define CASTS_OF_FLOAT(from, other, another)                                                       \
    CAST(from, i16) CAST(from, i32) CAST(from, other) CAST(from, another)

CASTS_OF_FLOAT(bf16, f16, f32)
CASTS_OF_FLOAT(f16, f32, bf16)
CASTS_OF_FLOAT(f32, f16, bf16)

#define CASTS_TO_FLOAT(from) CAST(from, f32) CAST(from, f16) CAST(from, bf16)

CAST(i16, i32)
CASTS_TO_FLOAT(i16)
CAST(i32, i16)
CASTS_TO_FLOAT(i32)
CAST(u8, u16)
CAST(u8, u32)
CASTS_TO_FLOAT(u8)
CAST(u16, u8)
CAST(u16, u32)
CASTS_TO_FLOAT(u16)
CAST(u32, u8)
CAST(u32, u16)
CASTS_TO_FLOAT(u32)
CAST(i64, u32)
CAST(i64, i32)
CAST(i64, f32)
