// Softmax and normalizations of contiguous rows, one block a row. f16 and bf16 are computed in f32,
// f64 in f64; every result is rounded once.
#ifndef UBRIDGE_NORMALIZE_H
#define UBRIDGE_NORMALIZE_H

#include <math.h>

#include "reduction.h"

DEVICE_FUNCTION f32 exponential(f32 x)
{
    return expf(x);
}
DEVICE_FUNCTION f64 exponential(f64 x)
{
    return exp(x);
}
DEVICE_FUNCTION f32 square_root(f32 x)
{
    return sqrtf(x);
}
DEVICE_FUNCTION f64 square_root(f64 x)
{
    return sqrt(x);
}

template <class C> struct ExponentialAbove {
    C base;
    DEVICE_METHOD C operator()(C x) const { return exponential(x - base); }
};

#if defined(__CUDACC__)

// e^x in 8 instructions for x <= 0; a NaN is kept.
DEVICE_FUNCTION f32 small_exponential(f32 x)
{
    // The factor is log2(e) rounded up, and the product is rounded down, so that x - y ln(2) is at
    // least 0. This rest is tiny: its exponential is 1 + rest. For x = -inf the rest is a NaN,
    // which becomes 0.
    const f32 y = __fmul_rd(x, 1.44269514f);
    const f32 rest = __saturatef(fmaf(y, 1.90465421e-9f, fmaf(y, -0.693147182f, x)));
    f32 power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(y));
    return fmaf(power, rest, power);
}
DEVICE_FUNCTION f64 small_exponential(f64 x)
{
    return exp(x);
}

// The exponential, which takes the place of the value.
template <class C> struct BecomeExponential {
    C base;
    DEVICE_METHOD C operator()(C &x) const { return x = small_exponential(x - base); }
};

// The square of the difference, which takes the place of the value.
template <class C> struct BecomeDifference {
    C mean;
    DEVICE_METHOD C operator()(C &x) const
    {
        x -= mean;
        return x * x;
    }
};

template <class C> struct Times {
    C factor;
    DEVICE_METHOD C operator()(C x) const { return x * factor; }
};

#endif

template <class C> struct ShareAbove {
    C base;
    C total;
    DEVICE_METHOD C operator()(C x) const { return exponential(x - base) / total; }
};

template <class C> struct SquareOfDifference {
    C mean;
    DEVICE_METHOD C operator()(C x) const { return (x - mean) * (x - mean); }
};

// ((x - mean) * scale) * alpha + beta
template <class C> struct Normalize {
    C mean;
    C scale;
    DEVICE_METHOD C operator()(C x) const { return (x - mean) * scale; }
    DEVICE_METHOD C operator()(C x, C alpha) const { return (x - mean) * scale * alpha; }
    DEVICE_METHOD C operator()(C x, C alpha, C beta) const
    {
        return (x - mean) * scale * alpha + beta;
    }
};

template <class C> struct NormalizeAndShift {
    Normalize<C> normalize;
    DEVICE_METHOD C operator()(C x, C beta) const { return normalize(x) + beta; }
};

template <class T> DEVICE_FUNCTION void softmax(BLOCK block, u64 count, const T *src, T *dst)
{
    typedef Compute<T> C;
#if defined(__CUDACC__)
    if (HeldRow<T>::fits(block, count, src, dst)) {
        HeldRow<T> held(block, count, src);
        const C above = held.template reduce<LargestNumber<C>>(block, Same{}).result();
        const C all = held.template sum<HeldRow<T>::EACH>(block, BecomeExponential<C>{above});
        held.store(block, dst, Times<C>{C(1) / all});
        return;
    }
#endif
    const Operand<T> row(src);
    const C base = reduce_row<Largest<C>>(block, row, 0, count, Same{}).result();
#if !KERNEL_ON_GPU
    if constexpr (computes_itself<T>)
        return store_shares(count, src, dst, ExponentialAbove<C>{base});
#endif
    const C total =
        reduce_row<Sum<C>>(block, row, 0, count, ExponentialAbove<C>{base}).result();
    map_row(block, count, dst, ShareAbove<C>{base, total}, row);
}

template <class T>
DEVICE_FUNCTION void store_normalized(BLOCK block, u64 count, const T *src, T *dst, const T *alpha,
                                      const T *beta, Normalize<Compute<T>> normalize)
{
    const Operand<T> row(src);
    if (alpha != nullptr && beta != nullptr)
        map_row(block, count, dst, normalize, row, Operand<T>(alpha), Operand<T>(beta));
    else if (alpha != nullptr)
        map_row(block, count, dst, normalize, row, Operand<T>(alpha));
    else if (beta != nullptr)
        map_row(block, count, dst, NormalizeAndShift<Compute<T>>{normalize}, row,
                Operand<T>(beta));
    else
        map_row(block, count, dst, normalize, row);
}

template <class T>
DEVICE_FUNCTION void rms_norm(BLOCK block, u64 count, const T *src, T *dst, const T *alpha, f32 eps)
{
    typedef Compute<T> C;
#if defined(__CUDACC__)
    if (alpha != nullptr && HeldRow<T>::fits(block, count, src, dst, alpha)) {
        HeldRow<T> held(block, count, src);
        const C all = held.template sum<HeldRow<T>::EACH>(block, SquareOfDifference<C>{C(0)});
        const C by = C(1) / square_root(all / C(count) + C(eps));
        held.store(block, dst, Normalize<C>{C(0), by}, alpha);
        return;
    }
#endif
    const C squares =
        reduce_row<Sum<C>>(block, Operand<T>(src), 0, count, SquareOfDifference<C>{C(0)}).result();
    const C scale = C(1) / square_root(squares / C(count) + C(eps));
    store_normalized<T>(block, count, src, dst, alpha, nullptr, Normalize<C>{C(0), scale});
}

// The variance is the mean of (x - mean)^2: the difference of two large means would cancel.
template <class T>
DEVICE_FUNCTION void layer_norm(BLOCK block, u64 count, const T *src, T *dst, const T *alpha,
                                const T *beta, f32 eps)
{
    typedef Compute<T> C;
#if defined(__CUDACC__)
    if (alpha != nullptr && beta != nullptr &&
        HeldRow<T>::fits(block, count, src, dst, alpha, beta)) {
        HeldRow<T> held(block, count, src);
        // Terms of a mean cancel, so that only pairs are added without their rounding errors.
        const C center = held.template sum<2>(block, Same{}) / C(count);
        const C all = held.template sum<HeldRow<T>::EACH>(block, BecomeDifference<C>{center});
        const C by = C(1) / square_root(all / C(count) + C(eps));
        held.store(block, dst, Normalize<C>{C(0), by}, alpha, beta);
        return;
    }
#endif
    const Operand<T> row(src);
    const C mean = reduce_row<Sum<C>>(block, row, 0, count, Same{}).result() / C(count);
    const C squares =
        reduce_row<Sum<C>>(block, row, 0, count, SquareOfDifference<C>{mean}).result();
    const C scale = C(1) / square_root(squares / C(count) + C(eps));
    store_normalized(block, count, src, dst, alpha, beta, Normalize<C>{mean, scale});
}

#endif
