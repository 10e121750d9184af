"""Tiny configurations of each row's variants, and their random weights.

The seed of a weight is the tensor's name, so transformers and the tests write equal weights.
Weights are large enough that every omitted tensor changes the logits: norms are 1 ± 0.5, biases are
not 0, scores deviate by 1 to 2.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TOKENS = 64
VOCABULARY = 97

_BASE = {
    **{
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "vocab_size": VOCABULARY,
    },
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
_BIGCODE = {
    **{"n_embd": 64, "n_inner": 96, "n_layer": 2, "n_head": 4, "n_positions": 128},
    **{"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2},
}
_FALCON = {**_BASE, "num_key_value_heads": None, "ffn_hidden_size": 160}
del _FALCON["num_key_value_heads"], _FALCON["intermediate_size"]


def _scaled(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("llama", _BASE),
    "llama_tied": ("llama", {**_BASE, "tie_word_embeddings": True}),
    "llama_biased": ("llama", {**_BASE, "attention_bias": True, "mlp_bias": True}),
    "llama_wide": ("llama", {**_BASE, "head_dim": 24}),
    "llama31": (
        "llama",
        {
            **_BASE,
            **_scaled(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        },
    ),
    "llama_linear": ("llama", {**_BASE, **_scaled("linear", factor=2.5)}),
    "llama_dynamic": (
        "llama",
        {**_BASE, "max_position_embeddings": 40, **_scaled("dynamic", factor=2.0)},
    ),
    "llama_yarn": (
        "llama",
        {**_BASE, **_scaled("yarn", factor=4.0, original_max_position_embeddings=32)},
    ),
    "yi": (
        "llama",
        {
            **_BASE,
            "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
        },
    ),
    "mistral01": ("mistral", {**_BASE, "sliding_window": 20}),
    "mistral02": (
        "mistral",
        {
            **_BASE,
            "sliding_window": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    "phi": ("phi", {**_BASE, "num_key_value_heads": 4}),
    "phi_qk": (
        "phi",
        {
            **_BASE,
            "num_key_value_heads": 4,
            "qk_layernorm": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.4,
            },
        },
    ),
    "phi3": ("phi3", {**_BASE, "sliding_window": 31}),
    "phi3_long": (
        "phi3",
        {
            **_BASE,
            "original_max_position_embeddings": 32,
            **_scaled(
                "longrope",
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
                original_max_position_embeddings=32,
            ),
        },
    ),
    "stablelm1": ("stablelm", {**_BASE, "num_key_value_heads": 4}),
    "stablelm2": ("stablelm", {**_BASE, "use_qkv_bias": True}),
    "stablelm12b": (
        "stablelm",
        {**_BASE, "qk_layernorm": True, "use_parallel_residual": True, "intermediate_size": 80},
    ),
    "gpt_bigcode": ("gpt_bigcode", _BIGCODE),
    "gpt_bigcode_mha": ("gpt_bigcode", {**_BIGCODE, "multi_query": False}),
    "starcoder2": ("starcoder2", {**_BASE, "sliding_window": 24}),
    "glm": ("glm", {**_BASE, "head_dim": 16}),
    "glm4": ("glm4", {**_BASE, "head_dim": 16}),
    "qwen2": ("qwen2", _BASE),
    "qwen2_windows": (
        "qwen2",
        {**_BASE, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {**_BASE, "head_dim": 24, "tie_word_embeddings": True}),
    "falcon7b": ("falcon", _FALCON),
    "falcon40b": ("falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon11b": (
        "falcon",
        {
            **_FALCON,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": False,
        },
    ),
    "falcon_rw": (
        "falcon",
        {
            **_FALCON,
            "hidden_size": 96,
            "num_attention_heads": 6,
            "alibi": True,
            "bias": True,
            "multi_query": False,
            "parallel_attn": False,
        },
    ),
    "gemma": ("gemma", {**_BASE, "head_dim": 24, "num_key_value_heads": 1}),
    "gemma2": (
        "gemma2",
        {
            **_BASE,
            "head_dim": 24,
            "query_pre_attn_scalar": 20,
            "sliding_window": 16,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 60.0,
        },
    ),
    "mixtral": ("mixtral", {**_BASE, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "qwen3_moe",
        {
            **_BASE,
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "norm_topk_prob": False,
            "mlp_only_layers": [0],
        },
    ),
}
"""Each case's `model_type` and the settings of its configuration."""


EQUATIONS: Mapping[str, Mapping[str, Any]] = {
    "chatglm": {
        **{"model_type": "chatglm", "num_layers": 2, "padded_vocab_size": VOCABULARY},
        **{"hidden_size": 64, "ffn_hidden_size": 96, "kv_channels": 16, "num_attention_heads": 4},
        **{"multi_query_group_num": 2, "seq_length": 128, "layernorm_epsilon": 1e-5},
        **{"add_qkv_bias": True, "rmsnorm": True, "rope_ratio": 3, "eos_token_id": 2},
    },
    "rwkv5": {
        **{"model_type": "rwkv5", "vocab_size": VOCABULARY, "hidden_size": 64, "head_size": 16},
        **{"num_hidden_layers": 2, "attention_hidden_size": 64, "intermediate_size": 96},
        **{"layer_norm_epsilon": 1e-5, "rescale_every": 6, "eos_token_id": 0},
    },
}
"""Models that transformers does not have; `equations.py` is their reference."""


def drawn(name: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return the tensor of a name, f32."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    stem, _, kind = name.rpartition(".")
    last = stem.rpartition(".")[2]
    if kind == "time_decay":
        return rng.uniform(-3, 0.5, shape).astype(np.float32)
    if kind.startswith("time_mix"):
        return rng.uniform(0, 1, shape).astype(np.float32)
    if kind == "bias":
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)
    if len(shape) == 1 or "norm" in last or last.startswith("ln"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    is_table = "embed" in last or last in ("wte", "wpe")
    spread = 1.0 if is_table or kind.startswith("time_") else 1.25 / np.sqrt(shape[-1])
    return (spread * rng.standard_normal(shape)).astype(np.float32)


def prompt(seed: int, tokens: int = TOKENS) -> list[int]:
    """Return random tokens."""
    rng = np.random.default_rng([seed, 7])
    return [int(one) for one in rng.integers(0, VOCABULARY, tokens)]
