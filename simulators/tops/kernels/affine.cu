/* Ubridge's affine entries: both scalars are f32, and both steps round to the element's type. */
#include "gcu.h"

#define AFFINE(name, type)                                                                         \
    KERNEL(name, (u64 numel, type *in, type *out, f32 mul, f32 add)) {                             \
        each_element(SIPS, numel, [&](u64 i) {                                                     \
            const volatile f32 scaled = f32(type(f32(in[i]) * mul));                               \
            out[i] = type(scaled + add);                                                           \
        });                                                                                        \
    }

AFFINE(affine_bf16, bf16)
AFFINE(affine_f16, f16)
AFFINE(affine_f32, f32)
