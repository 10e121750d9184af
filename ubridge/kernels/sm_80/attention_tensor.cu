// Scaled dot product attention on tensor cores, for NVIDIA's devices from compute capability 8.0 on:
// sdpa_tensor<width>_<type> and sdpa_tensor_shared<width>_<type>, for f16 and bf16. They compute what
// `sdpa_<type>` and `sdpa_cached_<type>` of attention.cu do, for head_dim up to <width>.
//
// Rows are the queries of all heads that share a head of k and v: row r is head r % group of query
// r / group, so that keys are read once for all these heads. Heads of q and out lie `head_step`
// apart, queries lie `query_step` apart. Without `position`, a query sees keys as in sdpa_<type>;
// with it, as in sdpa_cached_<type> with a cache of kv_len keys. The grid is (row tiles, splits,
// batch * kv_heads).
// sdpa_tensor: blocks of 128 take 128 rows (width 64) or 64, a warp 32 or 16, and all warps the same
// 32 keys at a time.
// sdpa_tensor_shared: blocks of 128 take 16 rows, and each warp 16 of 64 keys at a time; the warps'
// results are merged at the end. With several blocks along y, each takes `split` keys and leaves its
// part in `parts`, for sdpa_merge_<type>.
//
// Scores stay in registers (online softmax). A weight is the sum of two or three numbers of the
// tensor cores' type, so that results are as accurate as with f32 weights.
#include "../attention_parts.h"
#include "attention_rows.h"
#include "fragments.h"

#include <uhal/fast_math.h>
#include <uhal/vector.h>

enum : u32 { WARPS = 4, THREADS = WARPS * WARP, CHUNK = 8, ROWS = 16 };

// A tile of LINES lines of WIDTH elements in shared memory. Chunks of a line are permuted, so that the
// eight lines that ldmatrix reads at once lie in different banks.
template <u32 WIDTH> struct Tile {
    static constexpr u32 CHUNKS = WIDTH / CHUNK;
    static constexpr u32 LINE_BYTES = WIDTH * sizeof(u16);
    DEVICE_METHOD static u32 place(u32 line, u32 chunk)
    {
        return line * CHUNKS + (chunk ^ (line % 8));
    }
};

// Copies `count` of eight elements to shared memory, then zeros: 16 bytes at once, or one by one.
DEVICE_FUNCTION void copy_aligned(u32x4 *target, const u16 *source, u32 count)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)),
                 "l"(source), "r"(2 * count)
                 : "memory");
}
DEVICE_FUNCTION void copy_elements(u32x4 *target, const u16 *source, u32 count)
{
    u32x4 words = {};
    for (u32 i = 0; i < CHUNK; ++i)
        if (i < count)
            words[i / 2] |= u32(source[i]) << 16 * (i % 2);
    *target = words;
}

// Loads LINES lines; at(line) is a line's first element, or null for a line of zeros.
template <u32 LINES, u32 WIDTH, class At>
DEVICE_FUNCTION void load_lines(u32x4 *tile, const void *anywhere, u32 head_dim, bool aligned, At at)
{
    constexpr u32 CHUNKS = WIDTH / CHUNK, STEP = THREADS / CHUNKS;
    static_assert(STEP % 8 == 0, "a work-item's chunks lie at one place of their lines");
    const u32 chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS;
    const u32 left = head_dim > chunk * CHUNK ? head_dim - chunk * CHUNK : 0;
    const u32 count = left < CHUNK ? left : u32(CHUNK);
    u32x4 *const target = tile + Tile<WIDTH>::place(first, chunk);
    const auto copy = [&](u32 line, auto by) {
        const u16 *const source = at(line);
        const bool inside = source != nullptr && count != 0;
        by(target + (line - first) * CHUNKS,
           inside ? source + chunk * CHUNK : static_cast<const u16 *>(anywhere), inside ? count : 0);
    };
    if (aligned) {
        ROLLED for (u32 line = first; line < LINES; line += STEP)
            copy(line, [](auto... given) { copy_aligned(given...); });
    } else {
        ROLLED for (u32 line = first; line < LINES; line += STEP)
            copy(line, [](auto... given) { copy_elements(given...); });
    }
}

DEVICE_FUNCTION void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <u32 left> DEVICE_FUNCTION void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Two numbers of T in a word.
DEVICE_FUNCTION u32 packed(f32 first, f32 second, f16)
{
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
DEVICE_FUNCTION u32 packed(f32 first, f32 second, bf16)
{
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
DEVICE_FUNCTION f32x2 unpacked(u32 word, f16)
{
    f32x2 both;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(both[0]), "=f"(both[1])
        : "r"(word));
    return both;
}
DEVICE_FUNCTION f32x2 unpacked(u32 word, bf16)
{
    return {{__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000U)}};
}

// Numbers of T that add up to a weight of f32, and the binary logarithm of the largest weight. Small
// weights keep their digits, because f16 loses digits below 2^-14.
template <class T> constexpr u32 parts_of_weight = 2;
template <> constexpr u32 parts_of_weight<bf16> = 3;
template <class T> constexpr f32 largest_weight = 15;
template <> constexpr f32 largest_weight<bf16> = 0;

constexpr f32 LOG2_E = 1.44269504F, LN_2 = 0.693147181F;

// The smaller number; a NaN if either is one.
DEVICE_FUNCTION f32 smaller(f32 a, f32 b)
{
    f32 least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
}

DEVICE_FUNCTION f32 over_four(f32 value, bool adds)
{
    for (u32 mask = 1; mask < 4; mask *= 2) {
        const f32 other = __shfl_xor_sync(~0U, value, mask);
        value = adds ? value + other : fmaxf(value, other);
    }
    return value;
}

// The results of 16 rows over some keys, as fragments in a warp's registers. Each lane also holds
// the largest score, times log2(e), and its share of the sum of weights for rows lane / 4 and
// lane / 4 + 8.
template <class T, u32 WIDTH> struct Rows {
    f32 sums[WIDTH / 8][4];
    f32 largest[2];
    f32 total[2];

    DEVICE_METHOD void clear()
    {
#pragma unroll
        for (u32 j = 0; j < WIDTH / 8; ++j)
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
                sums[j][i] = 0;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            largest[half] = -INFINITY;
            total[half] = 0;
        }
    }

    // Sets the largest scores; returns what is subtracted from scores in `bases`.
    DEVICE_METHOD void raise(const f32 (&above)[2], f32 (&bases)[2])
    {
        f32 kept[2];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            // All keys so far are masked; their scores must not become NaN.
            bases[half] = above[half] == -INFINITY ? 0 : above[half];
            kept[half] = uhal_fast_exp2(largest[half] - bases[half]);
            largest[half] = above[half];
        }
        // Later keys seldom have a larger score.
        if (!__any_sync(~0U, kept[0] != 1 || kept[1] != 1))
            return;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            total[half] *= kept[half];
#pragma unroll
            for (u32 j = 0; j < WIDTH / 8; ++j) {
                sums[j][2 * half] *= kept[half];
                sums[j][2 * half + 1] *= kept[half];
            }
        }
    }

    // Turns the scores of keys into weights; a score times `factor` is in units of log2.
    template <u32 COUNT> DEVICE_METHOD void weigh(f32 (&scores)[COUNT][4], f32 factor)
    {
        f32 above[2], bases[2];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            f32 most = scores[0][2 * half];
#pragma unroll
            for (u32 j = 0; j < COUNT; ++j)
#pragma unroll
                for (u32 i = 0; i < 2; ++i)
                    most = fmaxf(most, scores[j][2 * half + i]);
            above[half] = fmaxf(largest[half], over_four(most, false) * factor);
        }
        raise(above, bases);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            constexpr f32 MOST = largest_weight<T>;
            const f32 below = MOST - bases[half];
#pragma unroll
            for (u32 j = 0; j < COUNT; ++j)
#pragma unroll
                for (u32 i = 0; i < 2; ++i) {
                    f32 &score = scores[j][2 * half + i];
                    // The base of huge scores is rounded; no weight may be infinite.
                    score = uhal_fast_exp2(smaller(fmaf(score, factor, below), MOST));
                    total[half] += score;
                }
        }
    }

    // Merges the results of the same rows over other keys, from the lane's part of shared memory.
    DEVICE_METHOD void merge(const f32 *other, u32 lane)
    {
        f32 above[2], bases[2];
#pragma unroll
        for (u32 half = 0; half < 2; ++half)
            above[half] = fmaxf(largest[half], other[half * WARP + lane]);
        raise(above, bases);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const f32 kept = uhal_fast_exp2(other[half * WARP + lane] - bases[half]);
            total[half] += kept * other[(2 + half) * WARP + lane];
#pragma unroll
            for (u32 j = 0; j < WIDTH / 8; ++j)
#pragma unroll
                for (u32 i = 2 * half; i < 2 * half + 2; ++i)
                    sums[j][i] += kept * other[(4 + 4 * j + i) * WARP + lane];
        }
    }

    DEVICE_METHOD void leave(f32 *target, u32 lane) const
    {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            target[half * WARP + lane] = largest[half];
            target[(2 + half) * WARP + lane] = total[half];
        }
#pragma unroll
        for (u32 j = 0; j < WIDTH / 8; ++j)
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
                target[(4 + 4 * j + i) * WARP + lane] = sums[j][i];
    }
};

// Adds KEYS keys from `first` on to TILES times 16 rows. Their lines of k and v begin at these
// addresses of shared memory.
template <u32 KEYS, class T, u32 WIDTH, u32 TILES>
DEVICE_FUNCTION void add_keys(Rows<T, WIDTH> (&results)[TILES],
                              const u32 (&query)[TILES][WIDTH / 16][4], u32 k_lines, u32 v_lines,
                              u64 first, bool is_plain, const Problem<T> &problem, u32 first_row,
                              u64 end)
{
    constexpr u32 LINE = Tile<WIDTH>::LINE_BYTES;
    const u32 lane = threadIdx.x % WARP;
    // A lane's chunk of a line is c ^ (line % 8), and its lines are equal modulo 8.
    const u32 k_chunk = 16 * (lane / 8 % 2 ^ lane % 8), v_chunk = 16 * (lane / 16 ^ lane % 8);
    k_lines += (lane / 16 * 8 + lane % 8) * LINE;
    v_lines += lane % 16 * LINE;
    f32 scores[TILES][KEYS / 8][4] = {};
#pragma unroll
    for (u32 depth = 0; depth < WIDTH / 16; ++depth)
#pragma unroll
        for (u32 j = 0; j < KEYS / 16; ++j) {
            u32 keys[4];
            load_fragments<true>(keys, k_lines + (k_chunk ^ 32 * depth) + 16 * j * LINE);
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile) {
                multiply_add(scores[tile][2 * j], query[tile][depth], keys, T());
                multiply_add(scores[tile][2 * j + 1], query[tile][depth], keys + 2, T());
            }
        }
    if (!is_plain)
#pragma unroll
        for (u32 tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                Query<T> row = problem.query(first_row + 16 * tile + lane / 4 + 8 * half);
                row.end = row.end < end ? row.end : end;
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j)
#pragma unroll
                    for (u32 i = 0; i < 2; ++i) {
                        f32 &score = scores[tile][j][2 * half + i];
                        score = row.of(first + 8 * j + lane % 4 * 2 + i, score * problem.scale,
                                       problem.cap);
                    }
            }
    const f32 factor = is_plain ? problem.scale * LOG2_E : LOG2_E;
#pragma unroll
    for (u32 tile = 0; tile < TILES; ++tile)
        results[tile].weigh(scores[tile], factor);
#pragma unroll
    for (u32 j = 0; j < KEYS / 16; ++j) {
        u32 weights[TILES][parts_of_weight<T>][4];
#pragma unroll
        for (u32 tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (u32 n = 0; n < 4; ++n) {
                f32 *const two = scores[tile][2 * j + n / 2] + n % 2 * 2;
#pragma unroll
                for (u32 part = 0; part < parts_of_weight<T>; ++part) {
                    weights[tile][part][n] = packed(two[0], two[1], T());
                    const f32x2 both = unpacked(weights[tile][part][n], T());
                    two[0] -= both[0];
                    two[1] -= both[1];
                }
            }
#pragma unroll
        for (u32 column = 0; column < WIDTH / 16; ++column) {
            u32 values[4];
            load_fragments<false>(values, v_lines + (v_chunk ^ 32 * column) + 16 * j * LINE);
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile)
#pragma unroll
                for (u32 part = 0; part < parts_of_weight<T>; ++part) {
                    multiply_add(results[tile].sums[2 * column], weights[tile][part], values, T());
                    multiply_add(results[tile].sums[2 * column + 1], weights[tile][part],
                                 values + 2, T());
                }
        }
    }
}

template <class T, u32 WIDTH, bool shared_rows>
DEVICE_FUNCTION void attend(const Problem<T> &problem, const T *q, const T *k, const T *v, T *out,
                            f32 *parts, u64 split)
{
    constexpr u32 KEYS = shared_rows ? 64 : 32, STAGES = shared_rows ? 1 : 2;
    // Keys that a warp reads from shared memory serve all its rows. More rows have no registers.
    constexpr u32 TILES = !shared_rows && WIDTH == 64 ? 2 : 1, OWN_ROWS = TILES * ROWS;
    constexpr u32 ROWS_HERE = shared_rows ? ROWS : WARPS * OWN_ROWS;
    constexpr u32 SIZE = KEYS * WIDTH / CHUNK;
    static_assert(2 * STAGES * SIZE >= ROWS_HERE * WIDTH / CHUNK, "queries pass through it, too");
    static_assert(2 * STAGES * SIZE >= WARPS * ROWS * WIDTH / 4, "results pass through it, too");
    SHARED(u32x4, held, 2 * STAGES * SIZE);
    const u32 head_dim = problem.head_dim;
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    // Later rows may see more keys: their blocks start first.
    const u32 first_row = (gridDim.x - 1 - blockIdx.x) * ROWS_HERE;
    const u32 last_row = first_row + ROWS_HERE < problem.rows() ? first_row + ROWS_HERE : problem.rows();
    const u32 own_row = first_row + (shared_rows ? 0 : warp * OWN_ROWS);
    const u32 own_last = own_row + OWN_ROWS < last_row ? own_row + OWN_ROWS : last_row;
    const bool aligned = ((reinterpret_cast<u64>(q) | reinterpret_cast<u64>(k) |
                           reinterpret_cast<u64>(v) |
                           (head_dim | problem.head_step | problem.query_step) * sizeof(T)) %
                          16) == 0;

    // The keys that any row of the block uses.
    const u64 split_begin = blockIdx.y * split;
    const u64 first_begin = problem.query(first_row).begin, last_end = problem.query(last_row - 1).end;
    const u64 split_end = gridDim.y == 1 ? last_end : split_begin + split;
    const u64 begin = first_begin > split_begin ? first_begin : split_begin;
    const u64 end = last_end < split_end ? last_end : split_end;
    if (gridDim.y != 1 && begin >= end)
        return;
    // The keys that any row of the warp uses, then the keys that all its rows use.
    const Query<T> least = problem.query(own_row), most = problem.query(own_last - 1);
    const u64 own_begin = least.begin;
    const u64 own_end = own_row >= own_last ? 0 : most.end < end ? most.end : end;
    const u64 all_begin = most.begin, all_end = least.end < end ? least.end : end;

    // Queries pass through shared memory to be read by ldmatrix.
    load_lines<ROWS_HERE, WIDTH>(held, q, head_dim, aligned, [&](u32 line) {
        const u16 *const source = reinterpret_cast<const u16 *>(q);
        return first_row + line < last_row ? source + problem.at(first_row + line) : nullptr;
    });
    commit_copies();
    wait_for_copies<0>();
    BARRIER();
    u32 query[TILES][WIDTH / 16][4];
#pragma unroll
    for (u32 tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (u32 depth = 0; depth < WIDTH / 16; ++depth)
            load_fragments<true>(query[tile][depth],
                                 held + Tile<WIDTH>::place(own_row - first_row + tile * ROWS + lane % 16,
                                                           2 * depth + lane / 16));
    BARRIER();

    const auto load_tile = [&](u32x4 *tile, const T *matrix, u64 first) {
        const u16 *const source = reinterpret_cast<const u16 *>(matrix) + first * head_dim;
        const u32 lines = end - first < KEYS ? u32(end - first) : KEYS;
        load_lines<KEYS, WIDTH>(tile, matrix, head_dim, aligned, [&](u32 line) {
            return line < lines ? source + line * u64(head_dim) : nullptr;
        });
    };
    const auto load = [&](u64 first, u32 stage) {
        if (first < end) {
            load_tile(held + 2 * stage * SIZE, k, first);
            load_tile(held + (2 * stage + 1) * SIZE, v, first);
        }
        commit_copies();
    };
    constexpr u32 OWN_KEYS = shared_rows ? KEYS / WARPS : KEYS;
    const bool has_plain = problem.mask == nullptr && problem.bias == nullptr && problem.cap == 0 &&
                           problem.scale > 0;
    Rows<T, WIDTH> results[TILES];
#pragma unroll
    for (u32 tile = 0; tile < TILES; ++tile)
        results[tile].clear();
    load(begin, 0);
    u32 stage = 0;
    ROLLED for (u64 first = begin; first < end; first += KEYS) {
        if (STAGES == 2)
            load(first + KEYS, stage ^ 1);
        wait_for_copies<STAGES - 1>();
        BARRIER();
        const u32 line = shared_rows ? warp * OWN_KEYS : 0;
        const u64 own = first + line;
        if (own < own_end && own + OWN_KEYS > own_begin) {
            const u32 lines = shared_address(held + 2 * stage * SIZE) + line * Tile<WIDTH>::LINE_BYTES;
            add_keys<OWN_KEYS>(results, query, lines, lines + SIZE * u32(sizeof *held), own,
                               has_plain && own >= all_begin && own + OWN_KEYS <= all_end, problem,
                               own_row, end);
        }
        BARRIER();
        if (STAGES == 1)
            load(first + KEYS, 0);
        else
            stage ^= 1;
    }
    wait_for_copies<0>();
    BARRIER();
    f32 *const floats = reinterpret_cast<f32 *>(held);
    if (shared_rows) {
        constexpr u32 LEFT = (4 + WIDTH / 2) * WARP;
        if (warp != 0)
            results[0].leave(floats + (warp - 1) * LEFT, lane);
        BARRIER();
        if (warp != 0)
            return;
        for (u32 other = 0; other < WARPS - 1; ++other)
            results[0].merge(floats + other * LEFT, lane);
        __syncwarp();
    }
    // Results pass through shared memory, so that neighbors write neighboring elements.
    f32 *const own = floats + (shared_rows ? 0 : warp * ROWS * WIDTH);
    const u32 width = part_width(head_dim);
    const bool in_fours = head_dim % 4 == 0;
#pragma unroll
    for (u32 tile = 0; tile < TILES; ++tile) {
        const u32 tile_row = own_row + tile * ROWS;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u32 row = lane / 4 + 8 * half;
            const f32 total = over_four(results[tile].total[half], true);
            const f32 factor = gridDim.y != 1 ? 1 : total == 0 ? 0 : 1 / total;
#pragma unroll
            for (u32 j = 0; j < WIDTH / 8; ++j)
                reinterpret_cast<f32x2 *>(own + row * WIDTH)[(j ^ (row % 4)) * 4 + lane % 4] = {
                    {results[tile].sums[j][2 * half] * factor,
                     results[tile].sums[j][2 * half + 1] * factor}};
            if (gridDim.y != 1 && tile_row + row < last_row && lane % 4 == 0) {
                const u64 place = (problem.head + tile_row + row) * gridDim.y + blockIdx.y;
                parts[place * width + head_dim] = total;
                parts[place * width + head_dim + 1] = results[tile].largest[half] * LN_2;
            }
        }
        __syncwarp();
        ROLLED for (u32 i = lane; i < ROWS * WIDTH / 4; i += WARP) {
            const u32 row = i / (WIDTH / 4), four = i % (WIDTH / 4);
            if (tile_row + row >= last_row)
                break;
            const f32x4 values = reinterpret_cast<const f32x4 *>(
                own + row * WIDTH)[((four / 2) ^ (row % 4)) * 2 + four % 2];
            if (gridDim.y != 1) {
                f32 *const part =
                    parts + ((problem.head + tile_row + row) * gridDim.y + blockIdx.y) * u64(width) +
                    4 * four;
                if (in_fours && 4 * four < head_dim)
                    store_vector(part, values);
                else
                    for (u32 n = 0; n < 4; ++n)
                        if (4 * four + n < head_dim)
                            part[n] = values[n];
                continue;
            }
            T *const line = out + problem.at(tile_row + row) + 4 * four;
            if (aligned && reinterpret_cast<u64>(out) % 8 == 0) {
                if (4 * four < head_dim)
                    *reinterpret_cast<u64 *>(line) = packed(values[0], values[1], T()) |
                                                     u64(packed(values[2], values[3], T())) << 32;
                continue;
            }
            for (u32 n = 0; n < 4; ++n)
                if (4 * four + n < head_dim)
                    line[n] = T(values[n]);
        }
        __syncwarp();
    }
}

#define SDPA(name, T, WIDTH, shared_rows)                                                          \
    KERNEL_BOUNDED(name##WIDTH##_##T, 128, ATTENTION_PARAMETERS(T))                                \
    {                                                                                              \
        const u64 batch = blockIdx.z / kv_heads;                                                   \
        const u64 queries = batch * heads * q_len * head_dim;                                      \
        const u64 keys = u64(blockIdx.z) * kv_len * head_dim;                                      \
        const Problem<T> problem = ATTENTION_PROBLEM(T);                                           \
        attend<T, WIDTH, shared_rows>(                                                             \
            problem, q + queries, k + keys, v + keys, out + queries,                               \
            parts + batch * heads * gridDim.y * part_width(head_dim), split);                      \
    }
#define SDPA_OF(T)                                                                                 \
    SDPA(sdpa_tensor, T, 64, false)                                                                \
    SDPA(sdpa_tensor, T, 128, false)                                                               \
    SDPA(sdpa_tensor_shared, T, 64, true)                                                          \
    SDPA(sdpa_tensor_shared, T, 128, true)

SDPA_OF(bf16)
SDPA_OF(f16)
