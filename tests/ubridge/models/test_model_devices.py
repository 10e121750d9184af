"""Models on every backend give the host's logits, and the same bits captured as eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sampling import SOAK, rounds
from tests.ubridge.models.cases import CASES, EQUATIONS, drawn, prompt
from tests.ubridge.models.files import known, shapes_of, written
from tests.ubridge.models.judging import SEED
from tests.ubridge.op_rows import OP_ROWS, row_of
from ubridge.models import Cache, Model
from ubridge.models.text import Session
from uhal import Device
from uhal.errors import NotSupportedError

DEVICES = tuple(row.name for row in OP_ROWS if row.name != "host")
TOLERANCE = 1e-4
READ, STEPS = 4, 3


def verified(cache: Cache, token: int, position: int) -> bool:
    """Return whether a captured step gives the same bits as its operations one by one."""
    assert cache.step is not None
    return bool(cache.step.plan.verify(token=token, position=position))


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator, device: Device) -> Path:
    names = [*CASES, *EQUATIONS]
    case = str(rng.choice(names))
    if device.backend == "tops":
        # GCUs have another GELU, and cannot read experts' ids from device memory.
        plain = [name for name in names if not name.startswith(("falcon", "mixtral", "qwen3_moe"))]
        case = str(rng.choice(plain))
    return written_case(tmp_path, case)


def written_case(folder: Path, case: str) -> Path:
    print(f"case {case}")
    if case in CASES:
        config, weights, _ = known(case)
        return written(folder, config, weights)
    shapes = shapes_of(case, EQUATIONS[case])
    return written(folder, EQUATIONS[case], {n: drawn(n, s, SEED) for n, s in shapes.items()})


@pytest.mark.parametrize("draw", range(rounds(1, 12)))
def test_logits_are_the_hosts(device: Device, folder: Path, draw: int) -> None:
    row_of(device.backend).require_images()
    tokens = prompt(SEED, READ + STEPS)
    with Device(0, backend="host"):
        expected = Model.load(folder)(tokens).to_numpy()
    model = Model.load(folder, device=device)
    with model.cache(32) as cache:
        rows = [model.logits(tokens[:READ], cache).to_numpy()]
        for place in range(READ, len(tokens)):
            rows.append(model.logits(tokens[place : place + 1], cache).to_numpy())
        error = np.abs(np.stack(rows) - expected[READ - 1 :]).max()
        assert error <= TOLERANCE * np.abs(expected).max()
        assert verified(cache, tokens[0], len(tokens))


def test_memory_of_gcus_grows_with_the_text(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GCUs score the cache's whole capacity. The capacity doubles; each capacity has a plan."""
    if device.backend != "tops":
        pytest.skip("of GCUs")
    monkeypatch.setattr("ubridge.models.model._FIRST_ROOM", 2)
    folder = written_case(tmp_path, "llama")
    tokens = prompt(SEED, 6)
    with Device(0, backend="host"):
        expected = Model.load(folder)(tokens).to_numpy()
    model = Model.load(folder, device=device, dtype="f32")
    with model.cache(6) as cache:
        rooms = []
        for place, token in enumerate(tokens):
            got = model.logits([token], cache).to_numpy()
            assert np.abs(got - expected[place]).max() <= TOLERANCE * np.abs(expected).max()
            assert verified(cache, token, place)
            rooms.append(cache.room)
            assert cache.tensors["0.keys"].shape[2] == cache.room
        assert rooms == [2, 2, 4, 4, 6, 6]
    # A saved long text can be restored into a cache that has not grown, and a short text into a
    # grown cache.
    no_tokenizer: Any = None
    sessions = [Session(model, no_tokenizer, 6) for _ in range(2)]
    model.logits(tokens[:5], sessions[0].cache)
    for first, second in (sessions, sessions[::-1]):
        first.save(tmp_path / "text.safetensors")
        second.restore(tmp_path / "text.safetensors")
        got = model.logits(tokens[5:], second.cache).to_numpy()
        assert np.abs(got - expected[5]).max() <= TOLERANCE * np.abs(expected).max()
        second.cache.truncate(5)


@pytest.mark.skipif(not SOAK, reason="a soak's")
def test_experts_on_gcus_say_what_they_lack(tmp_path: Path, device: Device) -> None:
    if device.backend != "tops":
        pytest.skip("of GCUs")
    model = Model.load(written_case(tmp_path, "mixtral"), device=device)
    with pytest.raises(NotSupportedError), model.cache(16) as cache:
        model.logits([1], cache)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_are_near_single_precision(
    host: Device, tmp_path: Path, rng: np.random.Generator, dtype: str
) -> None:
    case = str(rng.choice([*CASES]))
    folder, tokens = written_case(tmp_path, case), prompt(SEED)
    expected = Model.load(folder)(tokens).to_numpy()
    model = Model.load(folder, dtype=dtype)
    got = model(tokens).to_numpy()
    assert got.dtype == np.float32
    # `off` is the root mean square of the rounding errors after two layers.
    off = np.sqrt(np.mean((got - expected) ** 2)) / np.sqrt(np.mean(expected**2))
    is_routed = model.design.experts is not None
    assert 1e-5 < off < (1.0 if is_routed else {"f16": 0.01, "bf16": 0.08}[dtype]), (case, off)
    with model.cache() as cache:
        assert cache.tensors["0.keys"].dtype == dtype
