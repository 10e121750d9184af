"""Medusa's heads against their equations in numpy, and as drafters of an engine.

No trained heads are at hand, so their weights are random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.models.cases import VOCABULARY
from tests.ubridge.models.test_engine import a_model, jobs, lone, told
from ubridge.models import Engine
from ubridge.models.serving import MedusaDrafter, MedusaHeads
from uhal import Device
from uhal.errors import ArgumentValueError

Weights = dict[str, np.ndarray[Any, Any]]


def made(rng: np.random.Generator, heads: int, layers: int, size: int, tokens: int) -> Weights:
    found: Weights = {}
    for head in range(heads):
        for layer in range(layers):
            found[f"{head}.{layer}.linear.weight"] = rng.standard_normal((size, size)) / size**0.5
            found[f"{head}.{layer}.linear.bias"] = rng.standard_normal(size)
        found[f"{head}.{layers}.weight"] = rng.standard_normal((tokens, size)) / size**0.5
    return {name: one.astype(np.float32) for name, one in found.items()}


def on(device: Device, weights: Weights) -> dict[str, ub.DeviceTensor]:
    return {name: ub.from_numpy(one, device=device) for name, one in weights.items()}


def in_numpy(weights: Weights, head: int, layers: int, x: np.ndarray[Any, Any]) -> Any:
    for layer in range(layers):
        weight, bias = (weights[f"{head}.{layer}.linear.{one}"] for one in ("weight", "bias"))
        inner = x @ weight.astype(np.float64).T + bias
        x = x + inner / (1 + np.exp(-inner))
    return x @ weights[f"{head}.{layers}.weight"].astype(np.float64).T


def test_heads_give_the_numbers_of_their_equations(host: Device, rng: np.random.Generator) -> None:
    heads, layers, size = (int(one) for one in rng.integers(1, 4, 3) * [1, 1, 8])
    weights = made(rng, heads, layers, size, 11)
    x = rng.standard_normal((3, size)).astype(np.float32)
    own = MedusaHeads(on(host, weights))
    assert len(own) == heads
    for head, logits in enumerate(own(ub.from_numpy(x, device=host))):
        exact = in_numpy(weights, head, layers, x.astype(np.float64))
        np.testing.assert_allclose(logits.to_numpy(), exact, rtol=1e-4, atol=1e-4)


def test_the_tree_has_the_best_tokens_of_each_head(host: Device, rng: np.random.Generator) -> None:
    weights = made(rng, 2, 1, 8, 11)
    choices = [(0, 0, 0), (1, 0), (0, 1), (2,), (20,)]
    drafter = MedusaDrafter(MedusaHeads(on(host, weights)), choices)
    assert drafter([1, 2], 4) == ()
    x = rng.standard_normal(8).astype(np.float32)
    drafter.observe(ub.from_numpy(x, device=host))
    first, second = (np.argsort(-in_numpy(weights, head, 1, x.astype(float))) for head in (0, 1))
    expected = [[first[0], second[0]], [first[1], second[0]], [first[0], second[1]], [first[2]]]
    assert drafter([1, 2], 4) == expected
    assert drafter([1, 2], 1) == [one[:1] for one in expected]


class Watched(MedusaDrafter):
    """Compares each hidden state with the token chosen from the state."""

    def __init__(self, heads: MedusaHeads, head: Any) -> None:
        super().__init__(heads)
        self.head, self.chosen = head, -1

    def observe(self, hidden: ub.DeviceTensor) -> None:
        super().observe(hidden)
        self.chosen = int(ub.argmax(self.head(hidden.reshape(1, -1)), 1).to_numpy()[0])

    def __call__(self, tokens: Sequence[int], most: int) -> Any:
        assert self.chosen in (-1, tokens[-1])
        return super().__call__(tokens, most)


def test_texts_are_those_of_plain_decoding(host: Device, tmp_path: Path, seed: int) -> None:
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    model = a_model(tmp_path, "llama", host)
    size = model.design.hidden
    heads = MedusaHeads(on(host, made(rng, 3, 1, size, VOCABULARY)))
    given = jobs(draw, 6, 20)
    alone = [lone(model, job) for job in given]
    options: dict[str, Any] = {"context": 64, "speculate": 4, "branches": 4, "sequences": 3}
    with Engine(model, drafter=lambda: MedusaDrafter(heads), **options) as engine:
        assert [told(one) for one in [engine.submit(**job) for job in given]] == alone
        assert engine.stats().drafted_tokens > 0 and engine.stats().pages.live == 0
    # The hidden state belongs to the last chosen token, with and without accepted drafts.
    answer = lone(model, {"prompt": [1, 2, 3], "max_tokens": 12, "ignore_end": True})[0]

    class Right(Watched):
        def __call__(self, tokens: Sequence[int], most: int) -> Any:
            super().__call__(tokens, most)
            done = len(tokens) - 3
            return [answer[done : done + draw.randint(0, most)], [0]]

    head = model._body.logits
    for kind in (Watched, Right):
        with Engine(model, drafter=lambda kind=kind: kind(heads, head), **options) as engine:
            request = engine.submit([1, 2, 3], max_tokens=12, ignore_end=True)
            request.read()
            assert request.tokens == answer


def test_wrong_weights_and_failing_heads(host: Device, tmp_path: Path, seed: int) -> None:
    weights = on(host, made(np.random.default_rng(seed), 2, 1, 8, 11))
    for name in ("0.0.linear.bias", "1.1.weight", "0.0.linear.weight"):
        with pytest.raises(ArgumentValueError, match="MedusaHeads: expected"):
            MedusaHeads({key: one for key, one in weights.items() if key != name})
    with pytest.raises(ArgumentValueError, match="MedusaDrafter, choices: expected"):
        MedusaDrafter(MedusaHeads(weights), [])
    # Heads of another width: the error ends the text.
    model = a_model(tmp_path, "llama", host)
    heads = MedusaHeads(weights)
    with Engine(model, context=64, speculate=2, drafter=lambda: MedusaDrafter(heads)) as engine:
        request = engine.submit([1, 2], max_tokens=4, ignore_end=True)
        with pytest.raises(ArgumentValueError):
            request.read()
        assert engine.stats().pages.live == 0
