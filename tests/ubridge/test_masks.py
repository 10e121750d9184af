"""`MaskCache` against the rule of visible keys, and its counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.sampling import rounds
from ubridge.masks import MaskCache
from uhal import Device
from uhal.errors import ArgumentValueError


def visible(
    queries: int, keys: int, distance: int, window: int, sinks: int
) -> npt.NDArray[np.bool_]:
    made = np.zeros((queries, keys), bool)
    for i in range(queries):
        for j in range(keys):
            at = i + distance
            near = window == 0 or j > at - window or j < sinks
            made[i, j] = j <= at and near
    return made


def test_masks_are_those_of_the_rule(host: Device, rng: np.random.Generator) -> None:
    masks = MaskCache(int(rng.integers(1, 6)), device=host)
    for _ in range(rounds(200, 5000)):
        queries, keys = (int(one) for one in rng.integers(1, 7, 2))
        distance, window, sinks = (
            int(rng.integers(-8, 12)),
            int(rng.integers(5)),
            int(rng.integers(3)),
        )
        expected = visible(queries, keys, distance, window, sinks)
        got = masks.mask(queries, keys, distance, window=window, sinks=sinks)
        if isinstance(got, str):
            assert expected.all() if got == "all" else not expected.any()
        else:
            np.testing.assert_array_equal(got.to_numpy(), np.where(expected, 0, -np.inf))
    counts = masks.counts
    assert sum(counts) == rounds(200, 5000) and min(counts[1:]) > 0
    assert len(masks) <= 6


def test_a_sweep_makes_each_mask_once(host: Device) -> None:
    """In a causal text, only blocks on the diagonal need a mask, and all of them share one mask."""
    masks = MaskCache(1, device=host)
    for first in range(0, 40, 4):
        for key in range(0, 40, 4):
            masks.mask(4, 4, first - key)
    assert (masks.counts.hits, masks.counts.misses, masks.counts.plain) == (9, 1, 90)
    masks.clear()
    masks.mask(4, 4)
    masks.mask(5, 5)
    masks.mask(4, 4)
    assert masks.counts.misses == 4 and len(masks) == 1
    masks.resize(3)
    masks.mask(5, 5)
    assert len(masks) == 2
    masks.resize(1)
    assert len(masks) == 1


def test_attention_takes_the_masks(host: Device, rng: np.random.Generator) -> None:
    query, key, value = (
        ub.asarray(rng.standard_normal((1, 2, 6, 8), np.float32), device=host) for _ in range(3)
    )
    mask = MaskCache(device=host).mask(6, 6)
    assert not isinstance(mask, str)
    got = ub.attention(query, key, value, mask=ub.broadcast_to(mask, (1, 2, 6, 6)))
    causal = ub.attention(query, key, value, causal=True)
    np.testing.assert_allclose(got.to_numpy(), causal.to_numpy(), rtol=1e-5, atol=1e-5)


def test_mistakes_are_refused(host: Device) -> None:
    with pytest.raises(ArgumentValueError, match="MaskCache, capacity: expected 1 to"):
        MaskCache(0)
    with pytest.raises(ArgumentValueError, match=r"MaskCache\.mask, queries: expected 1 to"):
        MaskCache(device=host).mask(0, 1)
