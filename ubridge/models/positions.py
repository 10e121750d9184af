"""Rotary positions: by what angle each pair of a head's elements turns at a position.

Formulas are those of transformers' `modeling_rope_utils.py`, which follow YaRN (Peng et al., 2023),
LongRoPE (Ding et al., 2024) and the readme of LLaMA 3.1. They are computed in f32 as there, for at
position 100,000 the rounding of an angle shows in the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

from uhal.errors import NotSupportedError

Angles = npt.NDArray[np.float32]

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "divided")
"""`divided` is how GGUF files say llama3: what each step is divided by, in a tensor of its own."""


@dataclass(frozen=True)
class Rope:
    """The angles of one model."""

    width: int
    """Elements of a head that turn: its first ones, in pairs."""
    context: int
    """Positions the model was made for."""
    base: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    trained: int = 0
    """Positions before the context was stretched."""
    low: float = 1.0
    high: float = 4.0
    fast: float = 32.0
    slow: float = 1.0
    is_rounded: bool = True
    """Whether YaRN's bounds are integers."""
    short: tuple[float, ...] = ()
    """What steps are divided by, up to `trained` positions (longrope) or always (divided)."""
    long: tuple[float, ...] = ()
    magnitude: float = 1.0
    """What cosines and sines are multiplied by."""

    @classmethod
    def of(cls, config: Mapping[str, Any], width: int, context: int, partial: float) -> Rope:
        """Read a `config.json`: `rope_parameters`, or as before `rope_scaling` and `rope_theta`.

        `partial` is the share of a head's `width` that turns where the file says none. Raises
        `NotSupportedError` for a kind that is not known.
        """
        told: dict[str, Any] = {**(config.get("rope_parameters") or {})}
        told = {**told.get("full_attention", told), **(config.get("rope_scaling") or {})}
        kind = told.get("rope_type", told.get("type")) or "default"
        if kind in ("su", "yarn") and told.get("long_factor"):
            kind = "longrope"
        if kind not in KINDS:
            raise NotSupportedError(
                f"rope_type: expected one of {', '.join(KINDS[:-1])}, got {kind!r}"
            )

        def said(name: str, otherwise: Any) -> Any:
            value = told.get(name, config.get(name))
            return otherwise if value is None else value

        trained = int(
            config.get("original_max_position_embeddings")
            or told.get("original_max_position_embeddings")
            or (8192 if kind == "llama3" and "max_position_embeddings" not in config else context)
        )
        stretched = context / trained if kind in ("longrope", "yarn") else 1.0
        default = 8.0 if kind == "llama3" else stretched
        factor = float(default if told.get("factor") is None else told["factor"])
        return cls(
            width=int(width * said("partial_rotary_factor", partial)) // 2 * 2,
            context=context,
            base=float(said("rope_theta", 10000.0)) * float(config.get("rope_ratio", 1)),
            kind=kind,
            factor=factor,
            trained=trained,
            low=float(told.get("low_freq_factor", 1.0)),
            high=float(told.get("high_freq_factor", 4.0)),
            fast=float(told.get("beta_fast") or 32),
            slow=float(told.get("beta_slow") or 1),
            is_rounded=bool(told.get("truncate", True)),
            short=tuple(told.get("short_factor") or ()),
            long=tuple(told.get("long_factor") or ()),
            magnitude=_magnitude(kind, factor, trained, told),
        )

    @property
    def depends_on_length(self) -> bool:
        """Whether a position's angle changes as the text grows."""
        return self.kind in ("dynamic", "longrope")

    def is_crossed(self, before: int, after: int) -> bool:
        """Say whether keys kept at one length are wrong at another: longrope turns all anew."""
        return self.kind == "longrope" and before <= self.trained < after

    def rows(self, first: int, count: int, length: int) -> tuple[Angles, Angles]:
        """Return cosines and sines, (count, width / 2), of positions in a text of `length`."""
        angles = np.outer(np.arange(first, first + count, dtype=np.float32), self._steps(length))
        return self._turned(angles)

    def growing_rows(self, count: int) -> tuple[Angles, Angles]:
        """Return those of positions in a text that each of them is the last of."""
        if not self.depends_on_length:
            return self.rows(0, count, count)
        usual = self._steps(1)
        angles = np.outer(np.arange(count, dtype=np.float32), usual)
        for position in range(self.context if self.kind == "dynamic" else self.trained, count):
            angles[position] = np.float32(position) * self._steps(position + 1)
        return self._turned(angles)

    def _turned(self, angles: Angles) -> tuple[Angles, Angles]:
        magnitude = np.float32(self.magnitude)
        return np.cos(angles) * magnitude, np.sin(angles) * magnitude

    def _steps(self, length: int) -> Angles:
        """The angle from one position to the next, of each pair."""
        base = self.base
        if self.kind == "dynamic":
            longest = max(length, self.context)
            stretch = self.factor * longest / self.context - (self.factor - 1)
            base *= stretch ** (self.width / (self.width - 2))
        exponents = np.arange(0, self.width, 2, dtype=np.float32) / np.float32(self.width)
        steps = 1 / np.float32(base) ** exponents
        if self.kind == "linear":
            return _single(steps / np.float32(self.factor))
        if self.kind in ("longrope", "divided"):
            is_long = self.kind == "longrope" and length > self.trained
            return _single(steps / np.asarray(self.long if is_long else self.short))
        if self.kind == "llama3":
            turns = self.trained * steps / (2 * np.pi)
            kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1).astype(np.float32)
            return _single(steps / np.float32(self.factor) * (1 - kept) + steps * kept)
        if self.kind == "yarn":
            kept = 1 - self._ramp()
            return _single(steps / np.float32(self.factor) * (1 - kept) + steps * kept)
        return _single(steps)

    def _ramp(self) -> Angles:
        """0 for pairs that turn often in a text as trained with, 1 for those that do not."""
        low, high = (
            self.width * math.log(self.trained / (turns * 2 * math.pi)) / (2 * math.log(self.base))
            for turns in (self.fast, self.slow)
        )
        if self.is_rounded:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.width - 1)
        pairs = np.arange(self.width // 2, dtype=np.float32)
        return _single(np.clip((pairs - low) / ((high - low) or 0.001), 0, 1))


def _single(values: npt.NDArray[Any]) -> Angles:
    return values.astype(np.float32)


def _magnitude(kind: str, factor: float, trained: int, told: Mapping[str, Any]) -> float:
    given = told.get("attention_factor")
    if given is not None:
        return float(given)
    if factor <= 1 or kind not in ("yarn", "longrope"):
        return 1.0
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(trained))
    one, other = told.get("mscale"), told.get("mscale_all_dim")
    stretch = 0.1 * math.log(factor)
    return (one * stretch + 1) / (other * stretch + 1) if one and other else stretch + 1


def alibi_bias(heads: int, width: int, positions: int) -> Angles:
    """Return what ALiBi (Press et al., 2021) adds to scores, (heads, positions) of keys.

    As Falcon has it: slopes and products are rounded to bf16, and divided by the root of a head's
    width as scores are. That the query's own position is not subtracted changes no softmax.
    """
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * one / below) for one in range(1, below + 1)]
    slopes += [2.0 ** (-4 * one / below) for one in range(1, 2 * (heads - below) + 1, 2)]
    of_keys = np.arange(positions, dtype=np.float32)
    short = np.asarray(slopes, np.float32).astype(bfloat16).astype(np.float32)
    bias = np.outer(short, of_keys).astype(bfloat16).astype(np.float32)
    return np.asarray(bias / np.float32(width**0.5))
