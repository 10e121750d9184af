// Rows of blocks of 32 elements times a vector of bytes, two blocks at a time: see block_rows.h.
#ifndef UBRIDGE_ROWS_OF_32_H
#define UBRIDGE_ROWS_OF_32_H

#include "activations.h"
#include "block_elements.h"
#include "wide.h"

#if HAS_WIDE

// Of two blocks' integers: 64 bytes. RAISED is what they are above the elements' multiples of d.
template <class Here> struct Nibbles {
    typedef Here Block;
    enum : i32 { RAISED = Block::OFFSET, SIGNED = 0 };
    static DEVICE_METHOD Wide of(const Block *b) { return nibbles_of(b[0].qs, b[1].qs); }
};
template <class Here> struct NibblesAndBits : Nibbles<Here> {
    static DEVICE_METHOD Wide of(const Here *b) {
        return Nibbles<Here>::of(b) | where_bits(load<2, u32>(b[0].qh), load<2, u32>(b[1].qh), 16);
    }
};
struct Q8_0Integers {
    typedef BlockQ8_0 Block;
    enum : i32 { RAISED = SIGN_BIAS, SIGNED = 1 };
    static DEVICE_METHOD Wide of(const Block *b) {
        const Wide bytes = load_halves(b[0].qs, b[1].qs);
        return SIGN_BIAS == 0 ? bytes : bytes ^ bytes_of(SIGN_BIAS);
    }
};

DEVICE_FUNCTION __m128i iq4_table() {
    const __m128i values =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return values ^ _mm_set1_epi8(char(SIGN_BIAS));
}

struct IQ4_NLIntegers {
    typedef BlockIQ4_NL Block;
    enum : i32 { RAISED = SIGN_BIAS, SIGNED = 1 };
    static DEVICE_METHOD Wide of(const Block *b) {
        return looked_up(nibbles_of(b[0].qs, b[1].qs), iq4_table());
    }
};
struct MXFP4Integers {
    typedef BlockMXFP4 Block;
    enum : i32 { RAISED = 12, SIGNED = 0 };
    static DEVICE_METHOD Wide of(const Block *b) {
        const __m128i table =
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
        return looked_up(nibbles_of(b[0].qs, b[1].qs), table);
    }
};

template <class Block> DEVICE_FUNCTION WideFloats scales_of(const Block *b) {
    return half_floats(b[0].d, b[1].d);
}
DEVICE_FUNCTION WideFloats scales_of(const BlockMXFP4 *b) {
    return float_halves(b[0].level(0).scale, b[1].level(0).scale);
}

template <class Integers, u32 FOURS> struct WayOf32 {
    enum : u32 { BLOCKS = 2, IN_FOURS = FOURS };
    typedef typename Integers::Block Block;
    typedef Side32 Side;
    enum : bool { MINIMUM = Block::MINIMUM != 0 };

    struct Shared {
        Wide x, start;
        WideFloats d, total;

        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) : x(load_64(y.quants + 32 * i)) {
            d = float_halves(y.sides[i].d, y.sides[i + 1].d);
            const Wide totals = dot({}, bytes_of(1), x);
            start = negated(product(totals, words_of(Integers::RAISED)));
            total = MINIMUM ? d * floats(totals) : WideFloats{};
        }
    };

    WideFloats sums = {};

    DEVICE_METHOD void add(const Block *b, const Shared &shared) {
        const Wide integers = Integers::of(b);
        const Wide dots = Integers::SIGNED ? dot_signed(shared.start, integers, shared.x)
                                           : dot(shared.start, integers, shared.x);
        sums = sums + scales_of(b) * shared.d * floats(dots);
        if constexpr (MINIMUM)
            sums = sums + half_floats(b[0].m, b[1].m) * shared.total;
    }
    DEVICE_METHOD f32 result() const { return sum_of(sums); }
};

#endif

#endif
