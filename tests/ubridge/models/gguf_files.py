"""GGUF files of tiny models, written with the names and the writer of the `gguf` package.

This module changes the data like llama.cpp's converter. It reorders rows of llama's queries and
keys, adds 1 to Gemma's norms, splits Falcon's groups, and joins experts in one tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.ubridge.models.cases import Array
from ubridge.quantized import quantize

ARCHITECTURES = {
    **{"llama": "LLAMA", "mistral": "LLAMA", "mixtral": "LLAMA", "qwen2": "QWEN2"},
    **{"qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "phi": "PHI2", "phi3": "PHI3"},
    **{"stablelm": "STABLELM", "gpt_bigcode": "STARCODER", "starcoder2": "STARCODER2"},
    **{"falcon": "FALCON", "chatglm": "CHATGLM", "glm4": "GLM4", "gemma": "GEMMA"},
    "gemma2": "GEMMA2",
}
Choice = Callable[[str, Array], str]
"""Function that chooses the GGUF type of a tensor by its name and values."""


def all_of(kind: str) -> Choice:
    """Store matrices in one type, everything else in F32."""
    return lambda name, values: kind if values.ndim > 1 and "norm" not in name else "F32"


def q4_k_m(layers: int) -> Choice:
    """llama.cpp's mixture of Q4_K and Q6_K."""

    def more(layer: int) -> bool:
        eighth = layers // 8
        return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2

    def choice(name: str, values: Array) -> str:
        if values.ndim < 2 or "norm" in name or "position" in name:
            return "F32"
        match = re.match(r"blk\.(\d+)\.(ffn_down|attn_v)\.", name)
        finer = name == "output.weight" or (match and more(int(match[1])))
        return "Q6_K" if finer else "Q4_K"

    return choice


def written_gguf(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, Array], choice: Choice
) -> Path:
    """Write a GGUF file of a model's weights; return it."""
    kind = config["model_type"]
    arch = getattr(gguf.MODEL_ARCH, ARCHITECTURES[kind])
    layers = config.get("num_hidden_layers") or config.get("n_layer") or config["num_layers"]
    names = gguf.get_tensor_name_map(arch, layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _describe(writer, config, layers)
    suffixes = (".weight", ".bias")
    for name, values in _stacked(weights).items():
        found = names.get_name(name.removeprefix("transformer.encoder."), suffixes)
        found = found or names.get_name(name.removeprefix("transformer."), suffixes)
        found = found or names.get_name(name, suffixes)
        assert found is not None, name
        if kind == "falcon" and name.endswith("post_attention_layernorm.weight"):
            raise AssertionError("llama.cpp has no such Falcon")
        _add(writer, found, _converted(kind, config, name, values), choice)
    for name, values in _factors(config).items():
        writer.add_tensor(name, np.asarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, name: str, values: Array, choice: Choice) -> None:
    kind = choice(name, values)
    values = np.ascontiguousarray(values, np.float32)
    if kind == "F32":
        writer.add_tensor(name, values)
    elif kind in ("F16", "BF16"):
        raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    else:
        # The package itself cannot quantize to K formats.
        blocks = quantize(values, kind.lower() if kind == "Q8_0" else f"q{kind[1]}_K")
        shape = (*values.shape[:-1], blocks.size // values[..., 0].size)
        writer.add_tensor(name, blocks.reshape(shape), raw_dtype=gguf.GGMLQuantizationType[kind])


def _stacked(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Stack the experts, and the norms of heads, in one tensor each."""
    found: dict[str, Array] = {}
    several: dict[str, dict[int, Array]] = {}
    for name, values in weights.items():
        match = re.match(r"(.*\.experts|.*layernorm\.norms)\.(\d+)(\..*)?$", name)
        if match is None:
            found[name] = values
            continue
        stem = match[1].removesuffix(".norms") + match[3]
        several.setdefault(stem, {})[int(match[2])] = values
    found |= {
        name: np.stack([parts[one] for one in sorted(parts)]) for name, parts in several.items()
    }
    return found


def _converted(kind: str, config: Mapping[str, Any], name: str, values: Array) -> Array:
    heads = config.get("num_attention_heads") or config.get("n_head")
    if kind in ("llama", "mistral", "mixtral") and re.search(r"self_attn\.[qk]_proj", name):
        count = heads if ".q_proj" in name else config.get("num_key_value_heads") or heads
        split = values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
        return split.swapaxes(1, 2).reshape(values.shape)
    if kind.startswith("gemma") and "norm" in name:
        return values + 1
    if kind == "falcon" and "query_key_value" in name:
        groups = (
            config["num_kv_heads"]
            if config["new_decoder_architecture"]
            else (1 if config["multi_query"] else heads)
        )
        each = heads // groups
        split = values.reshape(groups, each + 2, -1, *values.shape[1:])
        parts = split[:, :each], split[:, each], split[:, each + 1]
        return np.concatenate([one.reshape(-1, *values.shape[1:]) for one in parts])
    return values


def _describe(writer: Any, config: Mapping[str, Any], layers: int) -> None:
    def said(*names: str) -> Any:
        return next((config[one] for one in names if config.get(one) is not None), None)

    hidden, heads = said("hidden_size", "n_embd"), said("num_attention_heads", "n_head")
    width = said("head_dim", "kv_channels") or hidden // heads
    kv_heads = said("num_key_value_heads", "multi_query_group_num") or heads
    if config["model_type"] == "gpt_bigcode":
        kv_heads = 1
    elif config["model_type"] == "falcon":
        kv_heads = config["num_kv_heads"] if config["new_decoder_architecture"] else 1
    writer.add_block_count(layers)
    writer.add_context_length(said("max_position_embeddings", "n_positions", "seq_length"))
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(said("intermediate_size", "n_inner", "ffn_hidden_size"))
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    epsilon = said("rms_norm_eps")
    if epsilon is not None or config["model_type"] == "chatglm":
        writer.add_layer_norm_rms_eps(epsilon or config["layernorm_epsilon"])
    else:
        writer.add_layer_norm_eps(said("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"))
    rope = config.get("rope_parameters") or {}
    share = rope.get("partial_rotary_factor", 0.5 if config["model_type"] == "chatglm" else 1)
    writer.add_rope_dimension_count(int(width * share))
    writer.add_rope_freq_base(rope.get("rope_theta", 1e4) * config.get("rope_ratio", 1))
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "longrope":
        trained = rope["original_max_position_embeddings"]
        stretch = config["max_position_embeddings"] / trained
        writer.add_rope_scaling_orig_ctx_len(trained)
        factor = np.sqrt(1 + np.log(stretch) / np.log(trained))
        writer.add_rope_scaling_attn_factors(float(factor))
    if config.get("sliding_window") and config["model_type"] in ("gemma2", "phi3"):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    experts = said("num_local_experts", "num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if config.get("moe_intermediate_size"):
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config["model_type"] == "stablelm":
        writer.add_parallel_residual(bool(config.get("use_parallel_residual")))
    writer.add_vocab_size(said("vocab_size", "padded_vocab_size"))
    writer.add_tokenizer_model("none")
    writer.add_eos_token_id(2)


def _factors(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of factors that divide the rotation step of each pair."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        return {
            "rope_factors_long.weight": rope["long_factor"],
            "rope_factors_short.weight": rope["short_factor"],
        }
    if rope.get("rope_type") != "llama3":
        return {}
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    factors = []
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    trained = rope["original_max_position_embeddings"]
    for pair in range(width // 2):
        wave = 2 * np.pi * rope["rope_theta"] ** (2 * pair / width)
        smooth = np.clip((trained / wave - low) / (high - low), 0, 1)
        factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return {"rope_freqs.weight": factors}
