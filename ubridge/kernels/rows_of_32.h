// Rows of blocks of 32 elements times a vector of bytes: see block_rows.h.
#ifndef UBRIDGE_ROWS_OF_32_H
#define UBRIDGE_ROWS_OF_32_H

#include "activations.h"
#include "block_elements.h"
#include "wide.h"

#if HAS_WIDE

// -- blocks of bytes, two at a time ---------------------------------------------------------------

struct TwoOfQ8_0 {
    enum : u32 { BLOCKS = 2, IN_FOURS = WHERE_CPUS_LOOK_FAR };
    enum : bool { IN_LANES = false };
    typedef Side32 Side;

    struct Shared {
        Wide x, start;
        WideFloats d;

        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) : x(load_64(y.quants + 32 * i)) {
            d = float_halves(y.sides[i].d, y.sides[i + 1].d);
            start = negated(product(dot({}, bytes_of(1), x), words_of(SIGN_BIAS)));
        }
    };

    WideFloats sums = {};

    struct Weights {
        Wide raised;
        WideFloats d;

        DEVICE_METHOD explicit Weights(const BlockQ8_0 *b) : d(half_floats(b[0].d, b[1].d)) {
            const Wide bytes = load_halves(b[0].qs, b[1].qs);
            raised = SIGN_BIAS == 0 ? bytes : bytes ^ bytes_of(SIGN_BIAS);
        }
    };

    DEVICE_METHOD void add(const Weights &weights, const Shared &y) {
        const Wide dots = dot_signed(y.start, weights.raised, y.x);
        sums = sums + weights.d * y.d * floats(dots);
    }
    DEVICE_METHOD f32 result() const { return sum_of(sums); }
};

// -- blocks of nibbles, four at a time ------------------------------------------------------------

// Integers 0 to 15 of each of four blocks, and integers 16 to 31 of each.
struct Halves {
    Wide first, second;
};

// An element is (integer - RAISED) * d.
template <class Here> struct Nibbles {
    typedef Here Block;
    enum : i32 { RAISED = Block::OFFSET, SIGNED = 0 };
    static DEVICE_METHOD Halves of(const Block *b) {
        const Wide both = load_quarters(b[0].qs, b[1].qs, b[2].qs, b[3].qs), mask = bytes_of(15);
        return {both & mask, shifted<4, 4>(both) & mask};
    }
};

template <class Here> struct NibblesAndBits : Nibbles<Here> {
    static DEVICE_METHOD Wide fifth_bits(const Here *b, u32 half) {
        u32 bits[4];
        for (u32 k = 0; k < 4; ++k)
            bits[k] = load<2, u16>(b[k].qh + 2 * half);
        return where_bits(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, 16);
    }
    static DEVICE_METHOD Halves of(const Here *b) {
        const Halves low = Nibbles<Here>::of(b);
        return {low.first | fifth_bits(b, 0), low.second | fifth_bits(b, 1)};
    }
};

template <class Here> struct Table;
template <> struct Table<BlockIQ4_NL> {
    enum : i32 { RAISED = SIGN_BIAS, SIGNED = 1 };
    static DEVICE_METHOD __m128i get() {
        const __m128i values =
            _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
        return values ^ _mm_set1_epi8(char(SIGN_BIAS));
    }
};
template <> struct Table<BlockMXFP4> {
    enum : i32 { RAISED = 12, SIGNED = 0 };
    static DEVICE_METHOD __m128i get() {
        return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    }
};

template <class Here> struct LookedUp : Table<Here> {
    typedef Here Block;
    static DEVICE_METHOD Halves of(const Block *b) {
        const Wide both = load_quarters(b[0].qs, b[1].qs, b[2].qs, b[3].qs), mask = bytes_of(15);
        const __m128i table = Table<Here>::get();
        return {looked_up(both & mask, table), looked_up(shifted<4, 4>(both) & mask, table)};
    }
};

template <class Block> DEVICE_FUNCTION __m128 scales_of(const Block *b) {
    return half_floats(b[0].d, b[1].d, b[2].d, b[3].d);
}
DEVICE_FUNCTION __m128 scales_of(const BlockMXFP4 *b) {
    return _mm_setr_ps(b[0].level(0).scale, b[1].level(0).scale, b[2].level(0).scale,
                       b[3].level(0).scale);
}

template <class Integers> struct FourOf {
    enum : u32 { BLOCKS = 4, IN_FOURS = ALWAYS };
    enum : bool { IN_LANES = false };
    typedef typename Integers::Block Block;
    typedef Side32 Side;
    enum : bool { MINIMUM = Block::MINIMUM != 0 };

    struct Shared {
        Halves x;
        Wide start;
        WideFloats d, total;

        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) {
            const i8 *const from = y.quants + 32 * i;
            x.first = load_quarters(from, from + 32, from + 64, from + 96);
            x.second = load_quarters(from + 16, from + 48, from + 80, from + 112);
            const Side *const sides = y.sides + i;
            d = quarters(_mm_setr_ps(sides[0].d, sides[1].d, sides[2].d, sides[3].d));
            const Wide totals = dot(dot({}, bytes_of(1), x.first), bytes_of(1), x.second);
            start = negated(product(totals, words_of(Integers::RAISED)));
            total = MINIMUM ? d * floats(totals) : WideFloats{};
        }
    };

    WideFloats sums = {};

    static DEVICE_METHOD Wide term(Wide made, Wide integers, Wide x) {
        return Integers::SIGNED ? dot_signed(made, integers, x) : dot(made, integers, x);
    }

    struct Weights {
        Halves integers;
        WideFloats scales, minimums = {};

        DEVICE_METHOD explicit Weights(const Block *b)
            : integers(Integers::of(b)), scales(quarters(scales_of(b))) {
            if constexpr (MINIMUM)
                minimums = quarters(half_floats(b[0].m, b[1].m, b[2].m, b[3].m));
        }
    };

    DEVICE_METHOD void add(const Weights &weights, const Shared &y) {
        const Wide dots = term(term(y.start, weights.integers.first, y.x.first),
                               weights.integers.second, y.x.second);
        sums = sums + weights.scales * y.d * floats(dots);
        if constexpr (MINIMUM)
            sums = sums + weights.minimums * y.total;
    }
    DEVICE_METHOD f32 result() const { return sum_of(sums); }
};

#endif

#endif
