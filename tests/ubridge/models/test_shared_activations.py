"""Weights with a common operand: it is rounded to 8 bits once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf")

import ubridge as ub
from tests.ubridge.models.cases import prompt
from tests.ubridge.models.gguf_files import q4_k_m, written_gguf
from tests.ubridge.models.test_gguf_models import LAYERS, wide_weights
from tests.ubridge.op_rows import OP_ROWS, row_of
from ubridge.models import Model, decoder
from uhal import Device

DEVICES = tuple(row.name for row in OP_ROWS if row.name != "tops-sim")
"""GCUs multiply by dense weights."""
READ, STEPS = 3, 2


def one_by_one(
    x: ub.DeviceTensor,
    weights: Sequence[ub.DeviceTensor | ub.QuantizedWeight],
    batch_invariant: bool = False,
) -> tuple[ub.DeviceTensor, ...]:
    """Return the results that `products` must return."""
    return tuple(ub.linear(x, one, batch_invariant=batch_invariant) for one in weights)


@pytest.mark.drawn(2, among_backends=True)
def test_results_are_those_of_products_that_share_nothing(
    device: Device, tmp_path: Path, seed: int
) -> None:
    """Read all tokens at once, one by one, and in the captured step (4 roundings per layer)."""
    row_of(device.backend).require_images()
    config, weights = wide_weights(seed)
    path = written_gguf(tmp_path / "model.gguf", config, weights, q4_k_m(LAYERS))
    tokens = prompt(seed, READ + STEPS)
    found, rounded = [], []
    for products in (decoder.products, one_by_one):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoder, "products", products)
            model = Model.load(path, device=device)
            with model.cache(16) as cache:
                rows = [model.logits(tokens[:READ], cache).to_numpy()]
                rows += [model.logits([one], cache).to_numpy() for one in tokens[READ:]]
                assert cache.step is not None
                assert cache.step.plan.verify(token=tokens[0], position=READ)
                nodes = cache.step.graph.nodes
                found.append(np.stack(rows))
                rounded.append(Counter(node.op.name for node in nodes if node.op is not None))
    np.testing.assert_array_equal(*found)
    shared, alone = (one["activations"] for one in rounded)
    assert (shared, alone) == (4 * LAYERS + 1, 7 * LAYERS + 1)
