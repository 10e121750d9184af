"""Mixture of experts: a router chooses some gated MLPs for each token."""

from __future__ import annotations

from collections.abc import Mapping

import ubridge as ub
from ubridge.models.architecture import Experts

Weight = ub.DeviceTensor | ub.QuantizedWeight


def mixed(x: ub.DeviceTensor, weights: Mapping[str, Weight], experts: Experts) -> ub.DeviceTensor:
    """Return (tokens, E): of each token the chosen experts' results, by their shares."""
    raise NotImplementedError
