"""The token that the kernel must choose, from the same integers in numpy and Python."""

from __future__ import annotations

import math

import numpy as np

from tests.ubridge.kernel_bench import Array
from tests.ubridge.random_numbers import words
from ubridge.models.text import Sampling

_POLYNOMIAL = (0xFFFFFFFA, 0xB17215B2, 0x3D7F577E, 0xE34A75B, 0x273D361, 0x539803, 0x72A3C)
"""Polynomial for 2^-x, in multiples of 2^-32, with alternating signs."""
_TINY = 2.0**-126


def scores(logits: Array, sampling: Sampling, tokens: list[int], generated: list[int]) -> Array:
    """Return f32 logits after penalties and temperature, each step rounded once."""
    with np.errstate(over="ignore"):
        return _scored(logits, sampling, tokens, generated)


def _scored(logits: Array, sampling: Sampling, tokens: list[int], generated: list[int]) -> Array:
    found = logits.astype(np.float32)
    window = len(tokens) if sampling.repetition_window is None else sampling.repetition_window
    seen = set(tokens[max(len(tokens) - window, 0) :])
    for token in {*seen, *generated}:
        value = found[token]
        # f64 holds the product of two f32 exactly.
        factor = 1 / sampling.repetition_penalty if value > 0 else sampling.repetition_penalty
        scale = np.float64(np.float32(factor)) if token in seen else np.float64(1)
        told = np.float64(0)
        if token in generated:
            frequency, presence = map(
                np.float32, (sampling.frequency_penalty, sampling.presence_penalty)
            )
            told = np.float64(
                _sum(np.float64(frequency) * generated.count(token), np.float64(presence))
            )
        found[token] = _sum(np.float64(value) * scale, -told)
    if not sampling.is_greedy:
        found *= np.float32(max(1 / sampling.temperature, _TINY))
    return np.asarray(found + np.float32(0))


def _sum(a: np.float64, b: np.float64) -> np.float32:
    """The sum of two numbers, rounded once.

    The sum in f64 is rounded to odd, so that the second rounding to f32 cannot meet a false tie
    (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(invalid="ignore"):
        total = a + b
        back = total - a
        lost = (a - (total - back)) + (b - back)
    if np.isfinite(total) and lost != 0 and not total.view(np.uint64) & np.uint64(1):
        total = np.nextafter(total, np.copysign(np.inf, lost))
    return np.float32(total)


def weights(values: Array) -> Array:
    """Probabilities as whole numbers; the largest is 2^40."""
    with np.errstate(invalid="ignore", over="ignore"):
        below = np.where(values == values.max(), np.float32(0), values.max() - values)
        parts = np.where(below < 32, below * np.float32(2**26), np.float32(0))
    whole = np.where(below < 32, parts.astype(np.uint64), np.uint64(0x7FFFFFFF))
    halvings = whole * np.uint64(0xB8AA3B29)
    half = np.uint64(32)
    rest = (halvings >> np.uint64(25)) & np.uint64(0xFFFFFFFF)
    power = np.full(values.shape, _POLYNOMIAL[-1], np.uint64)
    for coefficient in _POLYNOMIAL[-2::-1]:
        power = np.uint64(coefficient) - ((rest * power) >> half)
    return np.asarray((power << np.uint64(8)) >> (halvings >> np.uint64(57)))


def least_kept(values: Array, sampling: Sampling) -> float:
    """The least score that top-k, top-p and min-p keep."""
    made = weights(values).astype(object)  # ints of unlimited size
    least = -math.inf
    if sampling.top_k is not None and sampling.top_k < values.size:
        least = float(np.sort(values)[-sampling.top_k])
    if sampling.top_p < 1:
        part = max(1, min(round(sampling.top_p * 2.0**64), 2**64 - 1))
        wanted = -(-int(made[values >= least].sum()) * part // 2**64)
        above = 0
        for value in np.unique(values[values >= least])[::-1]:
            if above >= wanted:
                break
            least = float(value)
            above += int(made[values == value].sum())
    if sampling.min_p > 0:
        best = values.max()
        bottom = best + np.float32(math.log(sampling.min_p)) if np.isfinite(best) else best
        least = max(least, float(bottom))
    return least


def chosen(values: Array, sampling: Sampling, seed: int, position: int) -> int:
    """Return the token that the draw of a position chooses, or -1 if there is none."""
    if not values.max() > -np.inf and (sampling.has_penalties or not sampling.is_greedy):
        return -1
    if sampling.is_greedy:
        return int(np.argmax(values))
    kept = np.where(values >= least_kept(values, sampling), weights(values), 0).astype(object)
    upper, lower = map(int, words(seed, position, 1).ravel()[:2])
    goal = ((upper << 32 | lower) >> 11) * int(kept.sum()) // 2**53
    return int(np.flatnonzero(np.cumsum(kept) > goal)[0])
