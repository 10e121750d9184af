// Convolutions on tensor cores, for NVIDIA's devices from compute capability 8.0 on:
// conv_tensor_<type>, the results of conv_tiles_<type> for f16 and bf16. Sums are taken in f32 and
// rounded once.
//
// The grid is that of conv_tiles_<type>, of blocks of exactly 128. A tile of weights and a tile of
// windows are gathered into registers while the tiles before them are multiplied. A warp gathers
// neighboring taps of a result, or neighboring positions of a tap.
#include "../convolution_parts.h"
#include "tensor_tiles.h"

enum : u32 {
    TILE = 64,
    WARPS = 4,
    STAGES = 2,
    LINES = TILE / WARPS, /* results whose weights a warp gathers */
    TAPS = DEPTH / WARPS, /* taps whose windows a warp gathers */
};

template <class T> using Sums = TensorSums<T, TILE, 2, 2, true, false>;

template <class T>
DEVICE_FUNCTION void convolve(const Convolution &c, const Part<T> &part, u64 first_result,
                              u64 first_position)
{
    typedef typename Sums<T>::TileA Weights;
    typedef typename Sums<T>::TileB Windows;
    SHARED(Chunk, weight_tiles, STAGES, Weights::SIZE);
    SHARED(Chunk, window_tiles, STAGES, Windows::SIZE);
    SHARED(TapPlace, taps, STAGES, DEPTH);
    const u32 lane = threadIdx.x % WARP;
    const u32 warp = threadIdx.x / WARP;
    const u64 steps = (part.depth + DEPTH - 1) / DEPTH;
    typename Part<T>::Position positions[2];
    bool has_position[2];
    for (u32 i = 0; i < 2; ++i) {
        const u64 position = first_position + i * WARP + lane;
        has_position[i] = position < part.positions;
        positions[i] = part.position(has_position[i] ? position : first_position);
    }

    const auto prepare = [&](u64 step) {
        const u64 depth = step * DEPTH + lane;
        if (warp == 0 && depth < part.depth)
            taps[step % STAGES][lane] = part.tap(depth);
    };
    T weights[LINES], windows[TAPS][2];
    const auto gather = [&](u64 step) {
        const TapPlace *const table = taps[step % STAGES];
        const u64 left = part.depth - step * DEPTH;
        const T *const line = part.weights + (first_result + warp * LINES) * part.line_step +
                              (lane < left ? table[lane].weight : 0);
#pragma unroll
        for (u32 i = 0; i < LINES; ++i) {
            const bool inside = lane < left && first_result + warp * LINES + i < part.results;
            weights[i] = inside ? line[i * part.line_step] : T(0.0f);
        }
#pragma unroll
        for (u32 i = 0; i < TAPS; ++i)
            for (u32 j = 0; j < 2; ++j) {
                const u32 tap = warp * TAPS + i;
                const bool inside = tap < left && has_position[j];
                windows[i][j] = inside ? positions[j].at(table[tap]) : T(0.0f);
            }
    };
    const auto put = [&](Chunk *tile, u32 chunk, u32 place, T value) {
        reinterpret_cast<T *>(tile + chunk)[place % CHUNK] = value;
    };
    const auto put_tiles = [&](u64 step) {
#pragma unroll
        for (u32 i = 0; i < LINES; ++i)
            put(weight_tiles[step % STAGES], Weights::place(warp * LINES + i, lane / CHUNK), lane,
                weights[i]);
#pragma unroll
        for (u32 i = 0; i < TAPS; ++i)
            for (u32 j = 0; j < 2; ++j)
                put(window_tiles[step % STAGES],
                    Windows::place(warp * TAPS + i, (j * WARP + lane) / CHUNK), lane, windows[i][j]);
    };

    Sums<T> sums = {};
    prepare(0);
    BARRIER();
    if (steps > 0) {
        gather(0);
        put_tiles(0);
        prepare(1);
    }
    BARRIER();
    ROLLED for (u64 step = 0; step < steps; ++step) {
        if (step + 1 < steps)
            gather(step + 1);
        sums.add(weight_tiles[step % STAGES], window_tiles[step % STAGES]);
        if (step + 1 < steps)
            put_tiles(step + 1);
        prepare(step + 2);
        BARRIER();
    }
    sums.pass_to([&](u32 row, u32 column, f32 first, f32 second) {
        if (first_result + row >= part.results)
            return;
        for (u32 i = 0; i < 2; ++i)
            if (first_position + column + i < part.positions)
                part.store(first_result + row, first_position + column + i, T(i == 0 ? first : second));
    });
}

#define CONV_TENSOR(T)                                                                             \
    KERNEL_BOUNDED(conv_tensor_##T, WARPS *WARP, CONVOLUTION_PARAMETERS(T))                        \
    {                                                                                              \
        const Convolution c = CONVOLUTION;                                                         \
        const u64 result = u64(blockIdx.y) * TILE, position = u64(blockIdx.x) * TILE;              \
        ROLLED for (u64 i = blockIdx.z; i < c.groups * c.phases(); i += gridDim.z) {               \
            const Part<T> part(c, i, src, kernel, dst);                                            \
            if (result < part.results && position < part.positions)                                \
                convolve(c, part, result, position);                                               \
        }                                                                                          \
    }

CONV_TENSOR(bf16)
CONV_TENSOR(f16)
