"""Memory that a model takes on a device, for every kind of file and recipe."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf")

from tests.sampling import SOAK
from tests.ubridge.models.cases import CASES, drawn, prompt
from tests.ubridge.models.files import known, written
from tests.ubridge.models.gguf_files import all_of, written_gguf
from tests.ubridge.models.judging import SEED
from tests.ubridge.models.test_gguf_models import wide_weights
from ubridge import DeviceExecutor
from ubridge.files.errors import FileWarning
from ubridge.models import Model
from ubridge.models.loading import Loader
from ubridge.models.sources import open_source
from ubridge.quantized import ENCODED, QuantizedWeight
from ubridge.recipes import MIXTURES
from uhal import Device
from uhal.dtypes import as_dtype
from uhal.errors import ArgumentValueError, NotSupportedError
from uhal.frameworks import CallTable

DEVICES = ("host", "tops")
WAYS: tuple[dict[str, Any], ...] = (
    {"dtype": None},
    {"dtype": "f16"},
    {"dtype": "bf16"},
    {"quantize": "q8_0"},
    {"quantize": "Q4_K_M"},
)


def loader_of(path: Path, device: Device, dtype: str | None = None, **more: Any) -> Loader:
    kind = None if dtype is None else as_dtype(dtype)
    return Loader(open_source(path, device), device, kind, more.get("quantize"))


def taken(loader: Loader) -> tuple[int, Any]:
    """Load a model; return the bytes that its weights requested from the pool."""
    before = requested(loader.device)
    parts = loader.load(None)
    return requested(loader.device) - before, parts


def requested(device: Device) -> int:
    """Return the bytes requested from the pool, without arrays that remembered calls keep."""
    DeviceExecutor.of(device).remembered = CallTable()
    device.synchronize()
    return device.memory_stats()["requested_bytes.all.current"]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_is_said_is_what_is_taken(
    host: Device, tmp_path: Path, rng: np.random.Generator, way: dict[str, Any]
) -> None:
    names = list(CASES) if SOAK else ["qwen3_moe", *map(str, rng.choice(list(CASES), 6))]
    for case in names:
        folder = written(tmp_path, *known(case)[:2])
        loader = loader_of(folder, host, **way)
        took, (outside, layers) = taken(loader)
        heads = sum(outside[one].nbytes for one in ("ones", "zeros") if one in outside)
        # The layouts that kernels read stay in memory, too.
        assert 0 <= took - heads - loader.allocated < 2048, case
        whole = sum(one.nbytes for part in (outside, *layers) for one in part.values())
        assert whole - heads == loader.nbytes, case
        del outside, layers


def test_blocks_in_a_file_that_become_dense_are_counted_as_dense(
    device: Device, tmp_path: Path
) -> None:
    config, weights, _ = known("llama")
    path = written_gguf(tmp_path / "a.gguf", config, weights, all_of("Q8_0"))
    loader = loader_of(path, device)
    took, _ = taken(loader)
    dense = sum(values.size for values in weights.values()) * loader.dtype.itemsize
    assert took == (dense if device.backend == "tops" else 0) == loader.allocated


def test_a_device_without_products_of_blocks_refuses_to_quantize(
    device: Device, tmp_path: Path
) -> None:
    folder = written(tmp_path, *known("llama")[:2])
    if device.backend == "tops":
        with pytest.raises(NotSupportedError, match=r"quantize='q8_0': .*Load without quantize="):
            Model.load(folder, device=device, quantize="q8_0")
    else:
        Model.load(folder, device=device, quantize="q8_0")


@pytest.mark.parametrize("format", [*ENCODED, *MIXTURES])
def test_a_format_at_load_is_that_or_what_is_said(
    host: Device, tmp_path: Path, format: str, recwarn: pytest.WarningsRecorder
) -> None:
    if format in ("q8_1", "q8_K"):
        pytest.skip("of activations")
    config, weights, _ = known("llama")
    name = "model.layers.0.mlp.down_proj.weight"
    folder = written(tmp_path, {**config, "intermediate_size": 96}, weights)
    assert weights[name].shape == (64, 96)
    loader = loader_of(folder, host, quantize=format.upper())
    _, layers = loader.load(None)
    parts = [one for part in layers for one in part.values()]
    kinds = Counter(one.format.name for one in parts if isinstance(one, QuantizedWeight))
    assert kinds.total() == 2 * 7
    assert (dict(kinds) == {format: 14}) == (not loader.notices)
    for told in loader.notices:
        assert told.startswith(f"{folder}: quantize {loader.recipe.name}: ")  # type: ignore[union-attr]
        assert all(f"matrices became {kind}" in told for kind in kinds)


def test_a_fallback_is_said_once_and_near_the_model(host: Device, tmp_path: Path) -> None:
    config, weights, expected = known("llama")
    folder = written(tmp_path, config, weights)
    with pytest.warns(FileWarning, match=r"quantize q6_K: 1[56] matrices became q8_0, for their"):
        got = Model.load(folder, quantize="Q6_K")(prompt(SEED)).to_numpy()
    error = np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2))
    assert 1e-4 < error < 0.05


def test_rows_that_fit_no_format_stay_and_are_counted(host: Device, tmp_path: Path) -> None:
    config, weights, _ = known("llama")
    for layer in range(2):
        own = f"model.layers.{layer}.mlp"
        for part, shape in (("gate", (90, 64)), ("up", (90, 64)), ("down", (64, 90))):
            weights[f"{own}.{part}_proj.weight"] = drawn(part, shape, SEED)
    folder = written(tmp_path, {**config, "intermediate_size": 90}, weights)
    with pytest.warns(FileWarning, match=r"quantize q8_0: 2 matrices stayed as they were"):
        Model.load(folder, quantize="q8_0")


def test_a_mixture_is_finer_where_llama_cpp_is(host: Device, tmp_path: Path, seed: int) -> None:
    config, weights = wide_weights(seed)
    loader = loader_of(written(tmp_path, config, weights), host, quantize="q4_k_m")
    outside, layers = loader.load(None)
    assert not loader.notices
    finer = [
        (i, name)
        for i, part in enumerate(layers)
        for name, one in part.items()
        if isinstance(one, QuantizedWeight) and one.format.name == "q6_K"
    ]
    # The last of three layers is finer: (i - 3 // 8) % 3 == 2, and i >= 7 * 3 // 8.
    assert sorted(finer) == [(2, "down.weight"), (2, "v.weight")]
    head = outside["head.weight"]
    assert isinstance(head, QuantizedWeight) and head.format.name == "q6_K"


@pytest.mark.parametrize("name", ["q9", "iq2_xxs", "", "Q4_K_L"])
def test_a_format_that_is_not_written_is_refused_before_anything_is_read(
    host: Device, tmp_path: Path, name: str
) -> None:
    folder = written(tmp_path, *known("llama")[:2])
    with pytest.raises(ArgumentValueError, match=r"expected one of q4_0, .*Q4_K_M, ") as told:
        Model.load(folder, quantize=name)
    assert "iq2_xs," not in str(told.value)
