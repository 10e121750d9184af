"""Schedules of denoising, against diffusers' samples and a network without error."""

from __future__ import annotations

import json
from itertools import product
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from tests.ubridge.diffusion import judging
from tests.ubridge.diffusion.judging import PREDICTIONS, SEED, SHAPE, SPACINGS, STEPS, kept
from tests.ubridge.models.cases import Array, drawn
from ubridge.files.settings import Settings
from ubridge.models.diffusion.schedule import SCHEDULES, Schedule, Training, schedule
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

CASES = [
    (name, prediction, spacing, eta)
    for name, prediction, spacing in product(SCHEDULES, PREDICTIONS, SPACINGS)
    for eta in ((0.0, 0.7) if name == "ddim" else (0.0,))
]


def advanced(
    plan: Schedule, step: int, x: Array, out: Array, before: Array, noise: Array
) -> tuple[Array, Array]:
    """Return the next x, and x0, from the factors of a step."""
    one = plan.steps[step]
    x0 = one.x0_of_x * x + one.x0_of_out * out
    return one.of_x * x + one.of_x0 * x0 + one.of_before * before + one.of_noise * noise, x0


@pytest.mark.parametrize(("name", "prediction", "spacing", "eta"), CASES)
def test_samples_are_those_of_diffusers(
    name: str, prediction: str, spacing: str, eta: float
) -> None:
    answers, case = kept("schedules"), f"{name} {prediction} {spacing} {eta}"
    config = {"prediction_type": prediction, "timestep_spacing": spacing}
    plan = schedule(name, STEPS, Training.read(Settings(case, config)), eta=eta)
    times = [step.time for step in plan.steps]
    np.testing.assert_allclose(times, answers[f"{case} times"], rtol=1e-6)
    expected = answers[case]
    x, before = drawn("start", SHAPE, SEED) * plan.start, np.zeros(SHAPE)
    np.testing.assert_allclose(x, expected[0], rtol=1e-5)
    for step, one in enumerate(plan.steps):
        out = judging.answered(x * one.scale, step, SEED)
        noise = drawn(f"noise {step}", SHAPE, SEED) if name == "euler-a" or eta else 0 * x
        x, before = advanced(plan, step, x, out, before, noise)
        largest = np.abs(expected[step]).max()
        assert np.abs(x - expected[step + 1]).max() <= 2e-5 * largest, (case, step)


@pytest.mark.parametrize(("name", "prediction"), list(product(SCHEDULES, PREDICTIONS)))
def test_a_network_that_is_right_ends_at_the_image(
    name: str, prediction: str, rng: np.random.Generator
) -> None:
    training = Training(prediction=prediction, ends_clean=True)  # type: ignore[arg-type]
    plan = schedule(name, int(rng.integers(2, 60)), training)
    assert plan.draws == (name == "euler-a")
    image, noise = rng.standard_normal((2, 64))
    of_image, of_noise = plan.noised[0]
    x, before = of_image * image + of_noise * noise, np.zeros(64)
    kept_share = training.kept()
    for step, one in enumerate(plan.steps):
        of_image, of_noise = plan.noised[step]
        e = (x - of_image * image) / of_noise
        a = np.interp(one.time, np.arange(len(kept_share)), 1 / kept_share - 1)
        a = 1 / (a + 1) if one.time == round(one.time) else 1 / (of_noise**2 + 1)
        out = e if prediction == "epsilon" else sqrt(a) * e - sqrt(1 - a) * image
        x, before = advanced(plan, step, x, out, before, rng.standard_normal(64))
        np.testing.assert_allclose(before, image, atol=1e-9)
    np.testing.assert_allclose(x, image, atol=1e-9)


def test_the_table_has_the_factors_in_order(rng: np.random.Generator) -> None:
    plan = schedule("dpm++2m", 7)
    step = int(rng.integers(1, 6))
    one = plan.steps[step]
    row = (one.scale, one.x0_of_x, one.x0_of_out, one.of_x, one.of_x0, one.of_before, one.of_noise)
    np.testing.assert_array_equal(plan.table()[step], np.array(row, np.float32))


def test_wrong_schedules_are_refused() -> None:
    for arguments, message in (
        (("ddpm", 5), "schedule: expected one of ddim, euler, euler-a, dpm\\+\\+2m, got 'ddpm'"),
        (("ddim", 0), "schedule, steps: expected 1 to"),
        (("ddim", 1000), "schedule, steps: expected 1…999, got 1000"),
    ):
        with pytest.raises(ArgumentValueError, match=message):
            schedule(*arguments)
    with pytest.raises(ArgumentTypeError, match="schedule, steps: expected an int, got float"):
        schedule("ddim", 2.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="schedule, eta: euler takes none, only ddim does"):
        schedule("euler", 5, eta=0.5)
    with pytest.raises(ArgumentValueError, match="schedule, eta: expected 0…1, got 2"):
        schedule("ddim", 5, eta=2)
    with pytest.raises(NotSupportedError, match="prediction_type"):
        Training.read(Settings("here", {"prediction_type": "sample"}))


def test_kept_answers_that_were_changed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = bytearray((judging.DATA / "schedules.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "schedules.npz").write_bytes(raw)
    (tmp_path / "schedules.json").write_text(
        json.dumps(json.loads((judging.DATA / "schedules.json").read_text("utf-8")))
    )
    monkeypatch.setattr(judging, "DATA", tmp_path)
    with pytest.raises(ValueError, match=r"schedules.npz: expected sha256"):
        kept("schedules")


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_number_of_steps_has_finite_factors(
    name: str, spacing: str, rng: np.random.Generator
) -> None:
    """With the largest number of steps, the first times are equal, after the last training time."""
    training = Training.read(Settings("here", {"timestep_spacing": spacing, "steps_offset": 1}))
    most = training.times - 1
    for steps in (1, 2, most - 1, most, int(rng.integers(1, most))):
        plan = schedule(name, steps, training)
        assert len(plan.steps) == steps and np.isfinite(plan.table()).all()
