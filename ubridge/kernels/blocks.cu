// Weights of ggml's blocks, every format alike: their elements in each type of floats, and their
// products with vectors of f32. What Candle has of this, and products with Q8_1, quantized.cu has
// under Candle's names. Blocks lie at a multiple of the alignment of their struct.
#include "block_products.h"
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
