"""A LLaMA layer for `component_test.py`: its sizes, its weights, and its computation in numpy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Reference = npt.NDArray[np.float64]


class WeightsError(Exception):
    """A folder without the weights of a LLaMA layer."""


@dataclass(frozen=True)
class Rope:
    """The angles between positions, and their scaling for texts longer than in training."""

    base: float = 10000.0
    kind: str = "default"
    """"default", "linear" or "llama3", as in transformers' `rope_type`."""
    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    trained: int = 8192
    """Positions."""

    def steps(self, width: int) -> Reference:
        """The angle between positions for each pair of a head of `width` elements."""
        steps = np.asarray(self.base ** (-np.arange(0, width, 2) / width))
        if self.kind == "default":
            return steps
        slower = np.asarray(steps / self.factor)
        if self.kind == "linear":
            return slower
        # Fast pairs keep their angle; pairs with few turns in training get a smaller angle.
        turns = self.trained * steps / (2 * np.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return np.asarray(slower * (1 - kept) + steps * kept)


@dataclass(frozen=True)
class Model:
    """The sizes of a LLaMA layer."""

    hidden: int = 128
    heads: int = 8
    kv_heads: int = 2
    inner: int = 176
    vocabulary: int = 101
    epsilon: float = 1e-5
    rope: Rope = Rope()
    head_width: int = 0
    """Elements of one head; 0: the hidden size divided by the number of heads."""

    @property
    def width(self) -> int:
        """Elements of one head."""
        return self.head_width or self.hidden // self.heads

    @property
    def across(self) -> int:
        """Elements of all heads together."""
        return self.heads * self.width

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight; matrices are (results, elements), as in the files."""
        of_keys = (self.kv_heads * self.width, self.hidden)
        return {
            "embed_tokens": (self.vocabulary, self.hidden),
            "input_layernorm": (self.hidden,),
            "self_attn.q_proj": (self.across, self.hidden),
            "self_attn.k_proj": of_keys,
            "self_attn.v_proj": of_keys,
            "self_attn.o_proj": (self.hidden, self.across),
            "post_attention_layernorm": (self.hidden,),
            "mlp.gate_proj": (self.inner, self.hidden),
            "mlp.up_proj": (self.inner, self.hidden),
            "mlp.down_proj": (self.hidden, self.inner),
        }


# -- weights -------------------------------------------------------------------------------------


def random_weights(model: Model, seed: int) -> dict[str, Array]:
    """Normally distributed weights, scaled so that values keep their size through the layer."""
    generator = np.random.default_rng(seed)
    weights: dict[str, Array] = {}
    for name, shape in model.shapes.items():
        drawn = generator.standard_normal(shape)
        is_matrix = len(shape) == 2 and name != "embed_tokens"
        weights[name] = drawn / np.sqrt(shape[1]) if is_matrix else drawn
    return weights


def local_weights(folder: Path) -> tuple[Model, dict[str, Array]]:
    """The sizes and the first layer's weights of a model in Hugging Face's files.

    Raises `WeightsError` that names a missing package, file or weight, or a wrong shape.
    """
    try:
        # This import adds bfloat16 to numpy; most models' files use this dtype.
        import ml_dtypes  # noqa: F401
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise WeightsError(
            f"--local-weights needs the package {error.name}: pip install {error.name}"
        ) from None
    model = _sizes(folder / "config.json")
    wanted = {_full_name(name): name for name in model.shapes}
    weights: dict[str, Array] = {}
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        try:
            with safe_open(file, "numpy") as tensors:
                for full in wanted.keys() & set(tensors.keys()):
                    weights[wanted[full]] = tensors.get_tensor(full).astype(np.float32)
        except SafetensorError as error:
            raise WeightsError(f"{file}: {error}") from None
    missing = [full for full, name in wanted.items() if name not in weights]
    if missing:
        raise WeightsError(
            f"{folder}: expected {', '.join(missing)} in its *.safetensors, of which there are "
            f"{len(files)}"
        )
    for name, shape in model.shapes.items():
        if weights[name].shape != shape:
            raise WeightsError(
                f"{folder}: expected {_full_name(name)} of shape {shape} by config.json, got "
                f"{weights[name].shape}"
            )
    return model, weights


def _sizes(config: Path) -> Model:
    try:
        said = json.loads(config.read_text(encoding="utf-8"))
        heads = said["num_attention_heads"]
        return Model(
            hidden=said["hidden_size"],
            heads=heads,
            kv_heads=said.get("num_key_value_heads", heads),
            inner=said["intermediate_size"],
            vocabulary=said["vocab_size"],
            epsilon=said.get("rms_norm_eps", Model.epsilon),
            rope=_rope(said),
            head_width=said.get("head_dim") or 0,
        )
    except FileNotFoundError:
        raise WeightsError(f"{config}: expected a LLaMA model's config.json") from None
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{config}: no LLaMA model's: {error!r}") from None


def _rope(said: dict[str, Any]) -> Rope:
    """Read `rope_parameters`; before transformers 5, read `rope_scaling` and `rope_theta`."""
    scaling = {**(said.get("rope_parameters") or {}), **(said.get("rope_scaling") or {})}
    kind = scaling.get("rope_type", scaling.get("type", Rope.kind))
    if kind not in ("default", "linear", "llama3"):
        raise ValueError(f"rope_type: expected default, linear or llama3, got {kind!r}")
    trained = scaling.get(
        "original_max_position_embeddings",
        said.get("max_position_embeddings", Rope.trained),
    )
    return Rope(
        base=scaling.get("rope_theta", said.get("rope_theta", Rope.base)),
        kind=kind,
        factor=scaling.get("factor", Rope.factor),
        low=scaling.get("low_freq_factor", Rope.low),
        high=scaling.get("high_freq_factor", Rope.high),
        trained=said.get("original_max_position_embeddings", trained),
    )


def _full_name(name: str) -> str:
    """A weight as Hugging Face's files name it."""
    return f"model.{name}.weight" if name == "embed_tokens" else f"model.layers.0.{name}.weight"


# -- computation ---------------------------------------------------------------------------------


def rope_tables(model: Model, positions: int) -> tuple[Reference, Reference]:
    angles = np.arange(positions)[:, None] * model.rope.steps(model.width)
    return np.cos(angles), np.sin(angles)


def causal_mask(queries: int, keys: int) -> npt.NDArray[np.bool_]:
    """True where a query does not see a key; the last query sees all."""
    return ~np.tri(queries, keys, keys - queries, dtype=np.bool_)


def shares(x: Reference) -> Reference:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def scaled_to_one(x: Reference, weight: Reference, epsilon: float) -> Reference:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight)


def rotated(
    x: Reference, cos: Reference, sin: Reference, *, interleaved: bool = False
) -> Reference:
    pairs = x.reshape(*x.shape[:-1], -1, 2) if interleaved else np.stack(np.split(x, 2, -1), -1)
    one, other = pairs[..., 0], pairs[..., 1]
    turned = [one * cos - other * sin, one * sin + other * cos]
    return np.stack(turned, -1).reshape(x.shape) if interleaved else np.concatenate(turned, -1)


def attended_to(query: Reference, key: Reference, value: Reference, mask: Reference) -> Reference:
    key, value = (np.repeat(one, query.shape[1] // key.shape[1], 1) for one in (key, value))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + mask
    return np.asarray(shares(scores) @ value)


def reference_layer(
    model: Model,
    weights: dict[str, Reference],
    x: Reference,
    kept: tuple[Reference, Reference],
    angles: tuple[Reference, ...],
) -> tuple[Reference, Reference]:
    """The sum after attention, and the layer's result."""
    normed = scaled_to_one(x, weights["input_layernorm"], model.epsilon)
    query, key, value = (
        (normed @ weights[f"self_attn.{part}_proj"].T)
        .reshape(*x.shape[:2], -1, model.width)
        .swapaxes(1, 2)
        for part in "qkv"
    )
    keys = np.concatenate((kept[0], rotated(key, *angles)), 2)
    values = np.concatenate((kept[1], value), 2)
    mask = np.where(causal_mask(x.shape[1], keys.shape[2]), -np.inf, 0)
    heads = attended_to(rotated(query, *angles), keys, values, mask)
    joined = heads.swapaxes(1, 2).reshape(*x.shape[:2], -1)
    x = x + joined @ weights["self_attn.o_proj"].T
    normed = scaled_to_one(x, weights["post_attention_layernorm"], model.epsilon)
    gate, up = (normed @ weights[f"mlp.{part}_proj"].T for part in ("gate", "up"))
    return x, x + gate / (1 + np.exp(-gate)) * up @ weights["mlp.down_proj"].T
