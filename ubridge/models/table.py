"""The table of architectures: one row each, of which everything about a model is read.

A row says what `config.json` need not say, what its flags change, and how the tensors are called.
`docs/guide/adding-a-model.md` shows how to add one. Facts are those of each model's own code in
transformers; GGUF names are those of llama.cpp's converter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ubridge.models.architecture import Architecture, Experts
from ubridge.models.positions import Rope
from uhal.errors import ArgumentValueError, NotSupportedError

PAGE = "docs/guide/adding-a-model.md"
Config = Mapping[str, Any]
"""A `config.json`, or the metadata of a GGUF file in its words."""
Axes = dict[str, Any]
"""Fields of `Architecture`."""


@dataclass(frozen=True)
class Row:
    """What is special about one architecture."""

    gguf: str
    """Its `general.architecture` in GGUF files; empty where llama.cpp has none."""
    names: Mapping[str, str]
    """What its tensors are called in safetensors, by part; the file has one of several names."""
    axes: Axes = field(default_factory=dict)
    """Fields of `Architecture` that are always so."""
    flags: Callable[[Config], Axes] = lambda config: {}
    """Fields that its `config.json` decides."""
    partial: float = 1.0
    """The share of a head that turns, where the file says none."""
    gguf_names: Mapping[str, str] = field(default_factory=dict)
    """Parts that are called otherwise than in most GGUF files."""
    gguf_axes: Axes = field(default_factory=dict)
    """Fields that a converter to GGUF changed."""


# -- names of tensors ----------------------------------------------------------------------------

_LLAMA = {
    **{"layer": "model.layers.{}.", "embedding": "model.embed_tokens", "norm": "model.norm"},
    **{"head": "lm_head", "attention_norm": "input_layernorm", "q": "self_attn.q_proj"},
    **{"k": "self_attn.k_proj", "v": "self_attn.v_proj", "qkv": "self_attn.qkv_proj"},
    **{"output": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"},
    **{"mlp_norm": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj"},
    **{"gate_up": "mlp.gate_up_proj", "down": "mlp.down_proj", "router": "mlp.gate"},
    **{"expert_gate": "mlp.experts.{}.gate_proj", "expert_up": "mlp.experts.{}.up_proj"},
    **{"expert_down": "mlp.experts.{}.down_proj", "experts": "mlp.experts"},
}
_MIXTRAL = {
    **_LLAMA,
    **{"router": "block_sparse_moe.gate mlp.gate", "expert_gate": "block_sparse_moe.experts.{}.w1"},
    **{"expert_up": "block_sparse_moe.experts.{}.w3"},
    **{"expert_down": "block_sparse_moe.experts.{}.w2"},
}
_PHI = {
    **{**_LLAMA, "norm": "model.final_layernorm", "output": "self_attn.dense"},
    **{"up": "mlp.fc1", "down": "mlp.fc2"},
    **{"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
}
_STABLELM = {
    **_LLAMA,
    **{"q_norm": "self_attn.q_layernorm.norms.{}", "k_norm": "self_attn.k_layernorm.norms.{}"},
}
_BIGCODE = {
    **{"layer": "transformer.h.{}.", "embedding": "transformer.wte"},
    **{"positions": "transformer.wpe", "norm": "transformer.ln_f", "head": "lm_head"},
    **{"attention_norm": "ln_1", "qkv": "attn.c_attn", "output": "attn.c_proj"},
    **{"mlp_norm": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj"},
}
_FALCON = {
    **{"layer": "transformer.h.{}.", "embedding": "transformer.word_embeddings"},
    **{"norm": "transformer.ln_f", "head": "lm_head"},
    **{"attention_norm": "input_layernorm ln_attn", "mlp_norm": "post_attention_layernorm ln_mlp"},
    **{"qkv": "self_attention.query_key_value", "output": "self_attention.dense"},
    **{"up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"},
}
_CHATGLM = {
    **{"layer": "transformer.encoder.layers.{}."},
    **{"embedding": "transformer.embedding.word_embeddings"},
    **{"norm": "transformer.encoder.final_layernorm", "head": "transformer.output_layer"},
    **{"attention_norm": "input_layernorm", "qkv": "self_attention.query_key_value"},
    **{"output": "self_attention.dense", "mlp_norm": "post_attention_layernorm"},
    **{"gate_up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"},
}
_GEMMA2 = {
    **{**_LLAMA, "attention_after": "post_attention_layernorm"},
    **{"mlp_norm": "pre_feedforward_layernorm", "mlp_after": "post_feedforward_layernorm"},
}
_GLM4 = {
    **{**_LLAMA, "attention_after": "post_self_attn_layernorm"},
    **{"mlp_after": "post_mlp_layernorm"},
}
GGUF_NAMES = {
    **{"layer": "blk.{}.", "embedding": "token_embd", "positions": "position_embd"},
    **{"norm": "output_norm", "head": "output", "attention_norm": "attn_norm", "q": "attn_q"},
    **{"k": "attn_k", "v": "attn_v", "qkv": "attn_qkv", "output": "attn_output"},
    **{"q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "mlp_norm": "ffn_norm"},
    **{"attention_after": "post_attention_norm", "mlp_after": "post_ffw_norm"},
    **{"gate": "ffn_gate", "up": "ffn_up", "gate_up": "ffn_up", "down": "ffn_down"},
    **{"router": "ffn_gate_inp", "expert_gate": "ffn_gate_exps", "expert_up": "ffn_up_exps"},
    **{"expert_down": "ffn_down_exps"},
}
"""What most GGUF files call them."""


# -- what flags change ---------------------------------------------------------------------------


def _biased(**kinds: str) -> Callable[[Config], Axes]:
    """Biases by flags: `attention_bias="qkv output"`."""

    def flags(config: Config) -> Axes:
        chosen = [kinds[name].split() for name in kinds if config.get(name)]
        return {"biases": frozenset(one for group in chosen for one in group)}

    return flags


def _stablelm(config: Config) -> Axes:
    parallel = bool(config.get("use_parallel_residual"))
    return {
        "biases": frozenset({"qkv"} if config.get("use_qkv_bias") else ()),
        "qk_norm": "heads" if config.get("qk_layernorm") else "",
        "residual": "parallel" if parallel else "sequential",
        "norms": 1 if parallel else 2,
    }


def _bigcode(config: Config) -> Axes:
    several = not config.get("multi_query", True)
    return {
        "kv_heads": config["num_attention_heads"] if several else 1,
        "qkv": "groups" if several else "rows",
        "scale": 0.0 if config.get("scale_attn_weights", True) else 1.0,
    }


def _falcon(config: Config) -> Axes:
    newer = bool(config.get("new_decoder_architecture"))
    parallel = newer or config.get("parallel_attn", True)
    one_kv = not newer and config.get("multi_query", True)
    both = newer and (config.get("num_ln_in_parallel_attn") or 2) == 2
    return {
        "kv_heads": 1 if one_kv else config.get("num_key_value_heads") or
        config["num_attention_heads"],
        "residual": "parallel" if parallel else "sequential",
        "norms": 2 if both or not parallel else 1,
        "alibi": bool(config.get("alibi")),
        "biases": frozenset(("qkv", "output", "mlp") if config.get("bias") else ()),
    }  # fmt: skip


def _phi(config: Config) -> Axes:
    return {"qk_norm": "layer" if config.get("qk_layernorm") else ""}


def _gemma(config: Config) -> Axes:
    # The files of Gemma 1 say gelu and mean its tanh form.
    kind = config.get("hidden_activation") or config.get("hidden_act")
    return {
        "activation": "gelu_pytorch_tanh" if kind in (None, "gelu") else kind,
        "embedding_scale": config["hidden_size"] ** 0.5,
    }


def _gemma2(config: Config) -> Axes:
    layers = config["num_hidden_layers"]
    return {
        **_gemma(config),
        "scale": float(config.get("query_pre_attn_scalar", 256)) ** -0.5,
        "score_cap": config.get("attn_logit_softcapping", 50.0) or 0.0,
        "logit_cap": config.get("final_logit_softcapping", 30.0) or 0.0,
        "windows": _windows(config, [layer % 2 == 0 for layer in range(layers)], 4096),
    }


def _qwen(config: Config) -> Axes:
    first = config.get("max_window_layers", 28)
    late = [layer >= first for layer in range(config["num_hidden_layers"])]
    return {"windows": _windows(config, late, 4096) if config.get("use_sliding_window") else ()}


def _windowed(config: Config, usual: int = 0) -> Axes:
    return {"windows": _windows(config, [True] * config["num_hidden_layers"], usual)}


def _windows(config: Config, usual: list[bool], width: int) -> tuple[int, ...]:
    """Of each layer; `layer_types` wins over what is usual."""
    kinds = config.get("layer_types")
    narrow = usual if kinds is None else [one == "sliding_attention" for one in kinds]
    width = config.get("sliding_window", width) or 0
    return tuple(width if one else 0 for one in narrow) if width else ()


def _experts(config: Config, count: str, inner: str, normalized: bool) -> Axes:
    layers, dense = config["num_hidden_layers"], config.get("mlp_only_layers") or ()
    step = config.get("decoder_sparse_step", 1)
    chosen = (one for one in range(layers) if one not in dense and (one + 1) % step == 0)
    several = config.get(count) or config.get("num_experts") or config["num_local_experts"]
    return {
        "experts": Experts(
            count=several,
            used=config["num_experts_per_tok"],
            inner=config.get(inner) or config["intermediate_size"],
            is_normalized=normalized,
            layers=frozenset(chosen),
        )
    }


def _mixtral(config: Config) -> Axes:
    return {**_windowed(config), **_experts(config, "num_local_experts", "", True)}


def _qwen3_moe(config: Config) -> Axes:
    normalized = bool(config.get("norm_topk_prob"))
    return {
        **_biased(attention_bias="qkv output")(config),
        **_windowed({**config, "sliding_window": None}),
        **_experts(config, "num_experts", "moe_intermediate_size", normalized),
    }


# -- rows ----------------------------------------------------------------------------------------

_ALL = frozenset(("qkv", "output", "mlp"))
_GEMMAS: Axes = {"norm": "rms_plus_one", "is_tied": True, "width": 256, "epsilon": 1e-6}
_GLM: Axes = {"mlp": "fused", "is_interleaved": True, "epsilon": 1.5625e-7}
_PLAIN: Axes = {"norm": "layer", "mlp": "plain", "activation": "gelu_pytorch_tanh"}

ROWS: Mapping[str, Row] = {
    "llama": Row(
        "llama", _LLAMA, {"epsilon": 1e-6},
        _biased(attention_bias="qkv output", mlp_bias="mlp"), gguf_axes={"is_interleaved": True},
    ),
    "mistral": Row(
        "llama", _LLAMA, {"epsilon": 1e-6}, lambda config: _windowed(config, 4096),
        gguf_axes={"is_interleaved": True},
    ),
    "mixtral": Row("llama", _MIXTRAL, {}, _mixtral, gguf_axes={"is_interleaved": True}),
    "qwen2": Row("qwen2", _LLAMA, {"biases": frozenset({"qkv"}), "epsilon": 1e-6}, _qwen),
    "qwen3": Row(
        "qwen3", _LLAMA, {"qk_norm": "rms", "epsilon": 1e-6, "width": 128},
        lambda config: {**_qwen(config), **_biased(attention_bias="qkv output")(config)},
    ),
    "qwen3_moe": Row("qwen3moe", _LLAMA, {"qk_norm": "rms", "epsilon": 1e-6}, _qwen3_moe),
    "phi": Row(
        "phi2", _PHI,
        {**_PLAIN, "activation": "gelu_new", "residual": "parallel", "norms": 1,
         "biases": _ALL | {"head"}},
        _phi, partial=0.5,
    ),
    "phi3": Row("phi3", _LLAMA, {"qkv": "rows", "mlp": "fused"}, _windowed),
    "stablelm": Row("stablelm", _STABLELM, {"norm": "layer"}, _stablelm, partial=0.25),
    "gpt_bigcode": Row(
        "starcoder", _BIGCODE,
        {**_PLAIN, "biases": _ALL, "has_learned_positions": True, "is_tied": True}, _bigcode,
    ),
    "starcoder2": Row(
        "starcoder2", {**_LLAMA, "up": "mlp.c_fc", "down": "mlp.c_proj"},
        {**_PLAIN, "is_tied": True},
        lambda config: {
            **_windowed(config),
            **_biased(use_bias="qkv output mlp")({"use_bias": True, **config}),
        },
    ),
    "falcon": Row(
        "falcon", _FALCON,
        {"norm": "layer", "mlp": "plain", "activation": "gelu", "qkv": "groups", "is_tied": True},
        _falcon, gguf_axes={"qkv": "rows"},
        gguf_names={"attention_norm": "attn_norm_2 attn_norm", "mlp_norm": "ffn_norm attn_norm"},
    ),
    "chatglm": Row(
        "chatglm", _CHATGLM, {**_GLM, "qkv": "rows", "biases": frozenset({"qkv"})}, partial=0.5
    ),
    "glm": Row(
        "", _LLAMA, {**_GLM, "width": 128},
        lambda config: _biased(attention_bias="qkv")({"attention_bias": True, **config}),
        partial=0.5,
    ),
    "glm4": Row(
        "glm4", _GLM4, {**_GLM, "width": 128, "residual": "sandwich"},
        lambda config: _biased(attention_bias="qkv")({"attention_bias": True, **config}),
        partial=0.5,
    ),
    "gemma": Row("gemma", _LLAMA, _GEMMAS, _gemma, gguf_axes={"norm": "rms"}),
    "gemma2": Row(
        "gemma2", _GEMMA2, {**_GEMMAS, "residual": "sandwich"}, _gemma2, gguf_axes={"norm": "rms"}
    ),
}  # fmt: skip
"""By `model_type` of `config.json`. Yi is `llama`."""

_SPELLED = {
    **{"hidden_size": "n_embd n_embed", "num_hidden_layers": "n_layer num_layers"},
    **{"num_attention_heads": "n_head", "max_position_embeddings": "n_positions seq_length"},
    **{"num_key_value_heads": "num_kv_heads n_head_kv multi_query_group_num"},
    **{"intermediate_size": "n_inner ffn_hidden_size", "vocab_size": "padded_vocab_size"},
    **{"head_dim": "kv_channels", "hidden_act": "hidden_activation activation_function activation"},
    "epsilon": "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon",
}
"""The fields of `config.json` that have several spellings."""
_ACTIVATIONS = {
    **{"silu": "silu", "swish": "silu", "gelu": "gelu_erf", "gelu_new": "gelu"},
    **{"gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "relu": "relu"},
}
"""Names of activations in files, and of functions here."""


def row_of(name: object) -> Row:
    """Return the row of a `model_type`; `NotSupportedError` lists those there are."""
    if not isinstance(name, str) or name not in ROWS:
        known = ", ".join((*sorted(ROWS), "rwkv5"))
        raise NotSupportedError(
            f"model_type: expected one of {known}, got {name!r}; {PAGE} shows how to add a row"
        )
    return ROWS[name]


def spelled_alike(config: Config) -> dict[str, Any]:
    """Return a configuration whose fields have one spelling."""
    found = dict(config)
    for name, others in _SPELLED.items():
        for other in others.split():
            if found.get(name) is None and config.get(other) is not None:
                found[name] = config[other]
    if config.get("padded_vocab_size") is not None:
        found["vocab_size"] = config["padded_vocab_size"]
    return found


def architecture_of(name: str, config: Config, changes: Axes | None = None) -> Architecture:
    """Return all axes of a model by its row and its configuration.

    `changes` are axes that the file decides by itself. Raises `NotSupportedError` for what is not
    known, and `ArgumentValueError` for a configuration without a field that must be there.
    """
    row = row_of(name)
    config = spelled_alike(config)
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    missing = [one for one in needed if not isinstance(config.get(one), int)]
    if missing:
        raise ArgumentValueError(f"config.json: expected numbers as {', '.join(missing)}")
    config.setdefault("max_position_embeddings", 2048)
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    axes: Axes = {
        "hidden": hidden,
        "inner": config.get("intermediate_size") or 4 * hidden,
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "vocabulary": config["vocab_size"],
        "context": config["max_position_embeddings"],
        "end_tokens": tokens_of(config.get("eos_token_id")),
        **row.axes,
    }
    told: Axes = {
        "epsilon": config.get("epsilon"),
        "width": config.get("head_dim"),
        "activation": config.get("hidden_act"),
        "is_tied": config.get("tie_word_embeddings"),
    }
    axes |= {key: value for key, value in told.items() if value is not None}
    axes |= row.flags(config)
    axes |= changes or {}
    width = axes.setdefault("width", hidden // heads)
    if axes.get("activation", "silu") not in _ACTIVATIONS:
        raise NotSupportedError(
            f"hidden_act: expected one of {', '.join(_ACTIVATIONS)}, got {axes['activation']!r}"
        )
    axes["activation"] = _ACTIVATIONS[axes.get("activation", "silu")]
    axes["scale"] = axes.get("scale") or width**-0.5
    if "rope" not in axes and not axes.get("alibi") and not axes.get("has_learned_positions"):
        axes["rope"] = Rope.of(config, width, axes["context"], row.partial)
    if heads % axes["kv_heads"]:
        raise ArgumentValueError(
            f"config.json: expected heads in whole groups, got {heads} for {axes['kv_heads']}"
        )
    return Architecture(name=name, **axes)


def tokens_of(value: object) -> tuple[int, ...]:
    """Return the ids that a configuration gives as none, one, or a list."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)  # type: ignore[arg-type]
