"""The metadata of a GGUF file: read by the names of a `config.json`, and written.

Keys follow llama.cpp's `gguf-py/gguf/constants.py`, defaults its `llama-model.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.files.settings import Settings
from ubridge.models.architecture import Architecture
from ubridge.models.positions import MOST, MOST_BASE, Rope
from ubridge.models.table import ArchitectureRow
from uhal.dtypes import f32
from uhal.errors import NotSupportedError


@dataclass(frozen=True)
class _Field:
    """A key of the metadata: its name in `config.json`, and its value for a model."""

    config: str
    key: str
    of: Callable[[Architecture], object]


_FIELDS = (
    _Field("max_position_embeddings", "context_length", lambda design: design.context),
    _Field("hidden_size", "embedding_length", lambda design: design.hidden),
    _Field("num_hidden_layers", "block_count", lambda design: design.layers),
    _Field("intermediate_size", "feed_forward_length", lambda design: design.inner),
    _Field("num_attention_heads", "attention.head_count", lambda design: design.heads),
    _Field("num_key_value_heads", "attention.head_count_kv", lambda design: design.kv_heads),
    _Field("head_dim", "attention.key_length", lambda design: design.width),
    _Field(
        "sliding_window",
        "attention.sliding_window",
        lambda design: max(design.windows, default=0) or None,
    ),
    _Field("attn_logit_softcapping", "attn_logit_softcapping", lambda design: design.score_cap),
    _Field("final_logit_softcapping", "final_logit_softcapping", lambda design: design.logit_cap),
    _Field("num_experts", "expert_count", lambda design: _of_experts(design, "count")),
    _Field("num_experts_per_tok", "expert_used_count", lambda design: _of_experts(design, "used")),
    _Field(
        "moe_intermediate_size",
        "expert_feed_forward_length",
        lambda design: _of_experts(design, "inner"),
    ),
    _Field(
        "use_parallel_residual",
        "use_parallel_residual",
        lambda design: design.residual == "parallel",
    ),
)
_EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
_VALUES = "attention.value_length"
_DIVISORS = "rope_freqs.weight"
_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"
DIVISORS = (_DIVISORS, _SHORT, _LONG)
"""Tensors that divide the rotation step of each pair."""
_SCALINGS = ("none", "linear", "yarn", "longrope")
_ENDS = ("eos", "eot", "eom")
"""Tokens that end a text, a turn, a message."""
_NO_TOKENS = (-1, 0xFFFFFFFF)
"""Values that some converters write for a missing token."""
_HARMLESS = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout")
"""Keys that do not affect logits."""
_ROUNDING = 1e-6
"""A factor within this distance of 1 counts as 1."""
_ANGLES = ("rope.dimension_count", "rope.freq_base")
"""Keys that files of models with learned positions contain as well."""


def settings_of_gguf(weights: ub.Weights, kind: str, where: object) -> Settings:
    """Return the model's values by their names in `config.json`."""
    told = weights.metadata
    prefix = f"{kind}."
    values = {key: _plain(where, key, told[key]) for key in told if key.startswith(prefix)}
    values |= {key: told[key] for end in _ENDS if (key := f"tokenizer.ggml.{end}_token_id") in told}
    config = Settings(where, values).read_as(
        {
            **{one.config: (f"{prefix}{one.key}",) for one in _FIELDS},
            "epsilon": [f"{prefix}{key}" for key in _EPSILONS],
        }
    )
    names = weights.entries
    shape = names["token_embd.weight"].shape if "token_embd.weight" in names else ()
    hidden = config.integer("hidden_size", least=1)
    heads = config.integer("num_attention_heads", least=1)
    return config.read_as(
        {},
        {
            **({"vocab_size": shape[0]} if shape else {}),
            "head_dim": max(1, hidden // heads),
            "norm_topk_prob": True,  # llama.cpp knows no other kind
            "new_decoder_architecture": "blk.0.attn_norm_2.weight" in names,
            "qk_layernorm": "blk.0.attn_q_norm.weight" in names,
            "use_parallel_residual": "blk.0.ffn_norm.weight" not in names,
        },
    )


def axes_of_gguf(
    weights: ub.Weights, kind: str, config: Settings, row: ArchitectureRow
) -> dict[str, Any]:
    """Return the fields of `Architecture` that the file itself determines.

    Tensor names show the head, joined queries and biases; the metadata holds angles and end tokens.
    """
    names = weights.entries
    axes: dict[str, Any] = {"is_tied": "output.weight" not in names}
    joined = "blk.0.attn_qkv.weight" in names
    axes["qkv"] = "rows" if joined else "separate"
    parts = {"qkv": "attn_qkv" if joined else "attn_q", "output": "attn_output", "mlp": "ffn_down"}
    biases = {part for part, name in parts.items() if f"blk.0.{name}.bias" in names}
    axes["biases"] = frozenset(biases | ({"head"} if "output.bias" in names else set()))
    if "num_key_value_heads" in config:
        heads = config.integer("num_attention_heads", least=1)
        axes["kv_heads"] = config.integer("num_key_value_heads", heads, 1, heads)
    width = config.integer("head_dim", least=1)
    values = config.integer(f"{kind}.{_VALUES}", width)
    if values != width:
        raise NotSupportedError(
            f"{config.where}: {kind}.{_VALUES}: expected {width}, the length of keys, got {values}"
        )
    if kind == "gemma2":
        # In 27b models the scale depends on E / H, as in llama.cpp.
        is_largest = config.integer("num_hidden_layers") == 46
        share = config.integer("hidden_size") / config.integer("num_attention_heads")
        axes["scale"] = (share if is_largest else width) ** -0.5
    has_angles = not row.axes.get("has_learned_positions")
    if has_angles:
        axes["rope"] = _rope(weights, kind, config, row)
    ends = [config.integer(f"tokenizer.ggml.{end}_token_id", -1, -1) for end in _ENDS]
    axes["end_tokens"] = tuple(one for one in ends if one not in _NO_TOKENS)
    config.ignore(*(f"{kind}.{key}" for key in (_HARMLESS if has_angles else _HARMLESS + _ANGLES)))
    return axes


def _rope(weights: ub.Weights, kind: str, config: Settings, row: ArchitectureRow) -> Rope:
    """The angles, as llama.cpp computes them: a factor counts unless the type is none."""
    width = config.integer("head_dim", least=1)
    context = config.integer("max_position_embeddings", least=1)

    def number(key: str, otherwise: float, above: float = 0.0, most: float = MOST) -> float:
        return config.number(f"{kind}.rope.{key}", otherwise, above=above, most=most)

    turned = config.integer(
        f"{kind}.rope.dimension_count", int(width * row.partial) // 2 * 2, 2, width
    )
    scaling = config.text(f"{kind}.rope.scaling.type", "linear", among=_SCALINGS)
    # Older files use another name for the factor; under both names zero means none.
    older = config.number(f"{kind}.rope.scale_linear", 0.0, least=0, most=MOST)
    factor = config.number(f"{kind}.rope.scaling.factor", older, least=0, most=MOST) or 1.0
    factor = 1.0 if scaling == "none" else factor
    magnitude = number("scaling.attn_factor", 1.0)
    pairs = turned // 2
    trained = config.integer(f"{kind}.rope.scaling.original_context_length", context, 1)
    common: dict[str, Any] = {
        "width": turned // 2 * 2,
        "context": context,
        "base": number("freq_base", 10000.0, 1.0, MOST_BASE),
        "trained": trained,
        "factor": factor,
    }
    if _SHORT in weights or _LONG in weights:
        # `Rope` has no step factor for longrope, so the divisors include it.
        tables = [_divisors(weights, name, pairs, config.where, factor) for name in (_SHORT, _LONG)]
        return Rope(kind="longrope", short=tables[0], long=tables[1], magnitude=magnitude, **common)
    where, is_divided = config.where, _DIVISORS in weights
    divisors = _divisors(weights, _DIVISORS, pairs, where) if is_divided else ()
    if scaling == "yarn":
        return Rope(
            kind="yarn",
            short=divisors,
            magnitude=magnitude * _magnitude_of_yarn(factor),
            fast=number("scaling.yarn_beta_fast", 32.0),
            slow=number("scaling.yarn_beta_slow", 1.0),
            **common,
        )
    return Rope(kind="linear", short=divisors, magnitude=magnitude, **common)


def _divisors(
    weights: ub.Weights, name: str, pairs: int, where: object, factor: float = 1.0
) -> tuple[float, ...]:
    """Divisor of each pair's step."""
    entry = weights.entries.get(name)
    if entry is None or entry.kind != f32 or entry.elements != pairs:
        given = "none" if entry is None else f"{entry.elements} of {entry.kind_name}"
        raise ub.InvalidFileError(
            f"{where}: {name}: expected {pairs} elements of f32, one for each pair that turns, got "
            f"{given}"
        )
    values = np.frombuffer(weights.raw(name), np.float32)
    if not ((values >= 1 / MOST) & (values <= MOST)).all():
        raise ub.InvalidFileError(f"{where}: {name}: expected numbers of {1 / MOST:g} to {MOST:g}")
    return tuple(factor * float(one) for one in values)


def _magnitude_of_yarn(factor: float) -> float:
    """The factor of cosines and sines that llama.cpp adds to the file's."""
    return 1 + 0.1 * math.log(max(factor, 1.0))


def _plain(where: object, key: str, value: Any) -> Any:
    """A value in JSON's types; a list of equal numbers, one per layer, becomes one number."""
    several = getattr(value, "tolist", lambda: value)()
    if not isinstance(several, list) or not several:
        return several
    if key.partition(".")[2] not in (*(one.key for one in _FIELDS), *_EPSILONS):
        return several
    if several.count(several[0]) != len(several):
        raise NotSupportedError(
            f"{where}: {key}: expected the same for all layers, got {several[:16]}"
        )
    return several[0]


# -- writing -------------------------------------------------------------------------------------


def metadata_of(design: Architecture, kind: str) -> dict[str, Any]:
    """Return the keys of a model, for files with this `general.architecture`.

    Keys that such files do not have are among them.
    """
    told = {one.key: one.of(design) for one in _FIELDS}
    told[_VALUES] = design.width
    told[_EPSILONS[design.norm == "layer"]] = design.epsilon
    told["vocab_size"] = design.vocabulary
    if design.rope is not None:
        told |= _written_rope(design.rope)
    return {f"{kind}.{key}": value for key, value in told.items() if value is not None}


def divisors_of(design: Architecture) -> dict[str, npt.NDArray[np.float32]]:
    """Return the tensors that divide the rotation step of each pair, f32."""
    rope = design.rope
    found: dict[str, Any] = {}
    if rope is not None and rope.kind == "longrope":
        found = {_SHORT: rope.short, _LONG: rope.long}
    elif rope is not None and rope.kind == "llama3":
        found = {_DIVISORS: rope.divisors}
    return {name: np.asarray(values, np.float32) for name, values in found.items()}


def _written_rope(rope: Rope) -> dict[str, Any]:
    told: dict[str, Any] = {"dimension_count": rope.width, "freq_base": rope.base}
    if rope.kind in ("linear", "yarn"):
        told |= {"scaling.type": rope.kind, "scaling.factor": rope.factor}
    magnitude = rope.magnitude
    if rope.kind == "yarn":
        told |= {"scaling.yarn_beta_fast": rope.fast, "scaling.yarn_beta_slow": rope.slow}
        magnitude /= _magnitude_of_yarn(rope.factor)
    if rope.kind in ("yarn", "longrope"):
        told["scaling.original_context_length"] = rope.trained
    if abs(magnitude - 1) > _ROUNDING:
        told["scaling.attn_factor"] = magnitude
    return {f"rope.{key}": value for key, value in told.items()}


def _of_experts(design: Architecture, field: str) -> object:
    return None if design.experts is None else getattr(design.experts, field)
