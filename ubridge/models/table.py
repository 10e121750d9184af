"""The table of architectures: one row for each, with everything special about its models.

A row has defaults for `config.json`, the effects of its flags, and the names of the tensors.
`docs/guide/adding-a-model.md` shows how to add a row. Facts come from each model's own code in
transformers, GGUF names from llama.cpp's converter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ubridge.files.settings import Settings, shown
from ubridge.models.architecture import Architecture, Experts
from ubridge.models.positions import Rope
from ubridge.models.tensor_names import (
    BIGCODE,
    CHATGLM,
    FALCON,
    GEMMA2,
    GLM4,
    LLAMA,
    MIXTRAL,
    PHI,
    STABLELM,
)
from uhal.errors import NotSupportedError

PAGE = "docs/guide/adding-a-model.md"
Axes = dict[str, Any]
"""Fields of `Architecture`."""


@dataclass(frozen=True)
class ArchitectureRow:
    """Properties of one architecture."""

    gguf: str
    """Its `general.architecture` in GGUF files; empty where llama.cpp has none."""
    names: Mapping[str, str]
    """Possible names in safetensors for the tensors of each part."""
    axes: Axes = field(default_factory=dict)
    """Fields of `Architecture` that are constant."""
    flags: Callable[[Settings], Axes] = lambda config: {}
    """Fields from its `config.json`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for keys missing in `config.json`."""
    fixed: Mapping[str, bool] = field(default_factory=dict)
    """Keys of `config.json` with their only supported values."""
    partial: float = 1.0
    """The default for the rotated fraction of a head."""
    gguf_names: Mapping[str, str] = field(default_factory=dict)
    """Parts with other names than in most GGUF files."""
    gguf_axes: Axes = field(default_factory=dict)
    """Fields that a converter to GGUF changed."""
    gguf_fixed: Axes = field(default_factory=dict)
    """Fields with the only values that llama.cpp has."""
    gguf_windows: bool = False
    """Whether llama.cpp has this architecture's windows."""


# -- what flags change ---------------------------------------------------------------------------


def _biased(**kinds: str) -> Callable[[Settings], Axes]:
    """Biases by flags: `attention_bias="qkv output"`."""

    def flags(config: Settings) -> Axes:
        chosen = [kinds[name].split() for name in kinds if config.flag(name, False)]
        return {"biases": frozenset(one for group in chosen for one in group)}

    return flags


def _stablelm(config: Settings) -> Axes:
    parallel = config.flag("use_parallel_residual", False)
    return {
        "biases": frozenset({"qkv"} if config.flag("use_qkv_bias", False) else ()),
        "qk_norm": "heads" if config.flag("qk_layernorm", False) else "",
        "residual": "parallel" if parallel else "sequential",
        "norms": 1 if parallel else 2,
    }


def _bigcode(config: Settings) -> Axes:
    several = not config.flag("multi_query", True)
    return {
        "kv_heads": config.integer("num_attention_heads") if several else 1,
        "qkv": "groups" if several else "rows",
        "scale": 0.0 if config.flag("scale_attn_weights", True) else 1.0,
    }


def _falcon(config: Settings) -> Axes:
    newer = config.flag("new_decoder_architecture", False)
    parallel = config.flag("parallel_attn", True) or newer
    one_kv = config.flag("multi_query", True) and not newer
    both = config.integer("num_ln_in_parallel_attn", 2, 1, 2) == 2 and newer
    heads = config.integer("num_attention_heads")
    return {
        "kv_heads": 1 if one_kv else config.integer("num_key_value_heads", heads, 1, heads),
        "residual": "parallel" if parallel else "sequential",
        "norms": 2 if both or not parallel else 1,
        "alibi": config.flag("alibi", False),
        "biases": frozenset(("qkv", "output", "mlp") if config.flag("bias", False) else ()),
    }


def _gemma(config: Settings) -> Axes:
    # The files of Gemma 1 name gelu, but mean its tanh form.
    kind = config.text("hidden_activation", "gelu", among=_ACTIVATIONS)
    return {
        "activation": "gelu_pytorch_tanh" if kind == "gelu" else kind,
        "embedding_scale": config.integer("hidden_size") ** 0.5,
    }


def _gemma2(config: Settings) -> Axes:
    def cap(name: str, usual: float) -> float:
        return 0.0 if config.is_null(name) else config.number(name, usual, least=0)

    layers = config.integer("num_hidden_layers")
    return {
        **_gemma(config),
        "scale": config.number("query_pre_attn_scalar", 256.0, above=0) ** -0.5,
        "score_cap": cap("attn_logit_softcapping", 50.0),
        "logit_cap": cap("final_logit_softcapping", 30.0),
        "windows": _windows(config, [layer % 2 == 0 for layer in range(layers)], 4096),
    }


def _qwen(config: Settings) -> Axes:
    first = config.integer("max_window_layers", 28)
    late = [layer >= first for layer in range(config.integer("num_hidden_layers"))]
    windows = _windows(config, late, 4096)
    return {"windows": windows if config.flag("use_sliding_window", False) else ()}


def _windowed(config: Settings, usual: int = 0) -> Axes:
    return {"windows": _windows(config, [True] * config.integer("num_hidden_layers"), usual)}


def _windows(config: Settings, usual: Sequence[bool], width: int) -> tuple[int, ...]:
    """The window of each layer; `layer_types` overrides the usual pattern."""
    kinds = _layer_types(config)
    narrow = usual if kinds is None else [one == "sliding_attention" for one in kinds]
    none = config.is_null("sliding_window")
    width = 0 if none else config.integer("sliding_window", width)
    return tuple(width if one else 0 for one in narrow) if width else ()


def _layer_types(config: Settings) -> tuple[str, ...] | None:
    kinds = config.texts("layer_types", None, among=("full_attention", "sliding_attention"))
    layers = config.integer("num_hidden_layers")
    if kinds is not None and len(kinds) != layers:
        raise config.refuse("layer_types", f"one for each of {layers} layers", len(kinds))
    return kinds


def _experts(config: Settings, inner: int, normalized: bool) -> Axes:
    layers, count = config.integer("num_hidden_layers"), config.integer("num_experts")
    dense = config.integers("mlp_only_layers", ())
    step = config.integer("decoder_sparse_step", 1, 1)
    used = config.integer("num_experts_per_tok", least=1, most=max(count, 1))
    chosen = (one for one in range(layers) if one not in dense and (one + 1) % step == 0)
    experts = Experts(count, used, inner, normalized, frozenset(chosen))
    return {"experts": experts if count and experts.layers else None}


def _mixtral(config: Settings) -> Axes:
    usual = config.integer("intermediate_size", least=1)
    inner = config.integer("moe_intermediate_size", usual, 1)
    return {**_windowed(config), **_experts(config, inner, True)}


def _qwen3_moe(config: Settings) -> Axes:
    windows = _windowed(config, 4096)
    return {
        **_biased(attention_bias="qkv output")(config),
        **(windows if config.flag("use_sliding_window", False) else {}),
        **_experts(
            config,
            config.integer("moe_intermediate_size", least=1),
            config.flag("norm_topk_prob", False),
        ),
    }


# -- rows ----------------------------------------------------------------------------------------

_ALL = frozenset(("qkv", "output", "mlp"))
_GEMMAS: Axes = {"norm": "rms_plus_one", "is_tied": True, "width": 256, "epsilon": 1e-6}
_GLM: Axes = {"mlp": "fused", "is_interleaved": True, "epsilon": 1.5625e-7}
_PLAIN: Axes = {"norm": "layer", "mlp": "plain", "activation": "gelu_pytorch_tanh"}


def _context(positions: int, **more: Any) -> dict[str, Any]:
    """Defaults of a configuration: the number of positions, and `more`."""
    return {"max_position_embeddings": positions, **more}


ROWS: Mapping[str, ArchitectureRow] = {
    "llama": ArchitectureRow(
        "llama",
        LLAMA,
        {"epsilon": 1e-6},
        _biased(attention_bias="qkv output", mlp_bias="mlp"),
        gguf_axes={"is_interleaved": True},
    ),
    "mistral": ArchitectureRow(
        "llama",
        LLAMA,
        {"epsilon": 1e-6},
        lambda config: _windowed(config, 4096),
        _context(131072),
        gguf_axes={"is_interleaved": True},
    ),
    "mixtral": ArchitectureRow(
        "llama",
        MIXTRAL,
        {},
        _mixtral,
        _context(131072, rope_theta=1e6, num_experts=8, num_experts_per_tok=2),
        gguf_axes={"is_interleaved": True},
    ),
    "qwen2": ArchitectureRow(
        "qwen2", LLAMA, {"biases": frozenset({"qkv"}), "epsilon": 1e-6}, _qwen, _context(32768)
    ),
    "qwen3": ArchitectureRow(
        "qwen3",
        LLAMA,
        {"qk_norm": "rms", "epsilon": 1e-6, "width": 128},
        lambda config: {**_qwen(config), **_biased(attention_bias="qkv output")(config)},
        _context(32768),
    ),
    "qwen3_moe": ArchitectureRow(
        "qwen3moe",
        LLAMA,
        {"qk_norm": "rms", "epsilon": 1e-6},
        _qwen3_moe,
        _context(32768, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768),
    ),
    "phi": ArchitectureRow(
        "phi2",
        PHI,
        {
            **_PLAIN,
            "activation": "gelu_new",
            "residual": "parallel",
            "norms": 1,
            "biases": _ALL | {"head"},
        },
        lambda config: {"qk_norm": "layer" if config.flag("qk_layernorm", False) else ""},
        partial=0.5,
        gguf_fixed={"qk_norm": ""},
    ),
    "phi3": ArchitectureRow(
        "phi3",
        LLAMA,
        {"qkv": "rows", "mlp": "fused"},
        _windowed,
        _context(4096, original_max_position_embeddings=4096),
    ),
    "stablelm": ArchitectureRow(
        "stablelm", STABLELM, {"norm": "layer"}, _stablelm, _context(4096), partial=0.25
    ),
    "gpt_bigcode": ArchitectureRow(
        "starcoder",
        BIGCODE,
        {**_PLAIN, "biases": _ALL, "has_learned_positions": True, "is_tied": True},
        _bigcode,
        _context(1024),
    ),
    "starcoder2": ArchitectureRow(
        "starcoder2",
        {**LLAMA, "up": "mlp.c_fc", "down": "mlp.c_proj"},
        {**_PLAIN, "is_tied": True},
        lambda config: {**_windowed(config), **_biased(use_bias="qkv output mlp")(config)},
        _context(4096, use_bias=True),
    ),
    "falcon": ArchitectureRow(
        "falcon",
        FALCON,
        {"norm": "layer", "mlp": "plain", "activation": "gelu", "qkv": "groups", "is_tied": True},
        _falcon,
        gguf_axes={"qkv": "rows"},
        gguf_fixed={"biases": frozenset()},
        gguf_names={"attention_norm": "attn_norm_2 attn_norm", "mlp_norm": "attn_norm"},
    ),
    "chatglm": ArchitectureRow(
        "chatglm",
        CHATGLM,
        {**_GLM, "qkv": "rows", "biases": frozenset({"qkv"}), "epsilon": 1e-5},
        fixed={
            "rmsnorm": True,
            "post_layer_norm": True,
            "multi_query_attention": True,
            "add_qkv_bias": True,
            "add_bias_linear": False,
            "original_rope": True,
            "apply_residual_connection_post_layernorm": False,
        },
        partial=0.5,
    ),
    "glm": ArchitectureRow(
        "chatglm",
        LLAMA,
        {**_GLM, "width": 128},
        _biased(attention_bias="qkv"),
        _context(131072, attention_bias=True),
        partial=0.5,
    ),
    "glm4": ArchitectureRow(
        "glm4",
        GLM4,
        {**_GLM, "width": 128, "residual": "sandwich"},
        _biased(attention_bias="qkv"),
        _context(131072, attention_bias=True),
        partial=0.5,
    ),
    "gemma": ArchitectureRow(
        "gemma", LLAMA, _GEMMAS, _gemma, _context(8192), gguf_axes={"norm": "rms"}
    ),
    "gemma2": ArchitectureRow(
        "gemma2",
        GEMMA2,
        {**_GEMMAS, "residual": "sandwich"},
        _gemma2,
        _context(8192),
        gguf_axes={"norm": "rms"},
        gguf_windows=True,
    ),
}
"""Models by `model_type` of `config.json`. Yi is `llama`."""

_SPELLED = {
    "hidden_size": "hidden_size n_embd n_embed",
    "num_hidden_layers": "num_hidden_layers n_layer num_layers",
    "num_attention_heads": "num_attention_heads n_head",
    "num_key_value_heads": "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num",
    "max_position_embeddings": "max_position_embeddings n_positions seq_length",
    "intermediate_size": "intermediate_size n_inner ffn_hidden_size",
    "vocab_size": "padded_vocab_size vocab_size",
    "head_dim": "head_dim kv_channels",
    "hidden_act": "hidden_act hidden_activation activation_function activation",
    "hidden_activation": "hidden_activation hidden_act",
    "num_experts": "num_local_experts num_experts",
    "epsilon": "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon",
}
"""Fields of `config.json` with several spellings; the first one in a file counts."""
_HARMLESS = frozenset(
    "model_type architectures auto_map _name_or_path name_or_path _commit_hash model_version "
    "transformers_version torch_dtype dtype use_cache initializer_range initializer_factor "
    "bos_token_id pad_token_id unk_token_id sep_token_id cls_token_id decoder_start_token_id "
    "output_attentions output_hidden_states output_router_logits return_dict use_return_dict "
    "torchscript problem_type id2label label2id num_labels finetuning_task tokenizer_class prefix "
    "task_specific_params attn_implementation _attn_implementation use_flash_attn "
    "use_flash_attention pretraining_tp slow_but_exact attention_softmax_in_fp32 "
    "scale_attention_softmax_in_fp32 router_aux_loss_coef router_jitter_noise "
    "chunk_size_feed_forward gradient_checkpointing max_length min_length do_sample temperature "
    "top_k top_p num_beams repetition_penalty max_window_layers bias_dropout_fusion "
    "fp32_residual_connection apply_query_key_layer_scaling rescale_every unsloth_version "
    "unsloth_fixed".split()
)
"""Keys that do not affect logits: for training, files and settings of transformers."""
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "relu": "relu",
}
"""Names of activations in files, and of functions here."""


def row_of(config: Settings) -> tuple[str, ArchitectureRow]:
    """Return `model_type` and its row; `NotSupportedError` lists the known types."""
    name = config.text("model_type", "")
    if name not in ROWS:
        known = ", ".join((*sorted(ROWS), "rwkv5"))
        raise NotSupportedError(
            f"{config.where}: model_type: expected one of {known}, got {name!r}; "
            f"{PAGE} shows how to add a row"
        )
    return name, ROWS[name]


def spelled_alike(config: Settings, defaults: Mapping[str, Any] | None = None) -> Settings:
    """Return a `config.json` with one name per field."""
    return config.read_as({name: keys.split() for name, keys in _SPELLED.items()}, defaults)


def architecture_of(name: str, config: Settings, changes: Axes | None = None) -> Architecture:
    """Return all parameters of a model from its row and its configuration, with one name per field.

    `changes` are fields that the file itself determines. Raises `NotSupportedError` for unknown
    kinds, `InvalidFileError` for missing or impossible values.
    """
    row = ROWS[name]
    heads = config.integer("num_attention_heads", least=1)
    hidden = config.integer("hidden_size", least=1)
    vocabulary = config.integer("vocab_size", least=1)
    axes: Axes = {
        "hidden": hidden,
        "inner": config.integer("intermediate_size", 4 * hidden, 1),
        "layers": config.integer("num_hidden_layers", least=1),
        "heads": heads,
        "kv_heads": config.integer("num_key_value_heads", heads, 1, heads),
        "vocabulary": vocabulary,
        "context": config.integer("max_position_embeddings", 2048, 1),
        "end_tokens": config.one_or_more("eos_token_id", (), 0, vocabulary - 1),
        **row.axes,
    }
    told: Axes = {
        "epsilon": config.number("epsilon", None, least=0, most=1),
        "width": config.integer("head_dim", None, 1),
        "activation": config.text("hidden_act", None, among=_ACTIVATIONS),
        "is_tied": config.flag("tie_word_embeddings", None),
    }
    axes |= {key: value for key, value in told.items() if value is not None}
    _layer_types(config)
    for key, value in row.fixed.items():
        if config.flag(key, value) is not value:
            raise NotSupportedError(
                f"{config.where}: {key}: expected {shown(value)}, got otherwise"
            )
    axes |= row.flags(config)
    axes |= changes or {}
    if heads % axes["kv_heads"]:
        raise config.refuse("num_key_value_heads", f"a divisor of {heads} heads")
    width = axes.setdefault("width", max(1, hidden // heads))
    axes["activation"] = _ACTIVATIONS[axes.get("activation", "silu")]
    axes["scale"] = axes.get("scale") or width**-0.5
    if axes.get("alibi") or axes.get("has_learned_positions"):
        config.ignore("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
    elif "rope" not in axes:
        axes["rope"] = Rope.of(config, width, axes["context"], row.partial)
    return Architecture(name=name, **axes)


def unread_of(config: Settings) -> str:
    """Return a line that names unread keys that may matter, or an empty text."""
    # A setting that is off, zero or empty has no effect.
    kept = [
        f"{key} = {shown(value)}"
        for key, value in config.unread()
        if value and key not in _HARMLESS and not key.endswith(("dropout", "_pdrop"))
    ]
    if not kept:
        return ""
    return f"{config.where}: these keys are not supported and have no effect: " + ", ".join(kept)
