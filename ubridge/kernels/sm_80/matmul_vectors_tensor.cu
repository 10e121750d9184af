// Products of a matrix and few vectors on tensor cores, for NVIDIA's devices from compute
// capability 8.0 on: matmul_vectors_tensor_<type>, out[i, v] = sum over l of lines[i, l] vectors[v, l],
// for each batch. f16 and bf16; sums are taken in f32 and rounded once.
//
// Elements of a line are neighbors, and so are elements of a vector. Lines lie `line_pitch` apart,
// vectors lie `vector_pitch` apart. out[i, v] lies at i * out_line + v * out_vector. Any sizes,
// pitches and addresses are right; lines and vectors that begin at multiples of 16 bytes, of a
// multiple of 8 elements, are read fastest.
//
// The grid is (ceil(n / 16), ceil(m / 8), batches), of blocks of exactly (32, 16). A block takes 16 lines
// and 8 vectors, and each of its 16 warps a sixteenth of the depth. A lane reads 16 bytes of a
// line at once. These elements belong to four places of the instruction's depth that do not
// adjoin. Lines and vectors use the same places, so the sum is the same. Vectors pass through
// shared memory, a part of them at a time.
#include "fragments.h"

#include <uhal/vector.h>

enum : u32 {
    LINES = 16,
    VECTORS = 8,
    WARPS = 16,
    STEP = 32,                  /* depth that four lanes read of a line */
    ROUNDS = 2,                 /* steps of a warp in a part */
    PART = WARPS * STEP * ROUNDS,
    PITCH = PART + 32,          /* eight vectors, read at once, lie in different banks */
    SUMS = LINES * VECTORS,
};

// Elements `place` to `place + 7` of a line of `length`, zeros behind its end.
template <bool whole>
DEVICE_FUNCTION u32x4 eight_at(const u16 *line, u32 place, i64 length, bool aligned)
{
    if (whole || (aligned && i64(place) + 8 <= length))
        return load_vector<4>(reinterpret_cast<const u32 *>(line + place));
    u32x4 words = {};
    for (u32 i = 0; i < 8; ++i)
        if (i64(place) + i < length)
            words[i / 2] |= u32(line[place + i]) << 16 * (i % 2);
    return words;
}

// A part of the depth; the fast form is inside the matrix and reads 16 bytes at a time.
struct Inside {
    static constexpr bool whole = true;
};
struct AtEnd {
    static constexpr bool whole = false;
};

// Hides from nvcc how a number is computed: it would compute it anew for every part.
DEVICE_FUNCTION u64 computed_once(u64 number)
{
    asm("" : "+l"(number));
    return number;
}
DEVICE_FUNCTION u32 computed_once(u32 number)
{
    asm("" : "+r"(number));
    return number;
}

// out[i * out_line + v * out_vector] for the lines and vectors of a block. `out` is not read
// before the end: this kernel is short, and each instruction before its loads counts.
template <class T, class Out>
DEVICE_FUNCTION void multiply(const u16 *lines, u64 line_pitch, const u16 *vectors,
                              u64 vector_pitch, u64 n, u32 m, u64 k, const Out &out)
{
    // The vectors of a part, then sums. Sums have their own place and need no barrier before them.
    SHARED(u32x4, shared, (VECTORS * PITCH + WARPS * SUMS * 2) / 8);
    f32x2 *const summed = reinterpret_cast<f32x2 *>(shared + VECTORS * PITCH / 8);
    u16 *const held = reinterpret_cast<u16 *>(shared);
    const u32 lane = threadIdx.x;
    const u32 warp = threadIdx.y;
    const u32 thread = computed_once(warp * WARP + lane);
    const u64 first_line = u64(blockIdx.x) * LINES;
    const u64 begins = reinterpret_cast<u64>(lines) | reinterpret_cast<u64>(vectors) |
                       (line_pitch | vector_pitch) * sizeof(u16);
    const bool aligned = computed_once(begins % 16) == 0;
    const u32 place = warp * STEP + lane % 4 * 8;
    const u32 row = lane / 4;
    const u32 copied = computed_once(m * (PART / 8));
    // Lines and vectors past the end repeat others; their results are dropped.
    const u16 *const vector = held + min(row, m - 1) * PITCH + place;
    const u16 *upper_line = lines + (first_line + row) * line_pitch + place;
    const u16 *lower_line = upper_line + 8 * line_pitch;
    if (first_line + LINES > n) {
        const u64 last = n - 1;
        const u64 upper = first_line + row < n ? first_line + row : last;
        upper_line = lines + upper * line_pitch + place;
        lower_line = upper + 8 < n ? upper_line + 8 * line_pitch : upper_line;
    }
    f32 sums[4] = {};

    const auto add_part = [&](i64 length, auto given) {
        constexpr bool whole = decltype(given)::whole;
        u32x4 down[ROUNDS][2];
        for (u32 round = 0; round < ROUNDS; ++round) {
            const u32 at = round * WARPS * STEP;
            down[round][0] = eight_at<whole>(upper_line, at, length - place, aligned);
            down[round][1] = eight_at<whole>(lower_line, at, length - place, aligned);
        }
        ROLLED for (u32 i = thread; i < copied; i += WARPS * WARP) {
            const u32 at = i % (PART / 8) * 8;
            const u16 *const source = vectors + i / (PART / 8) * vector_pitch;
            shared[(i / (PART / 8) * PITCH + at) / 8] =
                eight_at<whole>(source, at, length, aligned);
        }
        BARRIER();
        for (u32 round = 0; round < ROUNDS; ++round) {
            const u32x4 *const words = down[round];
            const u32 first_half[4] = {words[0][0], words[1][0], words[0][1], words[1][1]};
            const u32 second_half[4] = {words[0][2], words[1][2], words[0][3], words[1][3]};
            const u32x4 across = *reinterpret_cast<const u32x4 *>(vector + round * WARPS * STEP);
            multiply_add(sums, first_half, across.at, T());
            multiply_add(sums, second_half, across.at + 2, T());
        }
    };
    i64 length = i64(k);
    ROLLED for (;;) {
        if (aligned && length >= PART)
            add_part(length, Inside());
        else
            add_part(length, AtEnd());
        if (length <= PART)
            break;
        BARRIER();
        length -= PART;
        upper_line += PART;
        lower_line += PART;
        vectors += PART;
    }
    // Sums of a warp, a line after the other: lane n has pair n of the columns.
    f32x2 *const pairs = summed + thread + warp * WARP;
    pairs[0] = {{sums[0], sums[1]}};
    pairs[WARP] = {{sums[2], sums[3]}};
    BARRIER();
    if (thread >= SUMS)
        return;
    const u64 line = first_line + thread / VECTORS;
    if (thread % VECTORS >= m || line >= n)
        return;
    const f32 *const partial = reinterpret_cast<const f32 *>(summed) + thread;
    f32 sum = 0;
    for (u32 i = 0; i < WARPS; ++i)
        sum += partial[i * SUMS];
    out(line, thread % VECTORS) = T(sum);
}

#define PRODUCT(T)                                                                                 \
    KERNEL_BOUNDED(matmul_vectors_tensor_##T, WARPS *WARP,                                         \
                   (const T *lines, const T *vectors, T *out, u64 n, u32 m, u64 k,                 \
                    u64 line_batch, u64 line_pitch, u64 vector_batch, u64 vector_pitch,            \
                    u64 out_batch, u64 out_line, u64 out_vector))                                  \
    {                                                                                              \
        const u16 *own_lines = reinterpret_cast<const u16 *>(lines);                               \
        const u16 *own_vectors = reinterpret_cast<const u16 *>(vectors);                           \
        /* Most products are a single batch of up to eight vectors. */                             \
        if ((blockIdx.y | blockIdx.z) != 0) {                                                      \
            const u32 first = blockIdx.y * VECTORS;                                                \
            own_lines += blockIdx.z * line_batch;                                                  \
            own_vectors += blockIdx.z * vector_batch + first * vector_pitch;                       \
            m -= first;                                                                            \
        }                                                                                          \
        const auto place = [=](u64 line, u32 vector) -> T & {                                      \
            return out[blockIdx.z * out_batch + line * out_line +                                  \
                       (blockIdx.y * VECTORS + vector) * out_vector];                              \
        };                                                                                         \
        multiply<T>(own_lines, line_pitch, own_vectors, vector_pitch, n,                           \
                    m < VECTORS ? m : u32(VECTORS), k, place);                                     \
    }

PRODUCT(bf16)
PRODUCT(f16)
