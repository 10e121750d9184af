// Vectors as wide as the level's registers, for CPU kernels with explicit vectors, and helpers to
// fill them.
#ifndef UBRIDGE_VECTORS_H
#define UBRIDGE_VECTORS_H

#include <string.h>

#include <uhal/kernel.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum : u64 { VECTOR_BYTES = 64 };
#elif defined(__AVX2__)
enum : u64 { VECTOR_BYTES = 32 };
#else
enum : u64 { VECTOR_BYTES = 16 };
#endif
enum : u64 { LANES = VECTOR_BYTES / sizeof(u32) };

typedef u32 LaneWords __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef f32 Floats __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

// LANES elements as f32.
DEVICE_FUNCTION Floats widened(const f32 *from)
{
    return *reinterpret_cast<const Floats *>(from);
}

#if defined(__AVX512F__)

// Masked forms, because GCC 12 warns of an uninitialized vector in the others.
DEVICE_FUNCTION Floats widened(const bf16 *from)
{
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(__mmask16(-1), halves);
    return Floats(_mm512_maskz_slli_epi32(__mmask16(-1), wide, 16));
}

DEVICE_FUNCTION Floats widened(const f16 *from)
{
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
    return Floats(_mm512_maskz_cvtph_ps(__mmask16(-1), halves));
}

#elif defined(__AVX2__) && defined(__F16C__)

DEVICE_FUNCTION Floats widened(const bf16 *from)
{
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return Floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

DEVICE_FUNCTION Floats widened(const f16 *from)
{
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return Floats(_mm256_cvtph_ps(halves));
}

#else

template <class T> DEVICE_FUNCTION Floats widened(const T *from)
{
    f32 wide[LANES];
    for (u64 i = 0; i < LANES; ++i)
        wide[i] = f32(from[i]);
    return *reinterpret_cast<const Floats *>(wide);
}

#endif

// Whether this CPU's own prefetcher reads far ahead. Memory that is read once, in order, needs
// prefetching. An EPYC of 2024 (Zen 5) looks no farther than a page. Prefetching 8 KiB ahead,
// shared by the one or two streams of a pass, reads 0.95 of the memory bandwidth; without it 0.65
// to 0.8. An EPYC of 2022 (Zen 4) looks far, and our prefetches far ahead would evict the CPU's
// own prefetches. Four streams and 256 bytes ahead read the whole bandwidth, 8 KiB in one or two
// streams 0.65 to 0.9. Zen 4 alone has AVX-512 in its family. Tests define LOOKS_FAR to run both
// kinds of passes on any CPU.
DEVICE_FUNCTION bool looks_far()
{
#if defined(LOOKS_FAR)
    return LOOKS_FAR;
#elif defined(__AVX512F__)
    static const bool answer = [] {
        __builtin_cpu_init();
        return bool(__builtin_cpu_is("amdfam19h"));
    }();
    return answer;
#else
    return false;
#endif
}

DEVICE_FUNCTION u32 looked_ahead(u32 streams)
{
    return streams == 4 && looks_far() ? 256 : 8192 / streams;
}

// When four rows are multiplied together: always where their shared values are costly; never for
// rare formats, because each takes 4 KB of a module.
enum : u32 { NEVER, WHERE_CPUS_LOOK_FAR, ALWAYS };

template <u32 BYTES> DEVICE_FUNCTION void look_ahead(const void *from, u32 distance)
{
#pragma GCC unroll 8
    for (u32 i = 0; i < BYTES; i += 64)
        __builtin_prefetch(static_cast<const u8 *>(from) + distance + i);
}

static inline u64 smaller(u64 a, u64 b) { return a < b ? a : b; }
static inline u64 whole_times(u64 length, u64 of) { return (length + of - 1) / of * of; }

// One of `pieces` parts of a length; each begins at a multiple of `of`.
struct Piece {
    u64 first;
    u64 length;

    Piece(u64 whole, u64 index, u64 pieces, u64 of)
    {
        const u64 longest = whole_times((whole + pieces - 1) / pieces, of);
        first = smaller(index * longest, whole);
        length = smaller(longest, whole - first);
    }
};

#endif
