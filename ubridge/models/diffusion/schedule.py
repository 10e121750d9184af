"""Schedules of denoising: DDIM, Euler, Euler ancestral and DPM-Solver++ (2M).

Every step is a sum of four tensors, with factors that depend on the step alone. A `Schedule` is a
table of these factors, computed in f64. The device reads a row by the number of its step.

Notation: t is a time of training, a the product of (1 - beta) up to t. sigma = sqrt((1 - a) / a) is
the noise of a sample of scale 1. The network predicts the noise e ("epsilon"), or v = sqrt(a) e -
sqrt(1 - a) x0 ("v_prediction"; Salimans and Ho, "Progressive Distillation", 2022). Both give x0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import hypot, log, sqrt
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ubridge.core.fits import require
from ubridge.core.operand_checks import whole_number
from ubridge.files.settings import Settings

Array: TypeAlias = npt.NDArray[np.float64]
Prediction: TypeAlias = Literal["epsilon", "v_prediction"]
Spacing: TypeAlias = Literal["leading", "linspace", "trailing"]
_MOST_TIMES = 100_000
_LEAST_KEPT = 2.0**-100
"""Least share of a picture at the last time: its inverse is finite in f32."""


@dataclass(frozen=True)
class Step:
    """Factors of one step.

    `x0 = x0_of_x * x + x0_of_out * out`, then `x = of_x * x + of_x0 * x0 + of_before * before +
    of_noise * noise`. `out` is the network's result and `before` the preceding step's x0.
    """

    time: float
    """Time of training that the network is given."""
    scale: float
    """Factor of x before the network."""
    x0_of_x: float
    x0_of_out: float
    of_x: float
    of_x0: float
    of_before: float = 0.0
    of_noise: float = 0.0


@dataclass(frozen=True)
class Training:
    """Times and noise that a network was trained with, from `scheduler_config.json`."""

    times: int = 1000
    beta_start: float = 0.00085
    beta_end: float = 0.012
    beta_schedule: str = "scaled_linear"
    """Whether beta (`linear`) or its root (`scaled_linear`) grows evenly."""
    prediction: Prediction = "epsilon"
    spacing: Spacing | None = None
    """Choice of times among all; None for the usual choice of a schedule."""
    offset: int = 1
    """Offset that the spacing `leading` adds to its times."""
    ends_clean: bool = False
    """Whether the last step of DDIM ends at a = 1; otherwise it ends at the first time's a."""

    @classmethod
    def read(cls, config: Settings) -> Training:
        """Return the values of a file. Raises `InvalidFileError` and `NotSupportedError`."""
        usual = cls()
        prediction: Any = config.text("prediction_type", usual.prediction, get_args(Prediction))
        spacing: Any = config.text("timestep_spacing", None, get_args(Spacing))
        found = cls(
            config.integer("num_train_timesteps", usual.times, 2, _MOST_TIMES),
            config.number("beta_start", usual.beta_start, above=0, most=1),
            config.number("beta_end", usual.beta_end, above=0, most=1),
            config.text("beta_schedule", usual.beta_schedule, ("linear", "scaled_linear")),
            prediction,
            spacing,
            config.integer("steps_offset", usual.offset, 0, 1),
            config.flag("set_alpha_to_one", usual.ends_clean),
        )
        kept = found.kept()
        if not (kept[-1] > _LEAST_KEPT and kept[0] < 1):
            given = f"beta_start {found.beta_start:g}, beta_end {found.beta_end:g}"
            raise config.refuse("beta_end", "noise that grows and leaves some of a picture", given)
        return found

    def kept(self) -> Array:
        """Return a of each time: the share of x0's variance in x."""
        power = 2 if self.beta_schedule == "scaled_linear" else 1
        ends = self.beta_start ** (1 / power), self.beta_end ** (1 / power)
        betas = np.linspace(*ends, self.times) ** power
        return np.cumprod(1 - betas, dtype=np.float64)


@dataclass(frozen=True)
class Schedule:
    """All steps of one way to denoise, for a network's training."""

    name: str
    steps: tuple[Step, ...]
    start: float
    """Factor of the noise that the first step begins with."""
    noised: tuple[tuple[float, float], ...]
    """For each step, factors of x0 and of noise that make its x from an image."""

    @property
    def draws(self) -> bool:
        """Return whether steps add noise."""
        return any(step.of_noise for step in self.steps)

    def begun_at(self, step: int) -> Schedule:
        """Return the steps from index `step` on; the first of them has no preceding x0."""
        first = self.steps[step]
        first = replace(first, of_x0=first.of_x0 + first.of_before, of_before=0.0)
        steps = (first, *self.steps[step + 1 :])
        return replace(self, steps=steps, noised=self.noised[step:])

    def table(self) -> npt.NDArray[np.float32]:
        """Return the factors behind `time`: (steps, 7), in the order of `Step`'s fields."""
        names = list(Step.__dataclass_fields__)[1:]
        rows = [[getattr(step, name) for name in names] for step in self.steps]
        return np.array(rows, np.float32)


def schedule(
    name: str, steps: int, training: Training | None = None, *, eta: float = 0.0
) -> Schedule:
    """Return the schedule of a name in `SCHEDULES`, with a number of steps.

    `eta` is the share of new noise that DDIM draws in each step: 0 for none, 1 for as much as in
    training. Raises `ArgumentValueError` for an unknown name, for more steps than times, and for an
    `eta` outside 0…1 or of another schedule.
    """
    trained = training or Training()
    known, most = ", ".join(SCHEDULES), trained.times - 1
    require(name in SCHEDULES, f"schedule: expected one of {known}, got {name!r}")
    count = whole_number("schedule, steps", steps, 1)
    require(count <= most, f"schedule, steps: expected 1…{most}, got {count}")
    require(0 <= eta <= 1, f"schedule, eta: expected 0…1, got {eta}")
    require(eta == 0 or name == "ddim", f"schedule, eta: {name} takes none, only ddim does")
    return SCHEDULES[name](count, trained, eta)


def _ddim(count: int, training: Training, eta: float) -> Schedule:
    """Song, Meng and Ermon, "Denoising Diffusion Implicit Models" (2021), equations 12 and 16.

    `_built` with alpha = sqrt(a) and sigma = sqrt(1 - a).
    """
    kept = training.kept()
    times = np.round(_times(count, training, training.spacing or "leading")).astype(int)
    times = np.minimum(times, training.times - 1)
    before = times - training.times // count
    after = np.where(before >= 0, kept[before], 1.0 if training.ends_clean else kept[0])
    starts, ends = (np.stack([np.sqrt(a), np.sqrt(1 - a)], 1) for a in (kept[times], after))
    return _built("ddim", training, times, starts, ends, eta=eta)


def _euler(count: int, training: Training, eta: float, name: str = "euler") -> Schedule:
    """Karras et al., "Elucidating the Design Space" (2022), algorithm 1 in its first order.

    `_built` with alpha = 1. The ancestral form draws as much noise as DDIM with an `eta` of 1.
    """
    spacing = training.spacing or "linspace"
    times = _times(count, training, spacing)
    sigmas = _sigmas(times, training)
    levels = np.stack([np.ones_like(sigmas), sigmas], 1)
    most = float(sigmas.max())
    start = hypot(most, 1) if spacing == "leading" else most
    return _built(name, training, times, levels[:-1], levels[1:], eta=eta, start=start)


def _dpm(count: int, training: Training, eta: float) -> Schedule:
    """Lu et al., "DPM-Solver++" (2022), algorithm 2, in its second order by two steps."""
    spacing = training.spacing or "linspace"
    # One more time than steps is computed; the last is the clean end and is dropped.
    more = spacing != "trailing"
    times = np.round(_times(count + more, training, spacing))[:count]
    sigmas = _sigmas(times, training)
    levels = np.stack([np.ones_like(sigmas), sigmas], 1) / np.hypot(sigmas, 1)[:, None]
    return _built("dpm++2m", training, times, levels[:-1], levels[1:], is_second=True)


def _times(count: int, training: Training, spacing: Spacing) -> Array:
    """Times of the steps, latest first."""
    whole = training.times
    if spacing == "linspace":
        return np.linspace(0, whole - 1, count)[::-1]
    if spacing == "leading":
        return (np.arange(count, dtype=np.float64) * (whole // count))[::-1] + training.offset
    return np.round(np.arange(whole, 0, -whole / count, dtype=np.float64))[:count] - 1


def _sigmas(times: Array, training: Training) -> Array:
    """Noise at times, between whole times by interpolation; the last is 0."""
    kept = training.kept()
    whole = np.sqrt((1 - kept) / kept)
    return np.append(np.interp(times, np.arange(len(whole)), whole), 0.0)


def _built(
    name: str,
    training: Training,
    times: Array,
    starts: Array,
    ends: Array,
    *,
    eta: float = 0.0,
    is_second: bool = False,
    start: float = 1.0,
) -> Schedule:
    """Return the steps from `starts` to `ends`, whose rows hold alpha and sigma.

    A sample is alpha x0 + sigma e.

    With q = (sigma' / alpha') / (sigma / alpha) and up = eta sigma' sqrt(1 - q^2), the noise e goes
    down to sqrt(sigma'^2 - up^2), and new noise of size up is drawn. The second order adds (x0 -
    before) log(q) / (2 log(q of the preceding step)) to x0. The first step lacks this term because
    it has no x0 before, the last step because q is 0. A step after one of constant noise, with a q
    of 1, lacks it too.
    """
    steps, preceding = [], 0.0
    for time, (alpha, sigma), (end, rest) in zip(
        times.tolist(), starts.tolist(), ends.tolist(), strict=True
    ):
        quotient = rest * alpha / (end * sigma)
        up = eta * rest * sqrt(max(1 - quotient**2, 0.0))
        of_x = sqrt(max(rest**2 - up**2, 0.0)) / sigma
        of_x0, second, scale = end - alpha * of_x, 0.0, 1 / hypot(alpha, sigma)
        if is_second and 0 < preceding < 1 and quotient:
            second = of_x0 * log(quotient) / (2 * log(preceding))
        preceding = quotient
        if training.prediction == "epsilon":
            x0 = (1 / alpha, -sigma / alpha)
        else:
            x0 = (scale * scale * alpha, -scale * sigma)
        steps.append(Step(time, scale, *x0, of_x, of_x0 + second, -second, up))
    noised = tuple((alpha, sigma) for alpha, sigma in starts.tolist())
    return Schedule(name, tuple(steps), start, noised)


SCHEDULES: Mapping[str, Callable[[int, Training, float], Schedule]] = {
    "ddim": _ddim,
    "euler": _euler,
    "euler-a": lambda count, training, _: _euler(count, training, 1.0, "euler-a"),
    "dpm++2m": _dpm,
}
"""Functions by name: each makes a schedule from a number of steps, a training and DDIM's eta."""
