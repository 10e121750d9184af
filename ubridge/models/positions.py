"""Rotary positions: the angle of each pair of a head's elements at a position.

The formulas come from transformers' `modeling_rope_utils.py`, which follows YaRN (Peng et al.,
2023), LongRoPE (Ding et al., 2024) and the readme of LLaMA 3.1. They are computed in f32 as in
transformers, because at position 100,000 the rounding of an angle shows in the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

from ubridge.files.settings import Settings

Angles = npt.NDArray[np.float32]

MOST, MOST_BASE = 1e6, 1e18
"""No model has larger factors or bases; powers of larger numbers do not fit an f32."""
KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class Rope:
    """The angles of one model."""

    width: int
    """Number of leading elements of a head that are rotated, in pairs."""
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
    """Divisor of each pair's step; empty for no division."""
    long: tuple[float, ...] = ()
    """longrope's divisors in a text of more than `trained` positions."""
    magnitude: float = 1.0
    """Factor of cosines and sines."""

    @classmethod
    def of(cls, config: Settings, width: int, context: int, partial: float) -> Rope:
        """Read a `config.json`: `rope_parameters`, or the older `rope_scaling` and `rope_theta`.

        `partial` is the default for the rotated fraction of a head's `width`. Raises
        `NotSupportedError` for an unknown kind, `InvalidFileError` for impossible values.
        """
        newer = config.section("rope_parameters")
        if "full_attention" in newer:
            newer = newer.section("full_attention")
        sections = (config.section("rope_scaling"), newer)

        def told(name: str, *more: Settings) -> Settings:
            """The first object with the value; later objects are ignored."""
            objects = [*sections, *more]
            for one in objects:
                one.ignore(name)
            return next((one for one in objects if name in one), objects[-1])

        named = "rope_type" if any("rope_type" in one for one in sections) else "type"
        kind = told(named).text(named, "default")
        told("type")
        if kind == "su" or (kind == "yarn" and "long_factor" in told("long_factor")):
            kind = "longrope"
        if kind not in KINDS:
            told(named).text(named, among=KINDS)
        turning = told("partial_rotary_factor", config)
        share = turning.number("partial_rotary_factor", partial, above=0, most=1)
        turned = int(width * share) // 2 * 2
        if turned < (4 if kind == "dynamic" else 2):
            raise turning.refuse("partial_rotary_factor", f"pairs of {width} elements", share)
        trained = _trained(config, told("original_max_position_embeddings"), kind, context)
        stretched = context / trained if kind in ("longrope", "yarn") else 1.0
        usual = 8.0 if kind == "llama3" else stretched
        factor = told("factor").number("factor", usual, above=0, most=MOST)
        base = told("rope_theta", config).number("rope_theta", 10000.0, above=1, most=MOST_BASE)
        low = told("low_freq_factor").number("low_freq_factor", 1.0, above=0, most=MOST)
        high = told("high_freq_factor").number("high_freq_factor", 4.0, above=0, most=MOST)
        if kind == "llama3" and low >= high:
            raise told("high_freq_factor").refuse("high_freq_factor", f"more than {low:g}", high)
        magnitudes = [
            told(name).number(name, None, above=0, most=MOST)
            for name in ("attention_factor", "mscale", "mscale_all_dim")
        ]
        return cls(
            width=turned,
            context=context,
            base=base * config.number("rope_ratio", 1.0, above=0, most=MOST),
            kind=kind,
            factor=factor,
            trained=trained,
            low=low,
            high=high,
            fast=told("beta_fast").number("beta_fast", 32.0, above=0, most=MOST),
            slow=told("beta_slow").number("beta_slow", 1.0, above=0, most=MOST),
            is_rounded=told("truncate").flag("truncate", True),
            short=_factors(told("short_factor"), "short_factor", kind, turned // 2),
            long=_factors(told("long_factor"), "long_factor", kind, turned // 2),
            magnitude=_magnitude(kind, factor, trained, *magnitudes),
        )

    @property
    def depends_on_length(self) -> bool:
        """Whether a position's angle changes as the text grows."""
        return self.kind in ("dynamic", "longrope")

    def stretch(self, length: int) -> int:
        """Return a number that is equal for all text lengths with equal angles."""
        if self.kind == "dynamic":
            return max(length, self.context)
        return int(self.kind == "longrope" and length > self.trained)

    def rows(self, first: int, count: int, length: int) -> tuple[Angles, Angles]:
        """Return cosines and sines, (count, width / 2), of positions in a text of `length`."""
        angles = np.outer(np.arange(first, first + count, dtype=np.float32), self._steps(length))
        return self._turned(angles)

    def growing_rows(self, count: int) -> tuple[Angles, Angles]:
        """Return cosines and sines of positions, each as the last of its text.

        With longrope all are the trained angles.
        """
        usual = self._steps(1)
        angles = np.outer(np.arange(count, dtype=np.float32), usual)
        for position in range(self.context if self.kind == "dynamic" else count, count):
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
        divisors = self.long if self.long and length > self.trained else self.short
        if divisors:
            steps = _single(steps / np.asarray(divisors))
        if self.kind == "linear":
            return _single(steps / np.float32(self.factor))
        if self.kind == "llama3":
            kept = self._kept(steps)
            return _single(steps / np.float32(self.factor) * (1 - kept) + steps * kept)
        if self.kind == "yarn":
            kept = 1 - self._ramp()
            return _single(steps / np.float32(self.factor) * (1 - kept) + steps * kept)
        return _single(steps)

    def _kept(self, steps: Angles) -> Angles:
        """The share of each pair's step that LLaMA 3.1 does not divide."""
        turns = self.trained * steps / (2 * np.pi)
        return _single(np.clip((turns - self.low) / (self.high - self.low), 0, 1))

    @property
    def divisors(self) -> npt.NDArray[Any]:
        """Divisor of each pair's step by LLaMA 3.1's rule."""
        exponents = np.arange(0, self.width, 2) / self.width
        kept = self._kept(_single(self.base**-exponents))
        return 1 / ((1 - kept) / self.factor + kept)

    def is_like(self, other: Rope, length: int) -> bool:
        """Return whether two ropes turn pairs equally, apart from rounding, at a text's length."""
        angles = [one.rows(0, 2, length) for one in (self, other)]
        return self.width == other.width and all(
            np.allclose(one, two, rtol=1e-5, atol=1e-6) for one, two in zip(*angles, strict=True)
        )

    def _ramp(self) -> Angles:
        """Pairs' ramp from 0 (many turns in the trained context) to 1 (few)."""
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


def _trained(config: Settings, section: Settings, kind: str, context: int) -> int:
    """Positions before the context was stretched."""
    name = "original_max_position_embeddings"
    is_llama = kind == "llama3" and "max_position_embeddings" not in config
    usual = 8192 if is_llama else max(context, 2)
    if kind in ("llama3", "yarn", "longrope"):
        if name not in config and name in section:
            usual = section.integer(name, least=2)
            config = section
        return config.integer(name, usual, 2)
    config.ignore(name)
    return usual


def _factors(section: Settings, name: str, kind: str, pairs: int) -> tuple[float, ...]:
    if kind != "longrope":
        return ()
    found = section.numbers(name, least=1 / MOST, most=MOST)
    if len(found) != pairs:
        raise section.refuse(name, f"{pairs} numbers, one for each pair", len(found))
    return found


def _magnitude(
    kind: str,
    factor: float,
    trained: int,
    given: float | None,
    one: float | None,
    other: float | None,
) -> float:
    if given is not None:
        return given
    if factor <= 1 or kind not in ("yarn", "longrope"):
        return 1.0
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(trained))
    stretch = 0.1 * math.log(factor)
    return (one * stretch + 1) / (other * stretch + 1) if one and other else stretch + 1


def alibi_bias(heads: int, width: int, positions: int) -> Angles:
    """Return ALiBi's bias of scores (Press et al., 2021), (heads, positions of keys).

    As in Falcon, slopes and products are rounded to bf16, then divided like scores by the root of a
    head's width. Subtracting the query's own position would not change the softmax.
    """
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * one / below) for one in range(1, below + 1)]
    slopes += [2.0 ** (-4 * one / below) for one in range(1, 2 * (heads - below) + 1, 2)]
    of_keys = np.arange(positions, dtype=np.float32)
    short = np.asarray(slopes, np.float32).astype(bfloat16).astype(np.float32)
    bias = np.outer(short, of_keys).astype(bfloat16).astype(np.float32)
    return np.asarray(bias / np.float32(width**0.5))
