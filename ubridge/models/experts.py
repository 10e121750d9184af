"""Mixture of experts: a router chooses some gated MLPs for each token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ubridge as ub
from ubridge.models.architecture import Experts
from ubridge.models.body import Part, Tensor, Weight, products
from uhal.dtypes import f32

Gated = Callable[[Tensor, Tensor], Tensor]
"""Multiplies an activated gate by the values of the other matrix."""


def mixed(
    x: Tensor, weights: Part, experts: Experts, gated: Gated, batch_invariant: bool = False
) -> Tensor:
    """Return (tokens, E): for each token the chosen experts' results, weighted by their shares.

    The device selects the experts' weights, so that the step can be captured. Exception: for
    several tokens and weights that are not quantized, the host reads the chosen ids. Each expert
    then takes all of its tokens at once. With `batch_invariant` the device always selects, and a
    token gives the same bits in every batch.
    """
    shares, chosen = routed(x, weights, experts, batch_invariant)
    before, after = _of(weights, "gate", "up"), _of(weights, "down")
    is_quantized = all(isinstance(one, ub.QuantizedWeight) for one in (*before, *after))
    if x.shape[0] > 1 and not is_quantized and not batch_invariant:
        return _of_several(x, weights, shares, chosen, gated)
    alike = batch_invariant
    gate, up = ub.indexed_matmul(x.expand_dims(1), before, chosen, batch_invariant=alike)
    (found,) = ub.indexed_matmul(gated(gate, up), after, chosen, batch_invariant=alike)
    total = ub.matmul(shares.expand_dims(1), found.astype(f32, copy=False), batch_invariant=alike)
    return total.reshape(*x.shape).astype(x.dtype, copy=False)


def routed(
    x: Tensor, weights: Part, experts: Experts, batch_invariant: bool = False
) -> tuple[Tensor, Tensor]:
    """Return shares, f32, and ids of the experts chosen for each token: (tokens, used)."""
    (scores,) = products(x, [weights["router.weight"]], batch_invariant)
    scores = scores.astype(f32, copy=False)
    shares, chosen = ub.topk(ub.softmax(scores), experts.used)
    if experts.is_normalized:
        shares = shares / shares.sum(1, keepdims=True)
    return shares, chosen


def _of_several(x: Tensor, weights: Part, shares: Tensor, chosen: Tensor, gated: Gated) -> Tensor:
    found = chosen.to_numpy()
    total = ub.zeros(x.shape, device=x.device)
    for expert in np.unique(found):
        tokens, slots = np.nonzero(found == expert)
        own = ub.take(x, tokens)
        gate, up = products(own, [one[int(expert)] for one in _of(weights, "gate", "up")])
        after = ub.linear(gated(gate, up), weights["expert_down.weight"][int(expert)])
        share = ub.take(shares.reshape(-1), tokens * found.shape[1] + slots)
        total = ub.index_add(total, tokens, after.astype(f32, copy=False) * share.expand_dims(1), 0)
    return total.astype(x.dtype, copy=False)


def _of(weights: Part, *parts: str) -> list[Weight]:
    return [weights[f"expert_{part}.weight"] for part in parts]
