// Weights of ggml's blocks, all formats: their elements in each float type, and their products with
// vectors of f32. quantized.cu has Candle's kernels under Candle's names, with products of
// Candle's formats by Q8_1. This file has products of the other formats by Q8_1. Blocks lie at a
// multiple of the alignment of their struct.
#include "block_products_q8_1.h"
#include "codebook_blocks.h"

#define ELEMENTS_AS(format, T, Block)                                                              \
    KERNEL(dequantize_##format##_##T, (u64 numel, const void *blocks, T *out))                     \
    {                                                                                              \
        GRID_STRIDE(i, numel / PIECE)                                                              \
        decode<Block>(blocks, out, i * PIECE, (i + 1) * PIECE, 0, 1);                              \
    }
#define ELEMENTS(format, Block)                                                                    \
    ELEMENTS_AS(format, f32, Block)                                                                \
    ELEMENTS_AS(format, f16, Block)                                                                \
    ELEMENTS_AS(format, bf16, Block)

FORMATS_OF_CANDLE(ELEMENTS)
FORMATS_BESIDE(ELEMENTS)

#define NAMED_PRODUCT(format, Block) PRODUCT(matvec_##format, Block)

FORMATS_OF_CANDLE(NAMED_PRODUCT)
FORMATS_BESIDE(NAMED_PRODUCT)

// Blocks of (32, 4) as in Candle; the grid's x counts rows, y vectors of Q8_1.
#define PRODUCT_Q8_1(format, Block)                                                                \
    KERNEL_BOUNDED(product_##format, 128,                                                          \
                   (const void *vx, const void *vy, f32 *dst, i32 ncols, i32 nrows))               \
    {                                                                                              \
        const u64 y_blocks = u32(ncols) / 32, vector = blockIdx.y;                                 \
        multiply_q8_1<Block, Sums::of_integers, 1, 1>(                                             \
            THIS_BLOCK, static_cast<const Block *>(vx),                                            \
            static_cast<const BlockQ8_1 *>(vy) + vector * y_blocks, dst + vector * u32(nrows),     \
            blockIdx.x, u32(ncols), u32(nrows), y_blocks, u32(nrows));                             \
    }

FORMATS_BESIDE(PRODUCT_Q8_1)
