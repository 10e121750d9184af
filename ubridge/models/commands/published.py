"""Configurations of published models, for commands that get only weights.

Candle's example programs contain them. Sizes come from each model's own `config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _sizes(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, context: int
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
    }


_MISTRAL = {
    "model_type": "mistral",
    **_sizes(4096, 14336, 32, 32, 8, 32000, 32768),
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
_MISTRAL_1 = {**_MISTRAL, "rope_theta": 1e4, "sliding_window": 4096}
_MISTRAL_2 = {**_MISTRAL, "rope_theta": 1e6, "sliding_window": None}
_YI = {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 5e6}
_PHI = {"model_type": "phi", "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}
_STABLE_LM = {"model_type": "stablelm", "partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5}
_STABLE_LM_1 = {**_STABLE_LM, **_sizes(2560, 6912, 32, 32, 32, 50304, 4096)}
_STABLE_LM_2 = {
    **_STABLE_LM,
    **_sizes(2048, 5632, 24, 32, 32, 100352, 4096),
    "use_qkv_bias": True,
}
_PHI_1 = {**_PHI, **_sizes(2048, 8192, 24, 32, 32, 51200, 2048), "partial_rotary_factor": 0.5}

PUBLISHED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "mistral": {
        "7b-v0.1": _MISTRAL_1,
        "7b-instruct-v0.1": _MISTRAL_1,
        "7b-v0.2": _MISTRAL_2,
        "7b-instruct-v0.2": _MISTRAL_2,
    },
    "yi": {
        "6b": {**_YI, **_sizes(4096, 11008, 32, 32, 4, 64000, 4096)},
        "34b": {**_YI, **_sizes(7168, 20480, 60, 56, 8, 64000, 4096)},
    },
    "phi": {
        "2": {
            **_PHI,
            **_sizes(2560, 10240, 32, 32, 32, 51200, 2048),
            "partial_rotary_factor": 0.4,
        },
        "1": _PHI_1,
        "1.5": _PHI_1,
    },
    "stable-lm": {
        **dict.fromkeys(("v1-zephyr", "v1", "v1-orig"), _STABLE_LM_1),
        **dict.fromkeys(("v2-zephyr", "v2"), _STABLE_LM_2),
    },
    "bigcode": {
        "1b": {
            "model_type": "gpt_bigcode",
            "n_embd": 2048,
            "n_inner": 8192,
            "n_layer": 24,
            "n_head": 16,
            "n_positions": 8192,
            "vocab_size": 49152,
            "multi_query": True,
            "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_pytorch_tanh",
        },
    },
}
"""Published models by command, then by the value of `--which` or `--model`; the first is the
default."""
