// The core of attention kernels: one query over some keys, one block of work-items.
//
// Keys are processed in runs of MAX_KEYS, whose first key is a multiple of MAX_KEYS. In a run, each
// work-item first scores some keys, then adds up some columns of the values. A run has its own
// largest score, to which its sums are relative. Runs are joined in the order of keys (online
// softmax). So the bits of a result do not depend on how many blocks share the keys. Everything is
// computed in f32, or f64 for f64. Kinds of keys, places, scores and results are classes.
#ifndef UBRIDGE_ATTENTION_H
#define UBRIDGE_ATTENTION_H

#include "attention_parts.h"
#include "number.h"
#if defined(__CUDACC__)
#include "element_vectors.h"
#endif

#include <math.h>

enum : u32 { MAX_HEAD_DIM = 256, MAX_KEYS = 256 };

DEVICE_FUNCTION f32 exponential(f32 x) { return expf(x); }
DEVICE_FUNCTION f64 exponential(f64 x) { return exp(x); }
DEVICE_FUNCTION f32 hyperbolic_tangent(f32 x) { return tanhf(x); }
DEVICE_FUNCTION f64 hyperbolic_tangent(f64 x) { return tanh(x); }
DEVICE_FUNCTION f32 multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEVICE_FUNCTION f64 multiply_add(f64 a, f64 b, f64 c) { return fma(a, b, c); }

#if KERNEL_ON_GPU
// Elements that a loop takes at once: more f64 would not fit into the registers.
template <class C> constexpr u32 UNROLLED = sizeof(C) > 4 ? 2 : 4;

template <class C, class T> DEVICE_FUNCTION C dot(u32 count, const C *a, const T *b) {
    C sum = 0;
    u32 i = 0;
#if defined(__CUDACC__)
    // Lanes have a row each, so that a vector is one request instead of several.
    constexpr u32 EACH = 16 / sizeof(T) < 8 ? 16 / sizeof(T) : 8;
    if (misalignment<EACH>(b) == 0) {
#pragma unroll UNROLLED<C>
        for (; i + EACH <= count; i += EACH) {
            const vec<T, EACH> values = load_vector<EACH>(b + i);
            for (u32 n = 0; n < EACH; ++n)
                sum += a[i + n] * widen(values[n]);
        }
    }
#endif
#pragma unroll UNROLLED<C>
    for (; i < count; ++i)
        sum += a[i] * widen(b[i]);
    return sum;
}
#else
#include "attention_lanes.h"
#endif

// The score of a product: scaled, limited to the cap, plus the key's bias.
template <class C> struct Bounded {
    const f32 *bias;
    C scale;
    C cap;
    DEVICE_METHOD C operator()(u64 key, C product) const {
        const C score = product * scale;
        const C bounded = cap == C(0) ? score : cap * hyperbolic_tangent(score / cap);
        return bounded + (bias == nullptr ? C(0) : C(bias[key]));
    }
};

// Writes the result of a query to row `row` of `out`. With several splits it writes the query's
// sums over some keys to its part of `parts`, their total and their largest score, for `merge`.
// Places are computed at the end, so that they need no registers before.
template <class T> struct Target {
    T *out;
    Compute<T> *parts;
    u64 row;
    u32 index, splits, head_dim;
    DEVICE_METHOD void operator()(u32 column, Compute<T> sum, Compute<T> total,
                                  Compute<T> largest) const {
        if (splits == 1) {
            out[row * head_dim + column] =
                narrow<T>(total == Compute<T>(0) ? Compute<T>(0) : sum / total);
            return;
        }
        Compute<T> *const own = parts + (row * splits + index) * part_width(head_dim);
        own[column] = sum;
        if (column == 0) {
            own[head_dim] = total;
            own[head_dim + 1] = largest;
        }
    }
};

// The factors of two sums in their joint sum, which is relative to the larger score of both.
template <class C> struct Joint {
    C largest, kept, share;

    DEVICE_METHOD Joint(C before, C added) {
        const bool is_above = added > before || is_nan(added);
        largest = is_above ? added : before;
        // Sums without a visible key count nothing: the difference of two infinities is NaN.
        const C down = is_above ? before - added : added - before;
        const C less = largest == -C(INFINITY) ? C(0) : exponential(down);
        kept = is_above ? less : C(1);
        share = is_above ? C(1) : less;
    }
    DEVICE_METHOD C operator()(C before, C added) const {
        return multiply_add(added, share, before * kept);
    }
};

// Keys or values that are numbers of one type.
template <class T> struct Rows {
    const T *data;

    static DEVICE_METHOD u32 size(u32 head_dim) { return head_dim; }
    DEVICE_METHOD Rows from(u64 at) const { return {data + at}; }
    DEVICE_METHOD const T *row(u64 at) const { return data + at; }
    DEVICE_METHOD Compute<T> scaled(Compute<T> number, u64) const { return number; }
};

// Keys one after the other: the address of a key is computed at each use.
struct Contiguous {
    enum : u32 { NOTED = 1 };
    u64 step;

    DEVICE_METHOD bool note(u64 *, u32, u64) const { return true; }
    DEVICE_METHOD u64 noted(const u64 *, u32, u64 key) const { return key * step; }
};

// A query that sees all keys from `begin` up to `end`.
struct Span {
    u64 begin;
    u64 end;

    // The first visible key from `key` on.
    DEVICE_METHOD u64 from(u64 key) const { return key < begin ? begin : key; }
    DEVICE_METHOD bool sees(u64) const { return true; }
    // The key's number among the visible keys and those before a window, for its bias.
    DEVICE_METHOD u64 column(u64 key) const { return key; }
};

// A query of a cache sees the keys up to its own, and with a window the last ones.
struct Seen : Span {
    DEVICE_METHOD Seen(i64 place, u64 capacity, u64 window) {
        const u64 own = place < 0 ? 0 : u64(place) + 1;
        end = own < capacity ? own : capacity;
        begin = window == 0 || own < window ? 0 : own - window;
    }
};

// A query over the visible keys from `first` up to `last`. `sink` is a score without a value,
// -infinity for none.
template <class T, class Keys, class Places, class Visible, class Score>
DEVICE_FUNCTION void attend(BLOCK block, u32 threads, const T *q, Keys k, Keys v, Places places,
                            const Visible &visible, u64 first, u64 last, u32 head_dim, Score score,
                            Compute<T> sink, Target<T> target) {
    typedef Compute<T> C;
    SHARED(C, query, MAX_HEAD_DIM);
    SHARED(C, sums, MAX_HEAD_DIM);
    SHARED(C, scores, MAX_KEYS);
    SHARED(u64, noted, Places::NOTED);
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads) {
            query[i] = widen(q[i]);
            sums[i] = C(0);
        }
    }
    BARRIER();
    C largest = sink;
    C total = sink == -C(INFINITY) ? C(0) : C(1);
    ROLLED for (u64 begin = visible.from(first); begin < last;) {
        const u64 next = begin - begin % MAX_KEYS + MAX_KEYS;
        const u32 count = u32((next < last ? next : last) - begin);
        THREADS_OF(block, t) {
            for (u32 i = t; i < count; i += threads) {
                const u64 key = begin + i;
                const bool is_visible = visible.sees(key);
                // A hidden key may have any value. The query's own value is added 0 times instead.
                const bool is_there = places.note(noted, i, is_visible ? key : visible.end - 1);
                scores[i] = -C(INFINITY);
                if (is_visible && is_there) {
                    const u64 at = places.noted(noted, i, key);
                    const C product = k.scaled(dot(head_dim, query, k.row(at)), at);
                    scores[i] = score(visible.column(key), product);
                }
            }
        }
        BARRIER();
        // Every work-item computes the same maximum itself, since there are few scores.
        C above = -C(INFINITY);
        for (u32 i = 0; i < count; ++i)
            above = maximum(above, scores[i]);
        // All keys of the run are masked; their scores must not become NaN.
        const C base = above == -C(INFINITY) ? C(0) : above;
        BARRIER();
        THREADS_OF(block, t) {
            for (u32 i = t; i < count; i += threads)
                scores[i] = exponential(scores[i] - base);
        }
        BARRIER();
        C added = 0;
        for (u32 i = 0; i < count; ++i)
            added += scores[i];
        const Joint<C> joint(largest, above);
        total = joint(total, added);
        largest = joint.largest;
#if KERNEL_ON_GPU
        THREADS_OF(block, t) {
            for (u32 column = t; column < head_dim; column += threads) {
                C sum = 0;
#pragma unroll UNROLLED<C>
                for (u32 i = 0; i < count; ++i) {
                    const u64 at = places.noted(noted, i, begin + i);
                    sum += v.scaled(scores[i], at) * widen(v.row(at)[column]);
                }
                sums[column] = joint(sums[column], sum);
            }
        }
#else
        C own[MAX_HEAD_DIM];
        for (u32 column = 0; column < head_dim; ++column)
            own[column] = C(0);
        const auto place = [&](u32 i) { return places.noted(noted, i, begin + i); };
        add_rows(count, scores, v, place, head_dim, own);
        UHAL_INDEPENDENT
        for (u32 column = 0; column < head_dim; ++column)
            sums[column] = joint(sums[column], own[column]);
#endif
        BARRIER();
        begin = visible.from(next);
    }
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads)
            target(i, sums[i], total, largest);
    }
}

// A query over all visible keys. With several splits, a block takes `split` keys and leaves its
// part in `parts`; a block without visible keys leaves nothing.
template <class T, class Keys, class Places, class Visible, class Score>
DEVICE_FUNCTION void attend_split(BLOCK block, u32 threads, u64 split, const T *q, Keys k, Keys v,
                                  Places places, const Visible &visible, Score score,
                                  Compute<T> sink, const Target<T> &target) {
    const bool is_whole = target.splits == 1;
    const u64 first = is_whole ? 0 : target.index * split;
    const u64 next = first + split;
    const u64 last = is_whole || visible.end < next ? visible.end : next;
    if (is_whole || visible.from(first) < last)
        attend(block, threads, q + target.row * target.head_dim, k, v, places, visible, first,
               last, target.head_dim, score, is_whole ? sink : -Compute<T>(INFINITY), target);
}

// Joins the parts of a query in order; part p has the visible keys from p * split on.
template <class T, class Visible>
DEVICE_FUNCTION void merge(BLOCK block, u32 threads, const Compute<T> *parts, T *out,
                           const Visible &visible, u64 split, u32 head_dim, Compute<T> sink) {
    typedef Compute<T> C;
    const u64 width = part_width(head_dim);
    THREADS_OF(block, t) {
        for (u32 column = t; column < head_dim; column += threads) {
            C largest = sink;
            C total = sink == -C(INFINITY) ? C(0) : C(1);
            C sum = 0;
            ROLLED for (u64 key = visible.from(0); key < visible.end;) {
                const u64 part = key / split;
                const C *const own = parts + part * width;
                const Joint<C> joint(largest, own[head_dim + 1]);
                sum = joint(sum, own[column]);
                total = joint(total, own[head_dim]);
                largest = joint.largest;
                key = visible.from((part + 1) * split);
            }
            Target<T>{out, nullptr, 0, 0, 1, head_dim}(column, sum, total, largest);
        }
    }
}

#endif
