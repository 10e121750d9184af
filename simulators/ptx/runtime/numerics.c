/* Arithmetic that LLVM has no instruction for; linked into every translated kernel.
 *
 * Rounding modes: 0 to nearest even, 1 towards zero, 2 down, 3 up, 4 to nearest away from zero.
 */
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#pragma STDC FENV_ACCESS ON

static int enter(int32_t mode) {
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    const int before = fegetround();
    fesetround(modes[mode]);
    return before;
}

#define DIRECTED(name, type, parameters, expression)                                               \
    type name parameters {                                                                         \
        const int before = enter(mode);                                                            \
        volatile type result = expression;                                                         \
        fesetround(before);                                                                        \
        return result;                                                                             \
    }

DIRECTED(uptx_div_f32, float, (volatile float a, volatile float b, int32_t mode), a / b)
DIRECTED(uptx_rcp_f32, float, (volatile float a, int32_t mode), 1.0f / a)
DIRECTED(uptx_sqrt_f32, float, (volatile float a, int32_t mode), sqrtf(a))
DIRECTED(uptx_add_f64, double, (volatile double a, volatile double b, int32_t mode), a + b)
DIRECTED(uptx_sub_f64, double, (volatile double a, volatile double b, int32_t mode), a - b)
DIRECTED(uptx_mul_f64, double, (volatile double a, volatile double b, int32_t mode), a *b)
DIRECTED(uptx_div_f64, double, (volatile double a, volatile double b, int32_t mode), a / b)
DIRECTED(uptx_rcp_f64, double, (volatile double a, int32_t mode), 1.0 / a)
DIRECTED(uptx_sqrt_f64, double, (volatile double a, int32_t mode), sqrt(a))
DIRECTED(uptx_fma_f64, double,
         (volatile double a, volatile double b, volatile double c, int32_t mode), fma(a, b, c))
DIRECTED(uptx_f64_to_f32, float, (volatile double a, int32_t mode), (float)a)
DIRECTED(uptx_s64_to_f32, float, (volatile int64_t a, int32_t mode), (float)a)
DIRECTED(uptx_s64_to_f64, double, (volatile int64_t a, int32_t mode), (double)a)

/* Halves a large value; the last bit records whether a bit was lost. */
static int64_t halved(uint64_t a) { return (int64_t)(a >> 1 | (a & 1)); }

float uptx_u64_to_f32(uint64_t a, int32_t mode) {
    return a >> 63 ? 2.0f * uptx_s64_to_f32(halved(a), mode) : uptx_s64_to_f32((int64_t)a, mode);
}

double uptx_u64_to_f64(uint64_t a, int32_t mode) {
    return a >> 63 ? 2.0 * uptx_s64_to_f64(halved(a), mode) : uptx_s64_to_f64((int64_t)a, mode);
}

static double with_odd_end(double truncated, int inexact) {
    uint64_t bits;
    memcpy(&bits, &truncated, 8);
    bits |= inexact && isfinite(truncated) ? 1 : 0;
    memcpy(&truncated, &bits, 8);
    return truncated;
}

double uptx_s64_to_odd(int64_t a) {
    const double truncated = uptx_s64_to_f64(a, 1);
    return with_odd_end(truncated, (int64_t)truncated != a);
}

double uptx_u64_to_odd(uint64_t a) {
    const double truncated = uptx_u64_to_f64(a, 1);
    return with_odd_end(truncated, (uint64_t)truncated != a);
}

/* Returns a b + c as a float that rounds to each 16-bit format like the exact value. */
float uptx_fma_narrow(float a, float b, float c) {
    const double product = (double)a * b;
    const double sum = product + c;
    if (!isfinite(sum)) {
        return (float)sum;
    }
    /* The error of the sum is exact (Knuth). The sum, moved towards zero and made odd, records the
       error. */
    const double back = sum - product;
    const double error = (product - (sum - back)) + (c - back);
    double truncated = sum;
    if (error != 0 && (error < 0) == (sum > 0)) {
        truncated = nextafter(sum, 0);
    }
    const double odd = with_odd_end(truncated, error != 0);
    const float narrow = uptx_f64_to_f32(odd, 1);
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    bits |= isfinite(narrow) && (double)narrow != odd ? 1 : 0;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

struct format {
    int exponent_bits;
    int mantissa_bits;
    int has_infinity;
    uint32_t nan;
    uint32_t largest;
};

static const struct format formats[] = {
    {5, 10, 1, 0x7FFF, 0x7BFF}, {8, 7, 1, 0x7FFF, 0x7F7F},          {4, 3, 0, 0x7F, 0x7E},
    {5, 2, 1, 0x7F, 0x7B},      {8, 10, 1, 0x7FFFFFFF, 0x7F7FE000},
};

static double rounded(double value, int32_t mode) {
    if (mode == 4) {
        return round(value);
    }
    const int before = enter(mode);
    volatile double input = value;
    const double result = nearbyint(input);
    fesetround(before);
    return result;
}

/* A double in a narrow format, rounded once. Flag 1: overflow gives the largest finite value. */
uint32_t uptx_narrow(double value, int32_t which, int32_t mode, int32_t flags) {
    const struct format *format = &formats[which];
    const int width = 1 + format->exponent_bits + format->mantissa_bits;
    const int shift = which == 4 ? 32 - width : 0; /* tf32 lies in the upper bits of its register */
    const uint32_t sign = (signbit(value) ? 1u << (width - 1) : 0) << shift;
    if (isnan(value)) {
        return format->nan;
    }
    const int bias = (1 << (format->exponent_bits - 1)) - 1;
    const double magnitude = fabs(value);
    int exponent = 1 - bias;
    if (magnitude != 0 && isfinite(magnitude)) {
        exponent = ilogb(magnitude);
    }
    exponent = exponent < 1 - bias ? 1 - bias : exponent;
    /* In units of the last place; directed modes look at the sign. */
    const double unit = ldexp(1.0, exponent - format->mantissa_bits);
    const double count = isfinite(value) ? fabs(rounded(value / unit, mode)) : 0;
    uint32_t bits = 0;
    if (isfinite(value)) {
        const double leading = ldexp(1.0, format->mantissa_bits);
        bits = (uint32_t)((exponent + bias - 1) << format->mantissa_bits) + (uint32_t)count;
        bits = count < leading && exponent == 1 - bias ? (uint32_t)count : bits;
        bits <<= shift;
    }
    if (!isfinite(value) || bits > format->largest) {
        const int towards_zero = mode == 1 || (mode == 2 && !sign) || (mode == 3 && sign);
        const int clamp = flags & 1 || (isfinite(value) && towards_zero);
        const uint32_t beyond =
            format->has_infinity ? format->largest + (1u << shift) : format->nan;
        bits = clamp ? format->largest : beyond;
    }
    return sign | bits;
}

float uptx_from_f8(uint32_t bits, int32_t which) {
    const struct format *format = &formats[which];
    const uint32_t magnitude = bits & 0x7F;
    const int bias = (1 << (format->exponent_bits - 1)) - 1;
    const int exponent = (int)(magnitude >> format->mantissa_bits);
    const int mantissa = (int)(magnitude & ((1u << format->mantissa_bits) - 1));
    float value;
    if (magnitude > format->largest) {
        value = format->has_infinity && mantissa == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        value = ldexpf((float)mantissa, 1 - bias - format->mantissa_bits);
    } else {
        const int whole = mantissa + (1 << format->mantissa_bits);
        value = ldexpf((float)whole, exponent - bias - format->mantissa_bits);
    }
    return bits & 0x80 ? -value : value;
}

uint32_t uptx_fns(uint32_t mask, uint32_t base, uint32_t offset) {
    const int32_t steps = (int32_t)offset;
    int32_t left = steps == 0 ? 1 : steps < 0 ? -steps : steps;
    if (steps == 0) {
        return base < 32 && mask >> base & 1 ? base : 0xFFFFFFFF;
    }
    for (int64_t bit = base; bit >= 0 && bit < 32; bit += steps < 0 ? -1 : 1) {
        if (mask >> bit & 1 && --left == 0) {
            return (uint32_t)bit;
        }
    }
    return 0xFFFFFFFF;
}

uint64_t uptx_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
