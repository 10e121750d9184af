"""Texts that reuse the cache of an earlier text get the same logits as with an empty cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.models.cases import CASES
from tests.ubridge.models.files import known, written
from ubridge.models import Model, Session
from ubridge.models.tokenizers.rwkv import WorldTokenizer
from uhal import Device

DEVICES = ("host", "tops-sim")
TOLERANCE = 1e-4
LONGER = ("llama_dynamic", "phi3_long")
"""Models whose rotary angles change when a text exceeds 40 and 32 tokens."""


def logits_of_first(session: Session, prompt: list[int], more: int) -> Any:
    """Generate tokens, and return the logits of the first generated token."""
    seen: list[Any] = []

    def hook(logits: ub.DeviceTensor, tokens: Any) -> None:
        if not seen:
            seen.append(logits.to_numpy())

    session.generate(prompt, max_tokens=more, hook=hook, ignore_end=True).read()
    return seen[0]


@pytest.mark.parametrize("case", [*LONGER, "llama_yarn"])
def test_what_was_read_before_changes_nothing(
    device: Device, case: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    config, weights, _ = known(case)
    if device.backend == "tops" and case != "phi3_long":
        pytest.skip("simulated GCUs take long")
    model = Model.load(written(tmp_path, config, weights), device=device)
    with Device(0, backend="host"):
        fresh = Model.load(tmp_path)
    tokenizer = WorldTokenizer({token: bytes([token]) for token in range(1, 97)})
    session = Session(model, tokenizer, 160)
    text = rng.integers(1, 97, 160).tolist()
    # Cross the length limit in both directions, by prompts and by generated tokens.
    lengths = [100, 40, 30, 10, 90, 31, 33, *rng.integers(8, 120, rounds(6, 60)).tolist()]
    for length in lengths[: 4 if device.backend == "tops" else None]:
        prompt = text[:length]
        if rng.integers(0, 4) == 0:
            session.save(tmp_path / "cache.safetensors")
            session = Session(model, tokenizer, 160)
            session.restore(tmp_path / "cache.safetensors")
        more = 2 if device.backend == "tops" else int(rng.integers(1, 8))
        found = logits_of_first(session, prompt, more)
        expected = fresh(prompt).to_numpy()[-1]
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error <= TOLERANCE, (length, session.cache.tokens)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("case", LONGER)
def test_what_is_still_right_is_not_read_again(
    case: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, weights, _ = known(case)
    model = Model.load(written(tmp_path, config, weights))
    assert model.design.rope is not None
    read: list[int] = []
    usual = model._read
    monkeypatch.setattr(
        model, "_read", lambda ids, *more: (read.append(len(ids)), usual(ids, *more))[1]
    )
    border = 40 if case == "llama_dynamic" else 32
    tokens = rng.integers(1, 97, 100).tolist()
    with model.cache(128) as cache:

        def again(kept: int, length: int) -> int:
            cache.truncate(kept)
            model.logits(tokens[kept:length], cache)
            return read[-1]

        model.logits(tokens[:90], cache)
        # The lengths are equal, on the same side of the limit, across it, or below it.
        assert again(80, 90) == 10
        assert again(60, 95) == (35 if case == "phi3_long" else 95)
        assert again(20, border) == border
        assert again(10, 20) == 10
        # Single tokens cross the limit in both directions; earlier keys keep their rotation.
        model.logits(tokens[20:border], cache)
        for place in range(border, border + 3):
            model.logits(tokens[place : place + 1], cache)
        assert again(30, border - 1) == (border - 1 if case == "phi3_long" else border - 31)


def test_every_kind_of_rope_that_depends_on_the_length_is_here() -> None:
    kinds = {CASES[case][1]["rope_parameters"]["rope_type"] for case in LONGER}
    assert kinds == {"dynamic", "longrope"}
