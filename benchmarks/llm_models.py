"""The models of `benchmarks/llm.py`: shapes, and GGUF files of random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CONTEXT = 1024
TOKENS_TOGETHER = 32
"""Tokens that each of several texts writes, together with the others."""


@dataclass(frozen=True)
class Shape:
    """A LLaMA."""

    embedding: int
    inner: int
    heads: int
    kv_heads: int
    layers: int
    vocabulary: int

    @property
    def width(self) -> int:
        """Number of elements of a head."""
        return self.embedding // self.heads

    def cache_bytes(self, itemsize: int) -> int:
        """Bytes of keys and values for `CONTEXT` tokens."""
        return 2 * CONTEXT * self.layers * self.kv_heads * self.width * itemsize


SHAPES: Mapping[str, Shape] = {
    "1.1B": Shape(2048, 5632, 32, 4, 22, 32000),
    "22M": Shape(512, 1536, 8, 8, 4, 8192),
}
"""TinyLlama's shape, and a shape whose step takes less than a millisecond."""
KINDS = ("Q4_K_M", "Q8_0", "BF16")
_FORMATS = {"Q4_K_M": "q4_K", "Q8_0": "q8_0", "BF16": None}


def made(path: Path, kind: str, shape: Shape) -> Path:
    """Write a model unless its file exists. Layers share weights, which are drawn once.

    A token still reads as many bytes as with different weights: each layer has its own bytes.
    """
    import ubridge as ub
    from uhal import Device

    if path.exists():
        return path
    rng = np.random.default_rng(1)
    kept: dict[tuple[int, int, str | None], Any] = {}

    def matrix(rows: int, columns: int, is_finer: bool = False) -> Any:
        format = "q6_K" if is_finer and kind == "Q4_K_M" else _FORMATS[kind]
        key = (rows, columns, format)
        if key not in kept:
            values = rng.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
            kept[key] = (
                ub.QuantizedWeight.from_numpy(values, format)
                if format
                else ub.asarray(values).astype("bf16")
            )
        return kept[key]

    with Device(0, backend="host"):
        ones = np.ones(shape.embedding, np.float32)
        of_keys = shape.kv_heads * shape.width
        tensors: dict[str, Any] = {
            "token_embd.weight": matrix(shape.vocabulary, shape.embedding),
            "output.weight": matrix(shape.vocabulary, shape.embedding, True),
            "output_norm.weight": ones,
        }
        for layer in range(shape.layers):
            is_finer = _is_finer(layer, shape.layers)
            own = {
                "attn_q": matrix(shape.embedding, shape.embedding),
                "attn_k": matrix(of_keys, shape.embedding),
                "attn_v": matrix(of_keys, shape.embedding, is_finer),
                "attn_output": matrix(shape.embedding, shape.embedding),
                "ffn_gate": matrix(shape.inner, shape.embedding),
                "ffn_up": matrix(shape.inner, shape.embedding),
                "ffn_down": matrix(shape.embedding, shape.inner, is_finer),
                **{"attn_norm": ones, "ffn_norm": ones},
            }
            tensors |= {f"blk.{layer}.{name}.weight": weight for name, weight in own.items()}
        ub.save(path, tensors, metadata=_metadata(shape))
    return path


def _is_finer(layer: int, layers: int) -> bool:
    """Whether Q4_K_M has Q6_K for some matrices of a layer: `use_more_bits` of llama.cpp."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _metadata(shape: Shape) -> dict[str, Any]:
    numbers = {
        **{"block_count": shape.layers, "context_length": CONTEXT},
        **{"embedding_length": shape.embedding, "feed_forward_length": shape.inner},
        **{"attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads},
        **{"rope.dimension_count": shape.width, "vocab_size": shape.vocabulary},
    }
    return {
        "general.architecture": "llama",
        **{f"llama.{key}": np.uint32(value) for key, value in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "tokenizer.ggml.model": "none",
    }
