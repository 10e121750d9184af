// Scaled dot product attention in f32, for NVIDIA's devices from compute capability 8.0 on:
// sdpa_tiles<width>_f32 gives the results of `sdpa_f32` and `sdpa_cached_f32` of attention.cu, for
// head_dim up to <width>. Its parameters, rows and grid are the same as in attention_tensor.cu,
// with one split.
//
// A block of 128 takes 64 rows, a warp 16, and all warps the same 32 keys at a time. A lane holds four
// rows: first their scores with four keys, then their sums in an eighth of the columns. Weights go from
// lane to lane in registers (online softmax).
#include "attention_rows.h"

#include <uhal/vector.h>

#include <math.h>

enum : u32 { WARP = 32, THREADS = 128, ROWS = 64, KEYS = 32, OWN = 4, LANES = 8, CHUNK = 4 };

DEVICE_FUNCTION f32 over_lanes(f32 value, bool adds)
{
    for (u32 mask = 1; mask < LANES; mask *= 2) {
        const f32 other = __shfl_xor_sync(~0U, value, mask);
        value = adds ? value + other : fmaxf(value, other);
    }
    return value;
}

// Lines of WIDTH elements in shared memory. Chunks of a line are permuted, so that lines four apart lie
// in different banks.
template <u32 WIDTH> struct Tile {
    static constexpr u32 CHUNKS = WIDTH / CHUNK;
    DEVICE_METHOD static u32 place(u32 line, u32 chunk)
    {
        return line * CHUNKS + (chunk ^ (line / 4 % 8));
    }
};

// Loads LINES lines; at(line) is a line's first element, or null for a line of zeros.
template <u32 LINES, u32 WIDTH, class At>
DEVICE_FUNCTION void load_lines(f32x4 *tile, u32 head_dim, bool aligned, At at)
{
    constexpr u32 CHUNKS = WIDTH / CHUNK, STEP = THREADS / CHUNKS;
    const u32 chunk = threadIdx.x % CHUNKS;
#pragma unroll 4
    for (u32 line = threadIdx.x / CHUNKS; line < LINES; line += STEP) {
        const f32 *const source = at(line);
        f32x4 values = {};
        if (source != nullptr) {
            if (aligned) {
                if (chunk * CHUNK < head_dim)
                    values = load_vector<4>(source + chunk * CHUNK);
            } else {
                for (u32 i = 0; i < CHUNK; ++i)
                    if (chunk * CHUNK + i < head_dim)
                        values[i] = source[chunk * CHUNK + i];
            }
        }
        tile[Tile<WIDTH>::place(line, chunk)] = values;
    }
}

// Results of a lane's rows over some keys.
template <u32 WIDTH> struct Results {
    f32x4 sums[OWN][WIDTH / CHUNK / LANES];
    f32 largest[OWN];
    f32 total[OWN];

    DEVICE_METHOD void clear()
    {
#pragma unroll
        for (u32 i = 0; i < OWN; ++i) {
            largest[i] = -INFINITY;
            total[i] = 0;
#pragma unroll
            for (u32 c = 0; c < WIDTH / CHUNK / LANES; ++c)
                sums[i][c] = {};
        }
    }

    // Turns the scores of four keys into weights, and scales earlier results to the same base.
    DEVICE_METHOD void weigh(u32 i, f32 *scores)
    {
        f32 above = largest[i];
#pragma unroll
        for (u32 j = 0; j < OWN; ++j)
            above = fmaxf(above, scores[j]);
        above = over_lanes(above, false);
        // All keys so far are masked; their scores must not become NaN.
        const f32 base = above == -INFINITY ? 0 : above;
        const f32 kept = expf(largest[i] - base);
        total[i] *= kept;
#pragma unroll
        for (u32 c = 0; c < WIDTH / CHUNK / LANES; ++c)
#pragma unroll
            for (u32 n = 0; n < CHUNK; ++n)
                sums[i][c][n] *= kept;
        largest[i] = above;
#pragma unroll
        for (u32 j = 0; j < OWN; ++j) {
            scores[j] = expf(scores[j] - base);
            total[i] += scores[j];
        }
    }
};

template <u32 WIDTH>
DEVICE_FUNCTION void attend(const Problem<f32> &problem, const f32 *q, const f32 *k, const f32 *v,
                            f32 *out)
{
    constexpr u32 CHUNKS = WIDTH / CHUNK;
    SHARED(f32x4, held, (ROWS + KEYS) * CHUNKS);
    f32x4 *const tile = held + ROWS * CHUNKS;
    const u32 head_dim = problem.head_dim;
    const u32 lane = threadIdx.x % LANES;
    const u32 own_line = threadIdx.x / LANES * OWN;
    const u32 first_row = blockIdx.x * ROWS;
    const u32 last_row = first_row + ROWS < problem.rows() ? first_row + ROWS : problem.rows();
    const bool aligned = ((reinterpret_cast<u64>(q) | reinterpret_cast<u64>(k) |
                           reinterpret_cast<u64>(v) | reinterpret_cast<u64>(out) |
                           (head_dim | problem.head_step | problem.query_step) * sizeof(f32)) %
                          16) == 0;

    // The keys that any row uses, then the keys that all rows use.
    const Query<f32> least = problem.query(first_row), most = problem.query(last_row - 1);
    const u64 end = most.end;
    const auto load_tile = [&](const f32 *matrix, u64 first) {
        const u32 lines = end - first < KEYS ? u32(end - first) : u32(KEYS);
        load_lines<KEYS, WIDTH>(tile, head_dim, aligned, [&](u32 line) {
            return line < lines ? matrix + (first + line) * head_dim : nullptr;
        });
    };
    load_lines<ROWS, WIDTH>(held, head_dim, aligned, [&](u32 line) {
        return first_row + line < last_row ? q + problem.at(first_row + line) : nullptr;
    });
    Results<WIDTH> results;
    results.clear();
    ROLLED for (u64 first = least.begin; first < end; first += KEYS) {
        load_tile(k, first);
        BARRIER();
        f32 scores[OWN][OWN] = {};
#pragma unroll 2
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) {
            f32x4 queries[OWN], keys[OWN];
#pragma unroll
            for (u32 i = 0; i < OWN; ++i) {
                queries[i] = held[Tile<WIDTH>::place(own_line + i, chunk)];
                keys[i] = tile[Tile<WIDTH>::place(lane * OWN + i, chunk)];
            }
#pragma unroll
            for (u32 i = 0; i < OWN; ++i)
#pragma unroll
                for (u32 j = 0; j < OWN; ++j)
#pragma unroll
                    for (u32 n = 0; n < CHUNK; ++n)
                        scores[i][j] += queries[i][n] * keys[j][n];
        }
        BARRIER();
        load_tile(v, first);
        const bool is_plain = first >= most.begin && first + KEYS <= least.end &&
                              problem.mask == nullptr && problem.bias == nullptr && problem.cap == 0;
#pragma unroll
        for (u32 i = 0; i < OWN; ++i) {
            if (is_plain) {
#pragma unroll
                for (u32 j = 0; j < OWN; ++j)
                    scores[i][j] *= problem.scale;
            } else {
                const Query<f32> row = problem.query(first_row + own_line + i);
#pragma unroll
                for (u32 j = 0; j < OWN; ++j)
                    scores[i][j] = row.of(first + lane * OWN + j, scores[i][j] * problem.scale,
                                          problem.cap);
            }
            results.weigh(i, scores[i]);
        }
        BARRIER();
        ROLLED for (u32 owner = 0; owner < LANES; ++owner) {
#pragma unroll
            for (u32 j = 0; j < OWN; ++j) {
                f32 weights[OWN];
#pragma unroll
                for (u32 i = 0; i < OWN; ++i)
                    weights[i] = __shfl_sync(~0U, scores[i][j], owner, LANES);
#pragma unroll
                for (u32 c = 0; c < CHUNKS / LANES; ++c) {
                    const f32x4 values = tile[Tile<WIDTH>::place(owner * OWN + j, c * LANES + lane)];
#pragma unroll
                    for (u32 i = 0; i < OWN; ++i)
#pragma unroll
                        for (u32 n = 0; n < CHUNK; ++n)
                            results.sums[i][c][n] += weights[i] * values[n];
                }
            }
        }
        BARRIER();
    }
#pragma unroll
    for (u32 i = 0; i < OWN; ++i) {
        const f32 total = over_lanes(results.total[i], true);
        const f32 factor = total == 0 ? 0 : 1 / total;
        const u32 row = first_row + own_line + i;
        if (row >= last_row)
            continue;
        f32 *const line = out + problem.at(row);
#pragma unroll
        for (u32 c = 0; c < CHUNKS / LANES; ++c) {
            const u32 column = (c * LANES + lane) * CHUNK;
            f32x4 values = results.sums[i][c];
#pragma unroll
            for (u32 n = 0; n < CHUNK; ++n)
                values[n] *= factor;
            if (aligned) {
                if (column < head_dim)
                    store_vector(line + column, values);
            } else {
                for (u32 n = 0; n < CHUNK; ++n)
                    if (column + n < head_dim)
                        line[column + n] = values[n];
            }
        }
    }
}

#define SDPA(WIDTH)                                                                                \
    KERNEL_BOUNDED(sdpa_tiles##WIDTH##_f32, 128, ATTENTION_PARAMETERS(f32))                        \
    {                                                                                              \
        const u64 queries = blockIdx.z / kv_heads * heads * q_len * head_dim;                      \
        const u64 keys = u64(blockIdx.z) * kv_len * head_dim;                                      \
        const Problem<f32> problem = ATTENTION_PROBLEM(f32);                                       \
        attend<WIDTH>(problem, q + queries, k + keys, v + keys, out + queries);                    \
    }

SDPA(64)
SDPA(128)
