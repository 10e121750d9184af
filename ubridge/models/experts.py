"""Mixture of experts: a router chooses some gated MLPs for each token."""

from __future__ import annotations

import numpy as np

import ubridge as ub
from ubridge.models.architecture import Experts
from ubridge.models.body import Part, Tensor, Weight, products
from uhal.dtypes import f32, i64


def mixed(x: Tensor, weights: Part, experts: Experts) -> Tensor:
    """Return (tokens, E): of each token the chosen experts' results, by their shares.

    Of one token the device finds the experts' weights by itself, so that it can be captured; of
    several the host reads which are chosen, and each expert takes its tokens at once.
    """
    shares, chosen = routed(x, weights, experts)
    if x.shape[0] == 1:
        return _of_one(x, weights, shares, chosen[0])
    return _of_several(x, weights, shares, chosen)


def routed(x: Tensor, weights: Part, experts: Experts) -> tuple[Tensor, Tensor]:
    """Return shares, f32, and ids of the experts chosen for each token: (tokens, used)."""
    scores = ub.linear(x, weights["router.weight"]).astype(f32)
    shares, chosen = ub.topk(ub.softmax(scores), experts.used)
    if experts.is_normalized:
        shares = shares / shares.sum(1, keepdims=True)
    return shares, chosen


def _of_one(x: Tensor, weights: Part, shares: Tensor, chosen: Tensor) -> Tensor:
    column = x.reshape(-1, 1)
    gate, up = (_taken(weights[f"expert_{one}.weight"], chosen, x) @ column for one in _BEFORE)
    after = _taken(weights["expert_down.weight"], chosen, x) @ ub.silu_mul(gate, up)
    return (shares @ after[:, :, 0].astype(f32)).astype(x.dtype)


def _taken(weight: Weight, chosen: Tensor, x: Tensor) -> Tensor:
    """The matrices of the chosen experts: (used, rows, columns)."""
    if not isinstance(weight, ub.QuantizedWeight):
        return ub.take(weight, chosen)
    rows = weight.shape[1]
    own = ub.arange(rows, dtype=i64, device=x.device)
    return weight.take(chosen.astype(i64).expand_dims(1) * rows + own, x.dtype)


def _of_several(x: Tensor, weights: Part, shares: Tensor, chosen: Tensor) -> Tensor:
    found = chosen.to_numpy()
    total = ub.zeros(x.shape, device=x.device)
    for expert in np.unique(found):
        tokens, slots = np.nonzero(found == expert)
        own = ub.take(x, tokens)
        gate, up = products(own, [weights[f"expert_{one}.weight"][int(expert)] for one in _BEFORE])
        after = ub.linear(ub.silu_mul(gate, up), weights["expert_down.weight"][int(expert)])
        share = ub.take(shares.reshape(-1), tokens * found.shape[1] + slots)
        total = ub.index_add(total, tokens, after.astype(f32) * share.expand_dims(1), 0)
    return total.astype(x.dtype)


_BEFORE = ("gate", "up")
