// The core of attention kernels: one query over some keys, one block of work-items.
//
// Each work-item first scores one key at a time, then adds up some columns of the result. Earlier
// sums are rescaled when a larger score turns up (online softmax). Everything is computed in f32,
// or f64 for f64. Kinds of keys, places, scores and results are classes.
#ifndef UBRIDGE_ATTENTION_H
#define UBRIDGE_ATTENTION_H

#include "number.h"

#include <math.h>

#include <uhal/report.h>

enum : u32 { MAX_HEAD_DIM = 256, MAX_KEYS = 256 };

DEVICE_FUNCTION f32 exponential(f32 x) { return expf(x); }
DEVICE_FUNCTION f64 exponential(f64 x) { return exp(x); }
DEVICE_FUNCTION f32 hyperbolic_tangent(f32 x) { return tanhf(x); }
DEVICE_FUNCTION f64 hyperbolic_tangent(f64 x) { return tanh(x); }

template <class C, class T> DEVICE_FUNCTION C dot(u32 count, const C *a, const T *b) {
#if KERNEL_ON_GPU
    C sum = 0;
    for (u32 i = 0; i < count; ++i)
        sum += a[i] * widen(b[i]);
    return sum;
#else
    // Sums in lanes, so that the loop becomes vector code.
    enum : u32 { LANES = 32 };
    C lanes[LANES] = {};
    u32 i = 0;
    for (; i + LANES <= count; i += LANES)
        for (u32 lane = 0; lane < LANES; ++lane)
            lanes[lane] += a[i + lane] * widen(b[i + lane]);
    for (u32 lane = 0; i + lane < count; ++lane)
        lanes[lane] += a[i + lane] * widen(b[i + lane]);
    for (u32 width = LANES / 2; width > 0; width /= 2)
        for (u32 lane = 0; lane < width; ++lane)
            lanes[lane] += lanes[lane + width];
    return lanes[0];
#endif
}

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

// Writes the result of a query.
template <class T> struct Whole {
    T *out;
    DEVICE_METHOD void operator()(u32 column, Compute<T> sum, Compute<T> total, Compute<T>) const {
        out[column] = narrow<T>(total == Compute<T>(0) ? Compute<T>(0) : sum / total);
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

// Keys in pages. Shared memory holds the start of each key, for all columns of the values.
struct Paged {
    enum : u32 { NOTED = MAX_KEYS };
    const i64 *table;
    const char *entry;
    u64 pages;
    u32 page_size;
    u64 step;

    DEVICE_METHOD bool note(u64 *places, u32 i, u64 key) const {
        const u32 index = u32(key) / page_size;
        const i64 page = table[index];
        const bool is_there = page >= 0 && u64(page) < pages;
        if (!is_there)
            report_index(entry, index, page, pages);
        places[i] = is_there ? (u64(page) * page_size + u32(key) % page_size) * step : 0;
        return is_there;
    }
    DEVICE_METHOD u64 noted(const u64 *places, u32 i, u64) const { return places[i]; }
};

// A query over the keys from `begin` up to `end`.
template <class T, class Keys, class Places, class Score, class Result>
DEVICE_FUNCTION void attend(BLOCK block, u32 threads, const T *q, Keys k, Keys v, Places places,
                            u64 begin, u64 end, u32 head_dim, Score score, Result result) {
    typedef Compute<T> C;
    SHARED(C, query, MAX_HEAD_DIM);
    SHARED(C, sums, MAX_HEAD_DIM);
    SHARED(C, scores, MAX_KEYS);
    SHARED(u64, noted, Places::NOTED);
    const u32 most = threads < MAX_KEYS ? threads : u32(MAX_KEYS);
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads) {
            query[i] = widen(q[i]);
            sums[i] = C(0);
        }
    }
    BARRIER();
    C largest = -C(INFINITY);
    C total = 0;
    ROLLED for (u64 first = begin; first < end; first += most) {
        const u32 count = end - first < most ? u32(end - first) : most;
        THREADS_OF(block, t) {
            if (t < count) {
                const u64 key = first + t;
                const bool is_there = places.note(noted, t, key);
                const u64 at = places.noted(noted, t, key);
                const C product = k.scaled(dot(head_dim, query, k.row(at)), at);
                scores[t] = is_there ? score(key, product) : -C(INFINITY);
            }
        }
        BARRIER();
        // Every work-item computes the same maximum itself, since there are few scores.
        C above = largest;
        for (u32 i = 0; i < count; ++i)
            above = maximum(above, scores[i]);
        // All keys so far are masked; their scores must not become NaN.
        const C base = above == -C(INFINITY) ? C(0) : above;
        const C kept = exponential(largest - base);
        BARRIER();
        THREADS_OF(block, t) {
            if (t < count)
                scores[t] = exponential(scores[t] - base);
        }
        BARRIER();
        C added = 0;
        for (u32 i = 0; i < count; ++i)
            added += scores[i];
        total = total * kept + added;
        largest = above;
#if KERNEL_ON_GPU
        THREADS_OF(block, t) {
            for (u32 column = t; column < head_dim; column += threads) {
                C sum = sums[column] * kept;
                for (u32 i = 0; i < count; ++i) {
                    const u64 at = places.noted(noted, i, first + i);
                    sum += v.scaled(scores[i], at) * widen(v.row(at)[column]);
                }
                sums[column] = sum;
            }
        }
#else
        for (u32 column = 0; column < head_dim; ++column)
            sums[column] *= kept;
        for (u32 i = 0; i < count; ++i) {
            const u64 at = places.noted(noted, i, first + i);
            const auto *const values = v.row(at);
            const C share = v.scaled(scores[i], at);
            UHAL_INDEPENDENT
            for (u32 column = 0; column < head_dim; ++column)
                sums[column] += share * widen(values[column]);
        }
#endif
        BARRIER();
    }
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads)
            result(i, sums[i], total, largest);
    }
}

// The keys that a query of a cache sees.
struct Seen {
    u64 begin;
    u64 end;

    DEVICE_METHOD Seen(i64 place, u64 capacity, u64 window) {
        const u64 own = place < 0 ? 0 : u64(place) + 1;
        end = own < capacity ? own : capacity;
        begin = window == 0 || own < window ? 0 : own - window;
    }
};

// Tokens of several texts, and the pages of their keys.
struct Texts {
    const char *entry;
    const i64 *tables, *sequences, *positions;
    const f32 *bias;
    u32 heads, kv_heads, head_dim;
    u64 pages;
    u32 page_size;
    u64 table_rows, table_pages, window;
    f64 scale, cap;
};

// A head of a token over the pages of its text.
template <class T, class Keys>
DEVICE_FUNCTION void attend_paged(BLOCK block, u32 threads, const T *q, Keys k, Keys v, T *out,
                                  u64 row, const Texts &texts) {
    typedef Compute<T> C;
    const u64 token = row / texts.heads;
    const u32 head = u32(row % texts.heads);
    const u64 capacity = texts.table_pages * texts.page_size;
    const i64 sequence = texts.sequences[token];
    const i64 position = texts.positions[token];
    const bool is_there = position < 0 || (sequence >= 0 && u64(sequence) < texts.table_rows);
    if (!is_there)
        report_index(texts.entry, token, sequence, texts.table_rows);
    else if (position >= i64(capacity))
        report_index(texts.entry, token, position, capacity);
    const Seen seen(is_there ? position : -1, capacity, texts.window);
    const u32 size = Keys::size(texts.head_dim);
    const Paged places{texts.tables +
                           (is_there && position >= 0 ? sequence : 0) * texts.table_pages,
                       texts.entry, texts.pages, texts.page_size, u64(texts.kv_heads) * size};
    const u64 kv = u64(head / (texts.heads / texts.kv_heads)) * size;
    const f32 *const own = texts.bias == nullptr ? texts.bias : texts.bias + head * capacity;
    attend(block, threads, q + row * texts.head_dim, k.from(kv), v.from(kv), places, seen.begin,
           seen.end, texts.head_dim, Bounded<C>{own, C(texts.scale), C(texts.cap)},
           Whole<T>{out + row * texts.head_dim});
}

#endif
