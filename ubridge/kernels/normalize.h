// Softmax and normalizations of contiguous rows, one block a row. f16 and bf16 are computed in f32,
// f64 in f64; every result is rounded once.
#ifndef UBRIDGE_NORMALIZE_H
#define UBRIDGE_NORMALIZE_H

#include <math.h>

#include "few_digits.h"
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

// The exponential, which takes the place of the value.
template <class C> struct BecomeExponential {
    C base;
    DEVICE_METHOD C operator()(C &x) const { return x = small_exponential(x - base); }
};

// The sum of numbers that are not negative, for results of T.
template <class T, bool few_digits = has_few_digits<T>> struct TotalOf {
    typedef Sum<Compute<T>> Type;
};
template <class T> struct TotalOf<T, true> {
    typedef QuickSum<Compute<T>> Type;
};
template <class T> using Total = typename TotalOf<T>::Type;

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

template <class C> struct ShareAbove : LongFunction {
    C base;
    C total;
    DEVICE_METHOD ShareAbove(C above, C all) : base(above), total(all) {}
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
        const C all = held.template sum<HeldRow<T>::EACH, Total<T>>(block, BecomeExponential<C>{above});
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
    map_row(block, count, dst, ShareAbove<C>(base, total), row);
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
        const C all =
            held.template sum<HeldRow<T>::EACH, Total<T>>(block, SquareOfDifference<C>{C(0)});
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
        // Terms of a mean cancel, so that only few are added without their rounding errors. Sums of
        // a few numbers of 16 bits have hardly any.
        constexpr u32 FEW = has_few_digits<T> ? HeldRow<T>::EACH : 2;
        const C center = held.template sum<FEW, Sum<C>>(block, Same{}) / C(count);
        const C all = held.template sum<HeldRow<T>::EACH, Total<T>>(block, BecomeDifference<C>{center});
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
