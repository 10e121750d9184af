// Convolutions as products, `conv_tiles_<type>`: the results of conv1d_<type>, conv2d_<type> and their
// transposed forms (conv.cu), in groups of channels. A tile of windows is gathered from the input, so
// no matrix of windows is stored. Sums are taken in f32 for f16 and bf16; sums of integers wrap around.
//
// The grid is (ceil(positions / 64), ceil(a group's results / 64), groups and phases), with any length
// along z; positions are those of the largest phase, in all batches. Blocks have exactly 256.
#include "convolution_parts.h"
#include "product_tiles.h"

// Taps of the step that is loaded, and of the next step.
enum : u32 { TAPS = 2 * DEPTH };

template <class T> struct Weights {
    const Part<T> &part;
    const TapPlace *taps;

    struct Line {
        const T *data;
        const TapPlace *taps;
        DEVICE_METHOD T at(u64 depth) const { return data[taps[depth % TAPS].weight]; }
    };
    DEVICE_METHOD bool is_deep() const { return true; }
    DEVICE_METHOD Line line(u64 channel) const
    {
        return {part.weights + channel * part.line_step, taps};
    }
};

template <class T> struct Windows {
    const Part<T> &part;
    const TapPlace *taps;

    struct Line {
        typename Part<T>::Position position;
        const TapPlace *taps;
        DEVICE_METHOD T at(u64 depth) const { return position.at(taps[depth % TAPS]); }
    };
    DEVICE_METHOD bool is_deep() const { return false; }
    DEVICE_METHOD Line line(u64 index) const { return {part.position(index), taps}; }
};

// Fills the table with the taps of a step.
template <class T> struct TapsOfStep {
    const Part<T> &part;
    TapPlace *taps;

    DEVICE_METHOD void operator()(BLOCK block, u32 threads, u64 depth) const
    {
        THREADS_OF(block, t) {
            for (u32 i = t; i < DEPTH; i += threads)
                if (depth + i < part.depth)
                    taps[(depth + i) % TAPS] = part.tap(depth + i);
        }
    }
};

template <class T>
DEVICE_FUNCTION void convolve(BLOCK block, u32 threads, const Convolution &c, u64 first_position,
                              u64 first_result, u64 first_part, u64 part_step, const T *src,
                              const T *kernel, T *dst)
{
    SHARED(TapPlace, taps, TAPS);
    ROLLED for (u64 i = first_part; i < c.groups * c.phases(); i += part_step) {
        const Part<T> part(c, i, src, kernel, dst);
        if (first_result >= part.results || first_position >= part.positions)
            continue;
        const TapsOfStep<T> prepare = {part, taps};
        prepare(block, threads, 0);
        BARRIER();
        multiply_tile<T>(block, threads, Weights<T>{part, taps}, Windows<T>{part, taps}, part,
                         part.results, part.positions, part.depth, first_result, first_position,
                         prepare);
    }
}

#define CONV_TILES(T)                                                                              \
    KERNEL_BOUNDED(conv_tiles_##T, 256, CONVOLUTION_PARAMETERS(T))                                 \
    {                                                                                              \
        const Convolution c = CONVOLUTION;                                                         \
        convolve(THIS_BLOCK, blockDim.x *blockDim.y *blockDim.z, c, u64(blockIdx.x) * TILE,        \
                 u64(blockIdx.y) * TILE, blockIdx.z, gridDim.z, src, kernel, dst);                 \
    }

CONV_TILES(bf16)
CONV_TILES(f16)
CONV_TILES(f32)
CONV_TILES(f64)
CONV_TILES(u8)
CONV_TILES(u32)
