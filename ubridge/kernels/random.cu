// Random numbers by position: rand_<type> uniform from 0 up to 1, randn_<type> normal.
//
// The generator is Philox; the key is the seed, the counter is `position` plus the numbers used
// since. All targets make the same bits. Nothing here calls a function that targets implement
// differently. Products are added only by fma, so that no compiler can choose whether to round
// them.
#include "number.h"
#include "philox.h"

#include <math.h>

// Multiples of 2^-bits from 0 up to 1; T's mantissa has as many bits, so each is exact.
template <class T> struct Even;
template <> struct Even<f8e4m3> {
    static constexpr u32 bits = 4;
};
template <> struct Even<bf16> {
    static constexpr u32 bits = 8;
};
template <> struct Even<f16> {
    static constexpr u32 bits = 11;
};
template <> struct Even<f32> {
    static constexpr u32 bits = 24;
};

template <class T> DEVICE_FUNCTION T even(u32 word)
{
    constexpr u32 bits = Even<T>::bits;
    return narrow<T>(f32(i32(word >> (32 - bits))) * (1.0f / f32(u32(1) << bits)));
}

// A uniform number of 53 bits; the first word is the upper one. Both parts and their sum are whole
// numbers of f64.
DEVICE_FUNCTION f64 even(u32 upper, u32 lower)
{
    return (f64(upper) * 0x1p21 + f64(lower >> 11)) * 0x1p-53;
}

// The natural logarithm of x, 2^-53 <= x <= 1. With x = 2^k m and m between the roots of 1/2 and 2,
// it is the series of 2 artanh((m - 1) / (m + 1)).
DEVICE_FUNCTION f64 logarithm(f64 x)
{
    constexpr u64 root_half = 0x3FE6A09E00000000u, one = 0x3FF0000000000000u;
    u64 bits;
    memcpy(&bits, &x, sizeof bits);
    bits += one - root_half;
    const f64 k = f64(i32(bits >> 52) - 1023);
    bits = (bits & 0x000FFFFFFFFFFFFFu) + root_half;
    f64 m;
    memcpy(&m, &bits, sizeof m);
    const f64 s = (m - 1.0) / (m + 1.0);
    const f64 z = s * s;
    f64 series = 1.0 / 23;
    series = fma(series, z, 1.0 / 21);
    series = fma(series, z, 1.0 / 19);
    series = fma(series, z, 1.0 / 17);
    series = fma(series, z, 1.0 / 15);
    series = fma(series, z, 1.0 / 13);
    series = fma(series, z, 1.0 / 11);
    series = fma(series, z, 1.0 / 9);
    series = fma(series, z, 1.0 / 7);
    series = fma(series, z, 1.0 / 5);
    series = fma(series, z, 1.0 / 3);
    return fma(k, 0.6931471805599453, 2.0 * fma(s * z, series, s));
}

struct Pair {
    f64 first, second;
};

// cos and sin of 2 pi x, 0 <= x < 1, by Taylor's series within an eighth of a turn: coefficients are
// (pi / 2)^n / n!.
DEVICE_FUNCTION Pair cos_sin_of_turns(f64 x)
{
    const f64 quarters = 4.0 * x;
    const f64 nearest = floor(quarters + 0.5);
    const f64 r = quarters - nearest;
    const f64 z = r * r;
    f64 c = -5.294400200734623e-13;
    c = fma(c, z, 6.565963114979473e-11);
    c = fma(c, z, -6.386603083791852e-09);
    c = fma(c, z, 4.710874778818172e-07);
    c = fma(c, z, -2.5202042373060607e-05);
    c = fma(c, z, 0.0009192602748394266);
    c = fma(c, z, -0.02086348076335296);
    c = fma(c, z, 0.25366950790104803);
    c = fma(c, z, -1.2337005501361697);
    c = fma(c, z, 1.0);
    f64 s = 6.0669357311061955e-12;
    s = fma(s, z, -6.688035109811468e-10);
    s = fma(s, z, 5.692172921967927e-08);
    s = fma(s, z, -3.598843235212085e-06);
    s = fma(s, z, 0.00016044118478735983);
    s = fma(s, z, -0.004681754135318688);
    s = fma(s, z, 0.07969262624616705);
    s = fma(s, z, -0.6459640975062463);
    s = fma(r, 1.5707963267948966, r * (s * z));
    const u32 quarter = u32(i32(nearest));
    const f64 across = quarter & 1 ? s : c;
    const f64 along = quarter & 1 ? c : s;
    return {(quarter + 1) & 2 ? -across : across, quarter & 2 ? -along : along};
}

// Two independent normal numbers (Box and Muller, "A note on the generation of random normal
// deviates", 1958). 1 - u is above 0, so its logarithm is finite.
DEVICE_FUNCTION Pair normal(const Philox &random)
{
    const f64 radius = sqrt(-2.0 * logarithm(1.0 - even(random.word[0], random.word[1])));
    const Pair turned = cos_sin_of_turns(even(random.word[2], random.word[3]));
    return {radius * turned.first, radius * turned.second};
}

#if KERNEL_ON_GPU
#define COUNTERS 1
#define SHARED_BY_TYPES DEVICE_FUNCTION
#else
// One copy for all types, of many counters at a time: a CPU's compiler makes 10 KB of vectors of it.
#define COUNTERS 256
#define SHARED_BY_TYPES static __attribute__((noinline))
#endif

SHARED_BY_TYPES u32 word_of(u64 counter, u64 key, u32 word)
{
    return philox(counter, key).word[word];
}

// Two normal numbers for each of `count` counters.
SHARED_BY_TYPES void normals(u64 counter, u64 key, u64 count, f64 *made)
{
    for (u64 i = 0; i < (KERNEL_ON_GPU ? 1 : count); ++i) {
        const Pair pair = normal(philox(counter + i, key));
        made[2 * i] = pair.first;
        made[2 * i + 1] = pair.second;
    }
}

template <class T> DEVICE_FUNCTION void store(const f64 *made, u64 count, T *out)
{
#if KERNEL_ON_GPU
    // Not a loop: the numbers stay in registers.
    out[0] = narrow<T>(convert<T>(made[0]));
    if (count > 1)
        out[1] = narrow<T>(convert<T>(made[1]));
#else
    for (u64 i = 0; i < count; ++i)
        out[i] = narrow<T>(convert<T>(made[i]));
#endif
}

// A counter for every four numbers, or for two of f64; the last one may be used in part.
#define RAND(T)                                                                                    \
    KERNEL(rand_##T, (u64 numel, u64 seed, u64 position, T *out))                                  \
    {                                                                                              \
        GRID_STRIDE(i, numel / 4) {                                                                \
            const Philox random = philox(position + i, seed);                                      \
            out[4 * i] = even<T>(random.word[0]);                                                  \
            out[4 * i + 1] = even<T>(random.word[1]);                                              \
            out[4 * i + 2] = even<T>(random.word[2]);                                              \
            out[4 * i + 3] = even<T>(random.word[3]);                                              \
        }                                                                                          \
        GRID_STRIDE(i, numel % 4) {                                                                \
            const u64 whole = numel / 4;                                                           \
            out[4 * whole + i] = even<T>(word_of(position + whole, seed, u32(i)));               \
        }                                                                                          \
    }

#define RANDN(T)                                                                                   \
    KERNEL(randn_##T, (u64 numel, u64 seed, u64 position, T *out))                                 \
    {                                                                                              \
        GRID_STRIDE(run, (numel + 2 * COUNTERS - 1) / (2 * COUNTERS)) {                            \
            const u64 first = run * 2 * COUNTERS;                                                  \
            const u64 count = numel - first < 2 * COUNTERS ? numel - first : 2 * COUNTERS;         \
            f64 made[2 * COUNTERS];                                                                \
            normals(position + run * COUNTERS, seed, (count + 1) / 2, made);                       \
            store(made, count, out + first);                                                       \
        }                                                                                          \
    }

RAND(f8e4m3)
RAND(bf16)
RAND(f16)
RAND(f32)

KERNEL(rand_f64, (u64 numel, u64 seed, u64 position, f64 *out))
{
    GRID_STRIDE(i, numel / 2) {
        const Philox random = philox(position + i, seed);
        out[2 * i] = even(random.word[0], random.word[1]);
        out[2 * i + 1] = even(random.word[2], random.word[3]);
    }
    GRID_STRIDE(i, numel % 2) {
        const u64 whole = numel / 2;
        out[2 * whole + i] = even(word_of(position + whole, seed, 0),
                                  word_of(position + whole, seed, 1));
    }
}

RANDN(f8e4m3)
RANDN(bf16)
RANDN(f16)
RANDN(f32)
RANDN(f64)
