/* Ubridge's unary entries: contiguous, no layout. */
#include "gcu.h"

namespace {

f32 gelu(f32 x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

template <class T, class Operation>
void map(const Sips &sips, u64 numel, const T *in, T *out, const Operation &operation) {
    each_element(sips, numel, [&](u64 i) { out[i] = T(operation(f32(in[i]))); });
}

} // namespace

#define UNARY(name, type, expression)                                                              \
    KERNEL(name, (u64 numel, type *in, type *out)) {                                               \
        map(SIPS, numel, in, out, [](f32 x) { return expression; });                               \
    }

#define UNARIES(suffix, type)                                                                      \
    UNARY(uneg_##suffix, type, -x)                                                                 \
    UNARY(uexp_##suffix, type, expf(x))                                                            \
    UNARY(ulog_##suffix, type, logf(x))                                                            \
    UNARY(usin_##suffix, type, sinf(x))                                                            \
    UNARY(ucos_##suffix, type, cosf(x))                                                            \
    UNARY(uabs_##suffix, type, fabsf(x))                                                           \
    UNARY(usqr_##suffix, type, x *x)                                                               \
    UNARY(usqrt_##suffix, type, sqrtf(x))                                                          \
    UNARY(ursqrt_##suffix, type, 1.0f / sqrtf(x))                                                  \
    UNARY(ugelu_##suffix, type, gelu(x))                                                           \
    UNARY(urelu_##suffix, type, x > 0 ? x : x != x ? x : 0.0f)                                     \
    UNARY(usilu_##suffix, type, x / (1.0f + expf(-x)))                                             \
    UNARY(utanh_##suffix, type, tanhf(x))                                                          \
    UNARY(usigmoid_##suffix, type, 1.0f / (1.0f + expf(-x)))                                       \
    UNARY(urecip_##suffix, type, 1.0f / x)                                                         \
    /* An alias of the tanh form, in spite of its name. */                                         \
    UNARY(ugelu_erf_##suffix, type, gelu(x))                                                       \
    KERNEL(uelu_##suffix, (u64 numel, type *in, type *out, f32 alpha)) {                           \
        NEEDS_SHARED();                                                                            \
        each_element_carelessly(SIPS, numel, [&](u64 i) {                                          \
            const f32 x = f32(in[i]);                                                              \
            out[i] = type(x > 0 ? x : alpha * (expf(x) - 1.0f));                                   \
        });                                                                                        \
    }

UNARIES(bf16, bf16)
UNARIES(f16, f16)
UNARIES(f32, f32)
