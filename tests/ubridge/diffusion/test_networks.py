"""The networks and whole denoising runs, against diffusers' answers for the same drawn weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.diffusion.files import written
from tests.ubridge.diffusion.judging import (
    CONFIGS,
    GUIDANCE,
    LATENTS,
    PICTURES,
    SCHEDULES,
    SEED,
    STEPS,
    TILED,
    TIMES,
    kept,
    tokens_of,
)
from tests.ubridge.models.cases import Array, drawn
from ubridge.models.diffusion import StableDiffusion, layers, schedule
from uhal import Device

DEVICES = ("host", "cuda-sim", "opencl")
"""Devices of `device`. Most cases run only on the host, because other devices translate kernels
first."""
TOLERANCE = 1e-4


def tensor(name: str, shape: tuple[int, ...], dtype: str = "f32") -> ub.DeviceTensor:
    return ub.asarray(drawn(name, shape, SEED)).astype(dtype, copy=False)


def embedded(model: StableDiffusion, case: str) -> ub.DeviceTensor:
    return model._networks.text_encoder(ub.asarray(tokens_of(case)))


def assert_near(got: ub.DeviceTensor, expected: Array, what: str) -> None:
    values = got.astype("f32", copy=False).to_numpy()
    assert values.shape == expected.shape, what
    error = np.abs(values - expected).max() / max(1.0, np.abs(expected).max())
    assert error <= TOLERANCE, f"{what}: {error:.1e}"


@pytest.mark.drawn(1)
@pytest.mark.parametrize("case", CONFIGS)
def test_networks_are_those_of_diffusers(device: Device, tmp_path: Path, case: str) -> None:
    model, answers = StableDiffusion.load(written(tmp_path, case)), kept(case)
    text = embedded(model, case)
    assert_near(text, answers["text"], "text")
    shape, vae = LATENTS[case], model._networks.vae
    latents = tensor("latents", shape)
    got = model.predict(latents, TIMES[case], text[: shape[0]].contiguous())
    assert_near(got, answers["predicted"], "UNet")
    mean, spread = vae.encode(tensor("picture", PICTURES[case]))
    assert_near(mean, answers["mean"], "mean")
    assert_near(spread, answers["spread"], "standard deviation")
    assert_near(vae.decode(latents), answers["decoded"], "decoder")


@pytest.mark.parametrize("case", CONFIGS)
def test_tiles_are_those_of_diffusers(host: Device, tmp_path: Path, case: str) -> None:
    model, answers = StableDiffusion.load(written(tmp_path, case)), kept(case)
    vae, shape = model._networks.vae, TILED[case]
    assert_near(vae.decode(tensor("tiles", shape)), answers["tiled"], "decoder")
    picture = (1, 3, *(one * vae.design.factor for one in shape[2:]))
    mean, _ = vae.encode(tensor("tiled picture", picture))
    assert_near(mean, answers["tiled mean"], "encoder")


def denoised(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: str, name: str
) -> ub.DeviceTensor:
    """Return latents after ten steps with guidance, from stored noise."""
    model = StableDiffusion.load(written(folder, case))
    plan = schedule(name, STEPS, model.version.training)
    shape = (1, *LATENTS[case][1:])
    noise = iter([tensor(f"noise {step}", shape) for step in range(STEPS)])
    monkeypatch.setattr(model, "_noise", lambda *_: next(noise))
    start, text = tensor("start", shape) * plan.start, embedded(model, case)
    return model.denoise(start, text, plan, GUIDANCE, [ub.Generator(1)])


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("case", CONFIGS)
def test_ten_steps_are_those_of_diffusers(
    host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, name: str
) -> None:
    assert_near(denoised(tmp_path, monkeypatch, case, name), kept(case)[f"after {name}"], name)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", SCHEDULES)
def test_ten_steps_on_a_device_that_compiles(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_near(denoised(tmp_path, monkeypatch, "v1", name), kept("v1")[f"after {name}"], name)


@pytest.mark.parametrize(("dtype", "torchs"), [("f16", "float16"), ("bf16", "bfloat16")])
@pytest.mark.parametrize("case", CONFIGS)
def test_halves_err_at_most_twice_as_much_as_torch(
    host: Device, tmp_path: Path, case: str, dtype: str, torchs: str
) -> None:
    model, answers = StableDiffusion.load(written(tmp_path, case), dtype=dtype), kept(case)
    text, shape = embedded(model, case), LATENTS[case]
    latents = tensor("latents", shape, dtype)
    for what, got in (
        ("text", text),
        ("predicted", model.predict(latents, TIMES[case], text[: shape[0]].contiguous())),
        ("decoded", model._networks.vae.decode(latents)),
    ):
        assert got.dtype.name == dtype
        wide = got.astype("f32").to_numpy()
        error = float(np.sqrt(np.mean((wide - answers[what]) ** 2)))
        assert error <= 2 * answers[f"{what} {torchs}"], (what, error, answers[f"{what} {torchs}"])


@pytest.mark.parametrize("width", [48, 288, 512])
def test_heads_of_every_width_attend(
    host: Device, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, width: int
) -> None:
    monkeypatch.setattr(layers, "_MOST_SCORES", 70)
    wanted = layers.Take()
    layers.attention(wanted / "a", width, 1, bias=True)
    take = layers.Take({name: tensor(name, shape) for name, shape in wanted.wanted.items()})
    layer = layers.attention(take / "a", width, 1, bias=True)
    x = rng.standard_normal((2, 23, width)).astype(np.float32)

    def product(part: str, given: Array) -> Array:
        weight = drawn(f"a.{part}.weight", (width, width), SEED).astype(np.float64)
        found: Array = given @ weight.T + drawn(f"a.{part}.bias", (width,), SEED)
        return found

    query, key, value = (product(f"to_{one}", x.astype(np.float64)) for one in "qkv")
    scores = np.exp(query @ key.swapaxes(1, 2) / np.sqrt(width))
    expected = product("to_out.0", scores / scores.sum(-1, keepdims=True) @ value)
    assert_near(layer(ub.asarray(x)), expected, f"width {width}")
