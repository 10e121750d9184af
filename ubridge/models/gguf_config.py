"""What the metadata of a GGUF file says, in the words of a `config.json`.

Keys are those of llama.cpp's `gguf-py/gguf/constants.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import ubridge as ub
from uhal.errors import NotSupportedError

_FIELDS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "use_parallel_residual": "use_parallel_residual",
}
_SCALINGS = {"none": "default", "linear": "linear", "yarn": "yarn", "longrope": "longrope"}
_ENDS = ("eos", "eot", "eom")
"""Tokens that end a text, a turn, a message."""


def config_of_gguf(weights: ub.Weights, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration, and fields of `Architecture` that the tensors decide."""
    told = weights.metadata
    config: dict[str, Any] = {}
    for key, name in _FIELDS.items():
        value = told.get(f"{kind}.{key}")
        if value is not None:
            config[name] = _of_all_layers(f"{kind}.{key}", value)
    names = weights.entries
    config["vocab_size"] = (
        names["token_embd.weight"].shape[0] if "token_embd.weight" in names else 0
    )
    heads = config.get("num_attention_heads") or 1
    config.setdefault("head_dim", config.get("hidden_size", 0) // heads)
    turned = told.get(f"{kind}.rope.dimension_count")
    if turned is not None and config["head_dim"]:
        config["partial_rotary_factor"] = turned / config["head_dim"]
    config["rope_parameters"] = _rope(weights, kind)
    config["eos_token_id"] = [
        one for end in _ENDS if (one := told.get(f"tokenizer.ggml.{end}_token_id")) is not None
    ]
    config["norm_topk_prob"] = True  # llama.cpp knows no other kind
    if kind == "falcon":
        config["new_decoder_architecture"] = "blk.0.attn_norm_2.weight" in names
    if kind in ("stablelm", "phi2"):
        config["qk_layernorm"] = "blk.0.attn_q_norm.weight" in names
        config["use_parallel_residual"] = "blk.0.ffn_norm.weight" not in names
    return config, _axes(weights, kind)


def _axes(weights: ub.Weights, kind: str) -> dict[str, Any]:
    """What the tensors' names tell: a head, joined queries, biases."""
    names = weights.entries
    axes: dict[str, Any] = {"is_tied": "output.weight" not in names}
    joined = "blk.0.attn_qkv.weight" in names
    axes["qkv"] = "rows" if joined else "separate"
    parts = {"qkv": "attn_qkv" if joined else "attn_q", "output": "attn_output", "mlp": "ffn_down"}
    biases = {part for part, name in parts.items() if f"blk.0.{name}.bias" in names}
    axes["biases"] = frozenset(biases | ({"head"} if "output.bias" in names else set()))
    if kind == "gemma2":
        width = weights.metadata.get(f"{kind}.attention.key_length", 256)
        layers = weights.metadata.get(f"{kind}.block_count", 0)
        # Of 27b the scale is that of E / H, as llama.cpp has it, too.
        heads = weights.metadata.get(f"{kind}.attention.head_count", 1)
        hidden = weights.metadata.get(f"{kind}.embedding_length", 0)
        axes["scale"] = (hidden / heads if layers == 46 else width) ** -0.5
    return axes


def _rope(weights: ub.Weights, kind: str) -> dict[str, Any]:
    told = weights.metadata
    scaling = str(told.get(f"{kind}.rope.scaling.type", "none"))
    if scaling not in _SCALINGS:
        raise NotSupportedError(
            f"{kind}.rope.scaling.type: expected one of {', '.join(_SCALINGS)}, got {scaling!r}"
        )
    found: dict[str, Any] = {"rope_type": _SCALINGS[scaling]}
    for key, name in (
        ("factor", "factor"),
        ("attn_factor", "attention_factor"),
        ("original_context_length", "original_max_position_embeddings"),
    ):
        value = told.get(f"{kind}.rope.scaling.{key}")
        if value is not None:
            found[name] = value
    if "rope_freqs.weight" in weights:
        found |= {"rope_type": "divided", "short_factor": _numbers(weights, "rope_freqs.weight")}
    if "rope_factors_long.weight" in weights:
        found["rope_type"] = "longrope"
        for name in ("short", "long"):
            found[f"{name}_factor"] = _numbers(weights, f"rope_factors_{name}.weight")
    return found


def _numbers(weights: ub.Weights, name: str) -> list[float]:
    return [float(one) for one in np.frombuffer(weights.raw(name), np.float32)]


def _of_all_layers(key: str, value: Any) -> Any:
    """One number where a file has one for each layer."""
    several = getattr(value, "tolist", lambda: value)()
    if not isinstance(several, list):
        return several
    if len(set(several)) != 1:
        raise NotSupportedError(f"{key}: expected the same for all layers, got {several}")
    return several[0]
