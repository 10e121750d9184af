// Blocks of 256 elements, unpacked for LANES rows: see rows_in_lanes.h.
#ifndef UBRIDGE_LANES_OF_256_H
#define UBRIDGE_LANES_OF_256_H

#include <stddef.h>

#include "blocks.h"
#include "rows_in_lanes.h"

#if HAS_WIDE

// The first f16 of each row is `d`, the second is `dmin`.
template <class Panel> DEVICE_FUNCTION void take_ds(Panel &to, Register both) {
    to.d = floats_of_halves(both);
    to.dmin = floats_of_halves(shifted_right<16>(both));
}

// A word of each row, or a half word.
template <class Word> DEVICE_FUNCTION Register gathered(const LinesOfMemory &rows, u32 offset) {
    u32 words[LANES];
    for (u32 i = 0; i < LANES; ++i) {
        Word word;
        memcpy(&word, rows.at[i] + offset, sizeof word);
        words[i] = word;
    }
    return load_register(words);
}

// Adds a bit of each element at `place`. Bit i of a byte belongs to the elements 32 i further on.
template <i32 place, i32 bit = 0, class Panel>
DEVICE_FUNCTION void add_bits(Panel &to, const Register (&bytes)[2][4]) {
#pragma GCC unroll 8
    for (u32 t = 0; t < 8; ++t) {
        Register &word = to.words[8 * bit + t];
        word = word | masked(shifted_right<bit - place>(bytes[t / 4][t % 4]), 0x01010101 << place);
    }
    if constexpr (bit < 7)
        add_bits<place, bit + 1>(to, bytes);
}

// Q4_K, and all but the upper bits of Q5_K.
template <class Block, u32 LARGEST> struct LanesOfNibbles : LanesOf256<32, true, LARGEST> {
    static_assert(offsetof(Block, scales) == 4, "d, dmin and the levels are four words");

    DEVICE_METHOD void take_levels(const LinesOfMemory &rows) {
        Register packed[4];
        rows.load(0, packed);
        take_ds(*this, packed[0]);
        const Register scales = packed[1], minimums = packed[2], lower = packed[3];
        this->template take_scales<false>(0, masked(scales, 0x3F3F3F3F));
        this->template take_scales<false>(4, masked(lower, 0x0F0F0F0F) |
                                                 masked(shifted_right<2>(scales), 0x30303030));
        this->take_minimums(0, masked(minimums, 0x3F3F3F3F));
        this->take_minimums(4, masked(shifted_right<4>(lower), 0x0F0F0F0F) |
                                   masked(shifted_right<2>(minimums), 0x30303030));
    }
    DEVICE_METHOD void take_nibbles(const LinesOfMemory &rows) {
#pragma GCC unroll 1
        for (u32 j = 0; j < 4; ++j) {
            Register both[2][4];
            rows.load(offsetof(Block, qs) + 32 * j, both);
#pragma GCC unroll 8
            for (u32 t = 0; t < 8; ++t) {
                const Register word = both[t / 4][t % 4];
                this->words[16 * j + t] = masked(word, 0x0F0F0F0F);
                this->words[16 * j + 8 + t] = masked(shifted_right<4>(word), 0x0F0F0F0F);
            }
        }
    }
};

template <> struct Lanes<BlockQ4_K> : LanesOfNibbles<BlockQ4_K, largest(15)> {
    ONE_FUNCTION void unpack(Lanes &to, const LinesOfMemory &rows) {
        to.take_levels(rows);
        to.take_nibbles(rows);
    }
};

template <> struct Lanes<BlockQ5_K> : LanesOfNibbles<BlockQ5_K, largest(31)> {
    ONE_FUNCTION void unpack(Lanes &to, const LinesOfMemory &rows) {
        to.take_levels(rows);
        to.take_nibbles(rows);
        Register bits[2][4];
        rows.load(offsetof(BlockQ5_K, qh), bits);
        add_bits<4>(to, bits);
    }
};

template <> struct Lanes<BlockQ6_K> : LanesOf256<16, false, largest(63)> {
    ONE_FUNCTION void unpack(Lanes &to, const LinesOfMemory &rows) {
        Register scales[4];
        rows.load(offsetof(BlockQ6_K, scales), scales);
#pragma GCC unroll 4
        for (u32 i = 0; i < 4; ++i)
            to.take_raised<5>(4 * i, scales[i]);
        to.d = floats_of_halves(gathered<u16>(rows, offsetof(BlockQ6_K, d)));
#pragma GCC unroll 1
        for (u32 half = 0; half < 2; ++half) {
            Register low[2][2][4], high[2][4];
            rows.load(offsetof(BlockQ6_K, ql) + 64 * half, low[0]);
            rows.load(offsetof(BlockQ6_K, ql) + 64 * half + 32, low[1]);
            rows.load(offsetof(BlockQ6_K, qh) + 32 * half, high);
#pragma GCC unroll 8
            for (u32 t = 0; t < 8; ++t) {
                const Register first = low[0][t / 4][t % 4], second = low[1][t / 4][t % 4];
                const Register bits = high[t / 4][t % 4];
                Register *const here = to.words + 32 * half + t;
                here[0] = with_bits<-4>(first, bits);
                here[8] = with_bits<-2>(second, bits);
                here[16] = with_bits<0>(shifted_right<4>(first), bits);
                here[24] = with_bits<2>(shifted_right<4>(second), bits);
            }
        }
    }

  private:
    template <i32 bit> static DEVICE_METHOD Register with_bits(Register low, Register bits) {
        return masked(low, 0x0F0F0F0F) | masked(shifted_right<bit>(bits), 0x30303030);
    }
};

// Two bits of each element: those of Q2_K, and all but the upper bit of Q3_K.
template <class Block, bool HAS_MINIMUM, u32 LARGEST>
struct LanesOfTwoBits : LanesOf256<16, HAS_MINIMUM, LARGEST> {
    DEVICE_METHOD void take_two_bits(const LinesOfMemory &rows) {
#pragma GCC unroll 1
        for (u32 half = 0; half < 2; ++half) {
            Register both[2][4];
            rows.load(offsetof(Block, qs) + 32 * half, both);
#pragma GCC unroll 8
            for (u32 t = 0; t < 8; ++t) {
                const Register word = both[t / 4][t % 4];
                Register *const here = this->words + 32 * half + t;
                here[0] = masked(word, 0x03030303);
                here[8] = masked(shifted_right<2>(word), 0x03030303);
                here[16] = masked(shifted_right<4>(word), 0x03030303);
                here[24] = masked(shifted_right<6>(word), 0x03030303);
            }
        }
    }
};

template <> struct Lanes<BlockQ2_K> : LanesOfTwoBits<BlockQ2_K, true, largest(3)> {
    ONE_FUNCTION void unpack(Lanes &to, const LinesOfMemory &rows) {
        Register levels[4];
        rows.load(offsetof(BlockQ2_K, scales), levels);
#pragma GCC unroll 4
        for (u32 i = 0; i < 4; ++i) {
            to.take_scales<false>(4 * i, masked(levels[i], 0x0F0F0F0F));
            to.take_minimums(4 * i, masked(shifted_right<4>(levels[i]), 0x0F0F0F0F));
        }
        take_ds(to, gathered<u32>(rows, offsetof(BlockQ2_K, d)));
        to.take_two_bits(rows);
    }
};

template <> struct Lanes<BlockQ3_K> : LanesOfTwoBits<BlockQ3_K, false, largest(7)> {
    ONE_FUNCTION void unpack(Lanes &to, const LinesOfMemory &rows) {
        const u32 at = offsetof(BlockQ3_K, scales);
        const Register first = gathered<u32>(rows, at), second = gathered<u32>(rows, at + 4);
        const Register upper = gathered<u32>(rows, at + 8);
        to.take_raised<2>(0, scale<-4>(first, upper));
        to.take_raised<2>(4, scale<-2>(second, upper));
        to.take_raised<2>(8, scale<0>(shifted_right<4>(first), upper));
        to.take_raised<2>(12, scale<2>(shifted_right<4>(second), upper));
        to.d = floats_of_halves(gathered<u16>(rows, offsetof(BlockQ3_K, d)));
        to.take_two_bits(rows);
        Register bits[2][4];
        rows.load(offsetof(BlockQ3_K, hmask), bits);
        add_bits<2>(to, bits);
    }

  private:
    template <i32 bit> static DEVICE_METHOD Register scale(Register low, Register upper) {
        return difference_of_bytes(masked(low, 0x0F0F0F0F) |
                                       masked(shifted_right<bit>(upper), 0x30303030),
                                   everywhere(0x20202020));
    }
};

#endif

#endif
