/* wmma.mma (ISA manual §9.7.14): D = A B + C on fragments in the layout of ptx/wmma.py.
 *
 * words[1…4] hold A, words[5…8] B, words[9…12] C, registers of 32 bits in pairs; the answer is D in
 * words[0…3]. Products and sums are made in double and rounded once.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "ptx.h"

enum kind { F16, BF16, TF32, F32, F64, S8, U8, S4, U4, B1, S32 };

static const uint32_t bits_of[] = {16, 16, 32, 32, 64, 8, 8, 4, 4, 1, 32};
static const uint32_t extents[][3] = {
    {16, 16, 16}, {8, 32, 16}, {32, 8, 16}, {16, 16, 8}, {8, 8, 4}, {8, 8, 32}, {8, 8, 128},
};

enum { A_BY_COLUMNS = 1 << 20, B_BY_COLUMNS = 1 << 21, SATURATED = 1 << 22, AND = 1 << 23 };
enum { ROUNDING = 24, MOST_ELEMENTS = 1024 };

struct values {
    double real[MOST_ELEMENTS];
    int64_t whole[MOST_ELEMENTS];
};

static enum kind kind_at(uint32_t operation, uint32_t number) {
    return (enum kind)(operation >> 4 * number & 15);
}

/* Elements of a matrix in each lane. f16's fragments of A and B are the same for all shapes. */
static uint32_t per_lane(enum kind kind, uint32_t elements, int is_factor) {
    return kind == F16 && is_factor ? 16 : elements / UPTX_WARP;
}

static double real_of(enum kind kind, uint64_t bits) {
    if (kind == F64) {
        double value;
        memcpy(&value, &bits, 8);
        return value;
    }
    if (kind == F16) {
        const uint16_t half = (uint16_t)bits;
        _Float16 value;
        memcpy(&value, &half, 2);
        return (double)value;
    }
    const uint32_t word = kind == BF16   ? (uint32_t)bits << 16
                          : kind == TF32 ? (uint32_t)bits & 0xFFFFE000
                                         : (uint32_t)bits;
    float value;
    memcpy(&value, &word, 4);
    return (double)value;
}

static int64_t whole_of(enum kind kind, uint64_t bits) {
    switch (kind) {
    case S8:
        return (int8_t)bits;
    case S4:
        return (int64_t)(bits ^ 8) - 8;
    case S32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static void gather(const struct uptx_thread *warp, uint32_t first, enum kind kind,
                   uint32_t elements, int is_factor, struct values *out) {
    const uint32_t bits = bits_of[kind];
    const uint32_t each = per_lane(kind, elements, is_factor);
    const uint64_t mask = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    for (uint32_t index = 0; index < elements; ++index) {
        const uint32_t at = index % each * bits;
        const uint64_t word = warp[index / each].words[first + at / 64];
        const uint64_t element = word >> at % 64 & mask;
        out->real[index] = kind <= F64 ? real_of(kind, element) : 0;
        out->whole[index] = kind <= F64 ? 0 : whole_of(kind, element);
    }
}

static uint64_t bits_from(enum kind kind, double real, int64_t whole) {
    uint64_t bits = 0;
    if (kind == F64) {
        memcpy(&bits, &real, 8);
    } else if (kind == F16) {
        const _Float16 half = (_Float16)real;
        memcpy(&bits, &half, 2);
    } else if (kind == F32) {
        const float single = (float)real;
        memcpy(&bits, &single, 4);
    } else {
        bits = (uint32_t)whole;
    }
    return bits;
}

static int64_t saturated(int64_t sum) {
    return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
}

void uptx_wmma(struct uptx_thread *warp, uint32_t operation) {
    const uint32_t rows = extents[operation & 15][0];
    const uint32_t columns = extents[operation & 15][1];
    const uint32_t depth = extents[operation & 15][2];
    const enum kind factor = kind_at(operation, 1);
    const enum kind total = kind_at(operation, 4);
    struct values a;
    struct values b;
    struct values c;
    gather(warp, 1, factor, rows * depth, 1, &a);
    gather(warp, 5, kind_at(operation, 2), depth * columns, 1, &b);
    gather(warp, 9, kind_at(operation, 3), rows * columns, 0, &c);
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        memset(warp[lane].words, 0, 4 * sizeof warp[lane].words[0]);
    }
    /* Rounding modes of f64: to nearest, towards zero, down, up. */
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    fesetround(modes[operation >> ROUNDING & 3]);
    const uint32_t each = rows * columns / UPTX_WARP;
    for (uint32_t index = 0; index < rows * columns; ++index) {
        const uint32_t row = index / columns;
        const uint32_t column = index % columns;
        double real = c.real[index];
        int64_t whole = c.whole[index];
        for (uint32_t k = 0; k < depth; ++k) {
            const uint32_t left = operation & A_BY_COLUMNS ? k * rows + row : row * depth + k;
            const uint32_t right =
                operation & B_BY_COLUMNS ? column * depth + k : k * columns + column;
            if (factor == B1) {
                whole += operation & AND ? a.whole[left] & b.whole[right]
                                         : a.whole[left] ^ b.whole[right];
            } else if (factor <= F64) {
                real = fma(a.real[left], b.real[right], real);
            } else {
                whole += a.whole[left] * b.whole[right];
            }
        }
        whole = operation & SATURATED ? saturated(whole) : whole;
        const uint32_t at = index % each * bits_of[total];
        warp[index / each].words[at / 64] |= bits_from(total, real, whole) << at % 64;
    }
    fesetround(FE_TONEAREST);
}
