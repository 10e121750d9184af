// Scales of least error for sixteen groups of numbers at once, one group a lane.
//
// Each candidate scale rounds the numbers to integers. Least squares then give the best scale and
// minimum for these integers. The candidate with the least error wins.
#ifndef UBRIDGE_BLOCK_FITS_H
#define UBRIDGE_BLOCK_FITS_H

#include "block_elements.h"

struct Fit {
    Floats16 scale, minimum;
};

DEVICE_FUNCTION Floats16 everywhere(f32 value) { return value + Floats16{}; }

// To the nearest integer; for magnitudes below 2^22.
DEVICE_FUNCTION Floats16 nearest(Floats16 values)
{
    const Floats16 magic = everywhere(12582912);
    return (values + magic) - magic;
}

DEVICE_FUNCTION Floats16 limited(Floats16 values, f32 least, f32 most)
{
    const Floats16 low = everywhere(least), high = everywhere(most);
    values = values < low ? low : values;
    return values > high ? high : values;
}

DEVICE_FUNCTION Floats16 inverse_of(Floats16 values)
{
    return values != 0 ? 1 / values : Floats16{};
}

// x = scale * q - minimum, with q in 0 … most and a minimum of at least 0. The first candidate
// divides the range into `most + from` steps, each further candidate into 0.1 steps more.
template <u32 COUNT>
DEVICE_FUNCTION Fit fit_with_minimum(const Floats16 *x, f32 most, f32 from, u32 candidates)
{
    Floats16 low = {}, high = x[0], sum = {}, squares = {};
    for (u32 i = 0; i < COUNT; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        sum += x[i];
        squares += x[i] * x[i];
    }
    const Floats16 inverse = inverse_of(high - low);
    Fit best = {(high - low) / most, -low};
    Floats16 least = everywhere(__FLT_MAX__);
    for (u32 candidate = 0; candidate <= candidates; ++candidate) {
        const Floats16 factor = (most + from + 0.1f * f32(candidate)) * inverse;
        Floats16 of_q = {}, of_qq = {}, of_xq = {};
        for (u32 i = 0; i < COUNT; ++i) {
            const Floats16 q = limited(nearest((x[i] - low) * factor), 0, most);
            of_q += q;
            of_qq += q * q;
            of_xq += x[i] * q;
        }
        const Floats16 determinant = f32(COUNT) * of_qq - of_q * of_q;
        const Floats16 share = inverse_of(determinant);
        Floats16 scale = (f32(COUNT) * of_xq - sum * of_q) * share;
        Floats16 shift = (of_qq * sum - of_q * of_xq) * share;
        scale = shift > 0 ? of_xq * inverse_of(of_qq) : scale;
        shift = shift > 0 ? Floats16{} : shift;
        const Floats16 error = squares - 2 * scale * of_xq - 2 * shift * sum +
                               scale * scale * of_qq + 2 * scale * shift * of_q +
                               f32(COUNT) * shift * shift;
        const auto better = (error < least) & (determinant > 0);
        least = better ? error : least;
        best.scale = better ? scale : best.scale;
        best.minimum = better ? -shift : best.minimum;
    }
    return best;
}

// The number of largest magnitude in each group, with its sign.
template <u32 COUNT> DEVICE_FUNCTION Floats16 furthest_of(const Floats16 *x)
{
    Floats16 furthest = x[0], distance = {};
    for (u32 i = 0; i < COUNT; ++i) {
        const Floats16 magnitude = x[i] < 0 ? -x[i] : x[i];
        furthest = magnitude > distance ? x[i] : furthest;
        distance = magnitude > distance ? magnitude : distance;
    }
    return furthest;
}

// Keeps the scale with the largest reduction of the sum of squares.
DEVICE_FUNCTION void keep_better(Floats16 of_xq, Floats16 of_qq, Floats16 &most, Floats16 &scale)
{
    const Floats16 found = of_xq * inverse_of(of_qq);
    const Floats16 gain = found * of_xq;
    scale = gain > most ? found : scale;
    most = gain > most ? gain : most;
}

// x = scale * q, with q in -most … most - 1.
template <u32 COUNT> DEVICE_FUNCTION Floats16 fit_of_integers(const Floats16 *x, f32 most)
{
    const Floats16 inverse = inverse_of(furthest_of<COUNT>(x));
    Floats16 scale = {}, gain = {};
    for (i32 candidate = -9; candidate <= 9; ++candidate) {
        const Floats16 factor = -(most + 0.1f * f32(candidate)) * inverse;
        Floats16 of_xq = {}, of_qq = {};
        for (u32 i = 0; i < COUNT; ++i) {
            const Floats16 q = limited(nearest(x[i] * factor), -most, most - 1);
            of_xq += x[i] * q;
            of_qq += q * q;
        }
        keep_better(of_xq, of_qq, gain, scale);
    }
    return scale;
}

// The sixteen values of IQ4_NL and IQ4_XS.
constexpr f32 IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

// The nearest of these sixteen values, or its index.
template <bool index> DEVICE_FUNCTION Floats16 nearest_iq4(Floats16 values)
{
    Floats16 found = everywhere(index ? 0 : IQ4_VALUES[0]);
    for (u32 i = 0; i < 15; ++i) {
        const f32 border = (IQ4_VALUES[i] + IQ4_VALUES[i + 1]) / 2;
        found = values > border ? everywhere(index ? f32(i + 1) : IQ4_VALUES[i + 1]) : found;
    }
    return found;
}

template <u32 COUNT> DEVICE_FUNCTION Floats16 fit_of_iq4(const Floats16 *x)
{
    const Floats16 inverse = inverse_of(furthest_of<COUNT>(x));
    Floats16 scale = {}, gain = {};
    for (i32 candidate = -7; candidate <= 7; ++candidate) {
        const Floats16 factor = (IQ4_VALUES[0] + f32(candidate)) * inverse;
        Floats16 of_xq = {}, of_qq = {};
        for (u32 i = 0; i < COUNT; ++i) {
            const Floats16 q = nearest_iq4<false>(x[i] * factor);
            of_xq += x[i] * q;
            of_qq += q * q;
        }
        keep_better(of_xq, of_qq, gain, scale);
    }
    return scale;
}

#endif
