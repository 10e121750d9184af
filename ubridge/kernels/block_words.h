// Words of four bytes, in which the elements of blocks are unpacked.
#ifndef UBRIDGE_BLOCK_WORDS_H
#define UBRIDGE_BLOCK_WORDS_H

#include <string.h>

#include <uhal/kernel.h>

// An integer's factor, and the number subtracted from the product.
struct Level {
    f32 scale;
    f32 minimum;
};

#if !KERNEL_ON_GPU
// A function that is never inlined or cloned for constants: its copies would be most of a
// module.
#if defined(__clang__)
#define ONE_FUNCTION __attribute__((noinline)) static
#else
#define ONE_FUNCTION __attribute__((noinline, noclone)) static
#endif

// Four words at once: compilers make vector instructions of code for one word.
typedef u32 Words __attribute__((vector_size(16)));
#endif

// Four bytes as one word, or all words of a larger type, from an address that is a multiple of
// `alignment`.
template <u32 alignment, class Word> DEVICE_FUNCTION Word load(const u8 *bytes)
{
#if KERNEL_ON_GPU
    if constexpr (alignment == 4) {
        return *reinterpret_cast<const u32 *>(bytes);
    } else if constexpr (alignment == 2) {
        const u16 *const pairs = reinterpret_cast<const u16 *>(bytes);
        return pairs[0] | u32(pairs[1]) << 16;
    } else {
        return bytes[0] | u32(bytes[1]) << 8 | u32(bytes[2]) << 16 | u32(bytes[3]) << 24;
    }
#else
    Word words;
    memcpy(&words, bytes, sizeof words);
    return words;
#endif
}

DEVICE_FUNCTION f32 f32_of_bits(u32 bits)
{
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Bit i of the lowest four becomes bit 0 of byte i.
DEVICE_FUNCTION u32 bits_to_bytes(u32 bits) { return (bits & 15) * 0x00204081 & 0x01010101; }

// The same for each word of `Word`, four bits a word.
template <class Word> DEVICE_FUNCTION Word spread(u32 bits)
{
#if !KERNEL_ON_GPU
    if constexpr (sizeof(Word) > sizeof(u32)) {
        const Word each = {bits & 15, bits >> 4 & 15, bits >> 8 & 15, bits >> 12 & 15};
        return (each * 0x00204081) & 0x01010101;
    }
#endif
    return Word{} + bits_to_bytes(bits);
}

// Replaces each byte, a code below 16, by its entry in a table of 16 bytes.
DEVICE_FUNCTION u32 looked_up(u32 codes, u64 low, u64 high)
{
    u32 bytes = 0;
    for (u32 i = 0; i < 32; i += 8) {
        const u64 half = (codes >> i & 8) != 0 ? high : low;
        bytes |= (u32(half >> 8 * (codes >> i & 7)) & 255) << i;
    }
    return bytes;
}

#if !KERNEL_ON_GPU
DEVICE_FUNCTION Words looked_up(Words codes, u64 low, u64 high)
{
#if defined(__clang__)
    for (u32 i = 0; i < 4; ++i)
        codes[i] = looked_up(codes[i], low, high);
    return codes;
#else
    typedef u8 Bytes __attribute__((vector_size(16)));
    typedef u64 Halves __attribute__((vector_size(16)));
    return Words(__builtin_shuffle(Bytes(Halves{low, high}), Bytes(codes)));
#endif
}
#endif

#endif
