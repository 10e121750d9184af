"""Folders of tiny models, written here from drawn weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ubridge as ub
from tests.ubridge.models.cases import Array, drawn
from tests.ubridge.models.judging import SEED, kept


def known(case: str) -> tuple[dict[str, Any], dict[str, Array], Array]:
    """Return the configuration, the weights and transformers' logits of a stored case."""
    told, logits = kept(case)
    is_gemma = told["config"]["model_type"].startswith("gemma")
    weights = {}
    for name, shape in told["shapes"].items():
        values = drawn(name, tuple(shape), SEED)
        weights[name] = values - 1 if is_gemma and "norm" in name else values
    return told["config"], weights, logits


def written(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Array]) -> Path:
    """Write a model's folder in Hugging Face's layout; return it."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ub.save(folder / "model.safetensors", dict(weights), metadata={"format": "pt"})
    return folder


def shapes_of(case: str, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a model that transformers lacks, with the names in its files."""
    if case == "chatglm":
        heads, groups = config["num_attention_heads"], config["multi_query_group_num"]
        wide, inner, width = config["hidden_size"], config["ffn_hidden_size"], config["kv_channels"]
        rows = (heads + 2 * groups) * width
        stem, tokens = "transformer", (config["padded_vocab_size"], wide)
        found: dict[str, tuple[int, ...]] = {
            f"{stem}.embedding.word_embeddings.weight": tokens,
            f"{stem}.encoder.final_layernorm.weight": (wide,),
            f"{stem}.output_layer.weight": tokens,
        }
        for layer in range(config["num_layers"]):
            own = f"{stem}.encoder.layers.{layer}"
            found |= {
                f"{own}.input_layernorm.weight": (wide,),
                f"{own}.self_attention.query_key_value.weight": (rows, wide),
                f"{own}.self_attention.query_key_value.bias": (rows,),
                f"{own}.self_attention.dense.weight": (wide, heads * width),
                f"{own}.post_attention_layernorm.weight": (wide,),
                f"{own}.mlp.dense_h_to_4h.weight": (2 * inner, wide),
                f"{own}.mlp.dense_4h_to_h.weight": (wide, inner),
            }
        return found
    wide, inner, width = config["hidden_size"], config["intermediate_size"], config["head_size"]
    found = {"rwkv.embeddings.weight": (config["vocab_size"], wide)}
    found["head.weight"] = found["rwkv.embeddings.weight"]
    norms = ["rwkv.ln_out", "rwkv.blocks.0.pre_ln"]
    for layer in range(config["num_hidden_layers"]):
        own = f"rwkv.blocks.{layer}"
        norms += [f"{own}.ln1", f"{own}.ln2", f"{own}.attention.ln_x"]
        for name in ("key", "value", "receptance", "gate"):
            found[f"{own}.attention.time_mix_{name}"] = (1, 1, wide)
            found[f"{own}.attention.{name}.weight"] = (wide, wide)
        for name in ("time_decay", "time_faaaa"):
            found[f"{own}.attention.{name}"] = (wide // width, width)
        found[f"{own}.attention.output.weight"] = (wide, wide)
        for name in ("key", "receptance"):
            found[f"{own}.feed_forward.time_mix_{name}"] = (1, 1, wide)
        found[f"{own}.feed_forward.key.weight"] = (inner, wide)
        found[f"{own}.feed_forward.receptance.weight"] = (wide, wide)
        found[f"{own}.feed_forward.value.weight"] = (wide, inner)
    return found | {f"{one}.{kind}": (wide,) for one in norms for kind in ("weight", "bias")}
