"""Folders by other programs: MLX's matrices, other prefixes of names, models within models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.ubridge.models.cases import Array, prompt
from tests.ubridge.models.files import known, written
from tests.ubridge.models.judging import SEED
from tests.ubridge.models.test_quantized_experts import assert_near, drawn_model
from tests.ubridge.models.test_rows import compared
from ubridge.models import Model
from ubridge.models.loading import Loader
from ubridge.models.sources import open_source
from ubridge.quantized import QuantizedWeight, dequantize
from uhal import Device
from uhal.errors import NotSupportedError

DTYPES: dict[str, npt.DTypeLike] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}


def packed(integers: Array, bits: int) -> npt.NDArray[np.uint32]:
    """Pack the integers of each row as one long number, the first in its lowest bits."""
    words = []
    for row in integers.reshape(-1, integers.shape[-1]).tolist():
        number = sum(value << (bits * place) for place, value in enumerate(row))
        words.append(np.frombuffer(number.to_bytes(len(row) * bits // 8, "little"), "<u4"))
    return np.stack(words).reshape(*integers.shape[:-1], -1)


def quantized(
    weights: dict[str, Array], rng: np.random.Generator, bits: int, group: int, dtype: str
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Replace each matrix by random integers, scales and biases; return both, and their values."""
    stored, values = {}, {}
    for name, given in weights.items():
        if given.ndim < 2:
            stored[name] = values[name] = given
            continue
        integers = rng.integers(0, 1 << bits, given.shape)
        shape = (*given.shape[:-1], given.shape[-1] // group)
        step = 4 / np.sqrt(given.shape[-1]) / (1 << bits)
        scales = rng.uniform(0.5 * step, step, shape).astype(DTYPES[dtype])
        biases = (-scales.astype(np.float32) * (1 << bits) / 2).astype(DTYPES[dtype])
        stem = name.removesuffix("weight")
        stored |= {name: packed(integers, bits), f"{stem}scales": scales, f"{stem}biases": biases}
        wide = [np.repeat(one.astype(np.float64), group, -1) for one in (scales, biases)]
        values[name] = (integers * wide[0] + wide[1]).astype(np.float32)
    return stored, values


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_of_mlx_have_their_values(
    host: Device, tmp_path: Path, rng: np.random.Generator, bits: int, dtype: str
) -> None:
    config, weights, _ = known("qwen2")
    group = 32
    stored, values = quantized(weights, rng, bits, group, dtype)
    written(tmp_path, {**config, "quantization": {"group_size": group, "bits": bits}}, stored)
    source = open_source(tmp_path, host)
    assert not source.notices and set(source.weights) == set(weights)
    for name, expected in values.items():
        found = source.weights[name]
        if isinstance(found, QuantizedWeight):
            assert bits == 4 and found.format.name == "q4_1"
            got = dequantize(source.weights.raw(name), found.format).reshape(found.shape)
        else:
            assert bits != 4 or dtype == "f32" or expected.ndim < 2
            got = found.to_numpy()
        assert got.shape == expected.shape
        # Product, sum and reference are each rounded once to f32; a product may be twice as large.
        bound = 2**-23 * 4 * np.abs(expected).max()
        assert np.abs(got - expected).max() <= bound, name


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bits", [4, 8])
def test_a_model_of_mlx_is_that_of_its_values(
    device: Device, tmp_path: Path, rng: np.random.Generator, bits: int
) -> None:
    config, weights, _ = known("llama")
    stored, values = quantized(weights, rng, bits, 32, "f16")
    one, other = tmp_path / "mlx", tmp_path / "dense"
    one.mkdir()
    other.mkdir()
    section = {"group_size": 32, "bits": bits}
    both = {**config, "quantization": section, "quantization_config": section}
    model = Model.load(written(one, both, stored), device=device)
    expected = Model.load(written(other, config, values), device=device)(prompt(SEED)).to_numpy()
    # Products with blocks round activations to 8 bits.
    tolerance = 2e-5 if bits == 8 or device.backend == "tops" else 0.1
    compared(model(prompt(SEED)).to_numpy(), expected, "mlx", tolerance)


def test_a_module_may_have_its_own_bits(
    host: Device, tmp_path: Path, rng: np.random.Generator
) -> None:
    config, weights, _ = known("llama")
    stored, _ = quantized(weights, rng, 4, 32, "f16")
    stem = "model.layers.0.mlp.up_proj"
    own = {f"{stem}.weight": weights[f"{stem}.weight"]}
    eight, values = quantized(own, rng, 8, 64, "f16")
    stored |= eight
    section = {"group_size": 32, "bits": 4, stem: {"group_size": 64, "bits": 8}}
    written(tmp_path, {**config, "quantization": section}, stored)
    source = open_source(tmp_path, host)
    assert not source.notices
    found = source.weights[f"{stem}.weight"]
    assert isinstance(found, ub.DeviceTensor)
    np.testing.assert_allclose(found.to_numpy(), values[f"{stem}.weight"], rtol=0, atol=1e-6)


def switched(weights: dict[str, Array]) -> dict[str, Array]:
    """Stack the experts of each layer, with the names of MLX's layer for experts."""
    published = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    kept: dict[str, Array] = {}
    stacked: dict[str, dict[int, Array]] = defaultdict(dict)
    for name, values in weights.items():
        stem, is_expert, rest = name.partition(".experts.")
        if not is_expert:
            kept[name] = values
            continue
        expert, part, kind = rest.split(".")
        joined = f"{stem}.switch_mlp.{published.get(part, part)}.{kind}"
        stacked[joined][int(expert)] = values
    assert stacked
    return kept | {
        name: np.stack([experts[one] for one in range(len(experts))])
        for name, experts in stacked.items()
    }


@pytest.mark.parametrize("case", ["mixtral", "qwen3_moe"])
def test_experts_of_mlx_are_one_matrix_each(host: Device, tmp_path: Path, case: str) -> None:
    config, weights, expected = known(case)
    got = Model.load(written(tmp_path, config, switched(weights)))(prompt(SEED)).to_numpy()
    compared(got, expected, case, 2e-4)


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("case", ["mixtral", "qwen3_moe"])
def test_quantized_experts_of_mlx_have_their_values(
    host: Device, tmp_path: Path, rng: np.random.Generator, seed: int, case: str, bits: int
) -> None:
    """Experts have one tensor for all, or one each as in older files."""
    config, given = drawn_model(case, seed)
    # MLX may give routers more bits than the other matrices.
    routers = {name: one for name, one in given.items() if name.endswith(".gate.weight")}
    others = {name: one for name, one in given.items() if name not in routers}
    stored, values = quantized(others, rng, bits, 32, "f16")
    more, routed = quantized(routers, rng, 8, 64, "f16")
    own = {name.removesuffix(".weight"): {"group_size": 64, "bits": 8} for name in routers}
    section = {"quantization": {"group_size": 32, "bits": bits, **own}}

    def logits(name: str, settings: dict[str, Any], weights: dict[str, Array]) -> Array:
        (tmp_path / name).mkdir()
        model = Model.load(written(tmp_path / name, config | settings, weights))
        return model(prompt(seed)).to_numpy()

    each = logits("each", section, stored | more)
    np.testing.assert_array_equal(logits("stacked", section, switched(stored | more)), each)
    dense = logits("dense", {}, values | routed)
    if bits == 4:
        assert_near(each, dense)
    else:
        compared(each, dense, case, 2e-5)


def test_experts_may_differ_in_kind(
    host: Device, tmp_path: Path, rng: np.random.Generator, seed: int
) -> None:
    """A scale that f16 cannot represent makes all experts of its layer dense."""
    config, given = drawn_model("qwen3_moe", seed)
    stored, values = quantized(given, rng, 4, 32, "f16")
    stem = "model.layers.0.mlp.experts.1.up_proj"
    part = 2.0**-15
    biases = np.repeat(stored[f"{stem}.biases"].astype(np.float64), 32, -1)
    values[f"{stem}.weight"] += (part * (values[f"{stem}.weight"] - biases)).astype(np.float32)
    stored[f"{stem}.scales"] = stored[f"{stem}.scales"].astype(np.float32) * np.float32(1 + part)
    section = {"quantization": {"group_size": 32, "bits": 4}}
    source = open_source(written(tmp_path, config | section, stored), host)
    loader = Loader(source, host, None, None)
    found = {
        one.part: loader.brought(one)
        for one in loader.wanted
        if one.layer == 0 and one.part.startswith("expert_")
    }
    kinds = {name: type(one) for name, one in found.items()}
    dense, blocks = ub.DeviceTensor, QuantizedWeight
    assert kinds == {
        "expert_gate.weight": blocks,
        "expert_up.weight": dense,
        "expert_down.weight": blocks,
    }
    for name, one in found.items():
        own = name.removeprefix("expert_").replace(".", "_proj.")
        stems = (f"model.layers.0.mlp.experts.{expert}" for expert in range(one.shape[0]))
        expected = np.stack([values[f"{stem}.{own}"] for stem in stems])
        # Two roundings to f32 in the reference, two in the product and sum.
        bound = 2**-23 * 4 * np.abs(expected).max()
        assert np.abs(one.to_numpy() - expected).max() <= bound, name


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"group_size": 32, "bits": 7}, r"bits: expected one of"),
        ({"group_size": 32, "bits": 2}, "group_size: expected groups of"),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "mode: expected affine, got mxfp4"),
    ],
)
def test_another_quantization_is_named(
    host: Device, tmp_path: Path, rng: np.random.Generator, section: dict[str, Any], told: str
) -> None:
    config, weights, _ = known("llama")
    stored, _ = quantized(weights, rng, 4, 32, "f16")
    if section["bits"] == 2:
        stored = {k: v[:-1] if k.endswith("down_proj.scales") else v for k, v in stored.items()}
    written(tmp_path, {**config, "quantization": section}, stored)
    with pytest.raises((ub.InvalidFileError, NotSupportedError), match=told):
        Model.load(tmp_path)


# -- names ---------------------------------------------------------------------------------------


def _without(name: str) -> str:
    for root in ("model.", "transformer."):
        name = name.removeprefix(root)
    return name


PREFIXES: dict[str, Callable[[str], str]] = {
    "none": _without,
    "language_model.": lambda name: f"language_model.{name}",
    "model.language_model.": lambda name: (
        name if name.startswith("lm_head") else f"model.language_model.{_without(name)}"
    ),
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("case", ["llama", "gpt_bigcode", "falcon40b", "qwen3", "mixtral"])
def test_names_with_another_prefix(host: Device, tmp_path: Path, case: str, prefix: str) -> None:
    config, weights, expected = known(case)
    renamed = {PREFIXES[prefix](name): values for name, values in weights.items()}
    got = Model.load(written(tmp_path, config, renamed))(prompt(SEED)).to_numpy()
    compared(got, expected, case, 2e-4)


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_the_text_part_of_a_larger_model(
    host: Device, tmp_path: Path, rng: np.random.Generator, prefix: str
) -> None:
    config, weights, expected = known("llama")
    whole = {PREFIXES[prefix](name): values for name, values in weights.items()}
    whole |= {
        name: rng.standard_normal((8, 8)).astype(np.float32)
        for name in ("vision_tower.patch.weight", "model.visual.head.weight", "projector.0.weight")
    }
    outer = {"model_type": "llava", "image_token_index": 5, "text_config": config}
    with pytest.warns(ub.FileWarning) as told:
        model = Model.load(written(tmp_path, outer, whole))
    assert [str(one.message) for one in told] == [
        f"{tmp_path}: 3 tensors outside of the text part are not read"
    ]
    compared(model(prompt(SEED)).to_numpy(), expected, "llava")


def test_other_tensors_of_a_model_of_texts_stay_an_error(host: Device, tmp_path: Path) -> None:
    config, weights, _ = known("llama")
    folder = written(tmp_path, config, {**weights, "other.weight": np.ones(3, np.float32)})
    with pytest.raises(ub.InvalidFileError, match=r"other\.weight .* nothing asks for it"):
        Model.load(folder)
