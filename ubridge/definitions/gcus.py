"""Operations with kernels only on GCUs."""

from __future__ import annotations

from ubridge.core.operation import Family, define

QUANTIZED = Family("quantized_matmul", "x y scales zeros", "(…, rows of x, columns of y)")
MATMUL_4BIT = define("matmul_4bit", QUANTIZED, "4bit", "", "product with a weight of 4 bits")
MATMUL_8BIT = define("matmul_8bit", QUANTIZED, "8bit", "", "product with a weight of 8 bits")
ROTATION = Family(
    "rotary", "query key angles positions", "query and key, in place", is_in_place=True
)
ROTARY = define("rotary", ROTATION, "rope", "", "queries and keys rotated in place")
ROTARY_F32 = define("rotary_f32", ROTATION, "rope_f32", "", "the same by angles of f32")
DEQUANTIZE_Q8_0 = define(
    "dequantize_q8_0",
    Family("dequantize", "blocks", "one axis"),
    "dequantize_block_q8_0",
    "",
    "elements of blocks",
)
QUANTIZE_Q8_0 = define(
    "quantize_q8_0",
    Family("quantize", "x", "blocks"),
    "quantize_block_q8_0",
    "",
    "blocks of elements",
)
RESHAPE_AND_CACHE = define(
    "reshape_and_cache",
    Family("cache", "key value caches slots", "the caches, in place", is_in_place=True),
    "reshape_and_cache",
    "",
    "keys and values kept",
)
PAGED_ATTENTION_V1 = define(
    "paged_attention_v1",
    Family("paged_attention_v1", "query caches tables lengths", "shape of query"),
    "paged_attention_v1",
    "",
    "attention of one token over kept keys and values",
)
