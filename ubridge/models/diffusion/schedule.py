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
from math import exp, log, sqrt
from typing import Any, Literal, TypeAlias

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
    """Added to times of `leading`."""
    ends_clean: bool = False
    """Whether the last step of DDIM ends at a = 1; otherwise it ends at the first time's a."""

    @classmethod
    def read(cls, config: Settings) -> Training:
        """Return the values of a file. Raises `InvalidFileError` and `NotSupportedError`."""
        usual = cls()
        spacing: Any = config.text("timestep_spacing", None, ("leading", "linspace", "trailing"))
        prediction: Any = config.text(
            "prediction_type", usual.prediction, ("epsilon", "v_prediction")
        )
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
        """Return the steps from a number on; the first of them has no x0 before it."""
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

    `eta` is the share of noise that DDIM draws anew in each step: 0 for none, 1 for as much as in
    training. Raises `ArgumentValueError` for an unknown name, for more steps than times, and for an
    `eta` outside 0…1 or of another schedule.
    """
    trained = training or Training()
    require(
        name in SCHEDULES,
        f"schedule: expected one of {', '.join(SCHEDULES)}, got {name!r}",
    )
    most = trained.times - 1
    count = whole_number("schedule, steps", steps, 1)
    require(count <= most, f"schedule, steps: expected 1…{most}, got {count}")
    require(0 <= eta <= 1, f"schedule, eta: expected 0…1, got {eta}")
    require(eta == 0 or name == "ddim", f"schedule, eta: {name} takes none, only ddim does")
    return SCHEDULES[name](count, trained, eta)


def _times(count: int, training: Training, spacing: Spacing) -> Array:
    """Times of the steps, latest first."""
    whole = training.times
    if spacing == "linspace":
        return np.linspace(0, whole - 1, count)[::-1]
    if spacing == "leading":
        return (np.arange(count, dtype=np.float64) * (whole // count))[::-1] + training.offset
    return np.round(np.arange(whole, 0, -whole / count, dtype=np.float64))[:count] - 1


def _of_epsilon(alpha: float, sigma: float, training: Training) -> tuple[float, float]:
    """Factors of x and of the network's result in x0, where x = alpha x0 + sigma e."""
    if training.prediction == "epsilon":
        return 1 / alpha, -sigma / alpha
    return alpha, -sigma


def _ddim(count: int, training: Training, eta: float) -> Schedule:
    """Song, Meng and Ermon, "Denoising Diffusion Implicit Models" (2021), equations 12 and 16.

    x' = sqrt(a') x0 + sqrt(1 - a' - s^2) e + s noise, where
    s = eta sqrt((1 - a') / (1 - a)) sqrt(1 - a / a').
    """
    kept = training.kept()
    times = np.round(_times(count, training, training.spacing or "leading")).astype(int)
    times = np.minimum(times, training.times - 1)
    last = 1.0 if training.ends_clean else float(kept[0])
    steps, noised = [], []
    for time in times.tolist():
        before = time - training.times // count
        a, after = float(kept[time]), float(kept[before]) if before >= 0 else last
        noise = eta * sqrt((1 - after) / (1 - a)) * sqrt(max(1 - a / after, 0))
        of_e = sqrt(max(1 - after - noise**2, 0)) / sqrt(1 - a)
        steps.append(
            Step(
                time,
                1.0,
                *_of_epsilon(sqrt(a), sqrt(1 - a), training),
                of_x=of_e,
                of_x0=sqrt(after) - of_e * sqrt(a),
                of_noise=noise,
            )
        )
        noised.append((sqrt(a), sqrt(1 - a)))
    return Schedule("ddim", tuple(steps), 1.0, tuple(noised))


def _sigmas(times: Array, training: Training) -> Array:
    """Noise at times, between whole times by interpolation; the last is 0."""
    kept = training.kept()
    whole = np.sqrt((1 - kept) / kept)
    return np.append(np.interp(times, np.arange(len(whole)), whole), 0.0)


def _euler(count: int, training: Training, eta: float, ancestral: bool = False) -> Schedule:
    """Karras et al., "Elucidating the Design Space" (2022), algorithm 1 in its first order.

    x = x0 + sigma e, which the network takes divided by sqrt(sigma^2 + 1). With d = (x - x0) /
    sigma, x' = x + (sigma' - sigma) d. The ancestral form goes down to a lower noise, and draws the
    rest: up = sqrt(sigma'^2 (sigma^2 - sigma'^2) / sigma^2), down = sqrt(sigma'^2 - up^2).
    """
    spacing = training.spacing or "linspace"
    times = _times(count, training, spacing)
    sigmas = _sigmas(times, training)
    steps = []
    for time, sigma, after in zip(
        times.tolist(), sigmas.tolist(), sigmas[1:].tolist(), strict=False
    ):
        up = sqrt(after**2 * (sigma**2 - after**2) / sigma**2) if ancestral else 0.0
        down = sqrt(after**2 - up**2)
        wide = sqrt(sigma**2 + 1)
        # x / wide = (x0 + sigma e) / wide is a sample of the training.
        of_x, of_out = _of_epsilon(1 / wide, sigma / wide, training)
        steps.append(
            Step(
                time,
                1 / wide,
                of_x / wide,
                of_out,
                of_x=down / sigma,
                of_x0=1 - down / sigma,
                of_noise=up,
            )
        )
    most = float(sigmas.max())
    start = sqrt(most**2 + 1) if spacing == "leading" else most
    noised = tuple((1.0, sigma) for sigma in sigmas[:-1].tolist())
    return Schedule("euler-a" if ancestral else "euler", tuple(steps), start, noised)


def _euler_ancestral(count: int, training: Training, eta: float) -> Schedule:
    """`_euler` with noise in each step."""
    return _euler(count, training, eta, ancestral=True)


def _dpm(count: int, training: Training, eta: float) -> Schedule:
    """Lu et al., "DPM-Solver++" (2022), algorithm 2, in its second order by two steps.

    alpha = 1 / sqrt(sigma^2 + 1), s = sigma alpha, l = log(alpha / s) and h = l' - l. With y and k
    for x0 and l of the preceding step, r = (l - k) / h, and
    x' = s' / s x - alpha' (exp(-h) - 1) (x0 + (x0 - y) / (2 r)).
    The first and the last step lack the term of y: the last h is infinite.
    """
    spacing = training.spacing or "linspace"
    # All but the last of one time more, which is the clean end.
    if spacing == "trailing":
        times = _times(count, training, spacing)
    else:
        times = np.round(_times(count + 1, training, spacing))[:-1]
    sigmas = _sigmas(times, training).tolist()
    steps, noised = [], []
    for index, (time, sigma, after) in enumerate(
        zip(times.tolist(), sigmas, sigmas[1:], strict=False)
    ):
        alpha, end = 1 / sqrt(sigma**2 + 1), 1 / sqrt(after**2 + 1)
        h = log(sigma / after) if after else float("inf")
        of_x0 = end * (1 - exp(-h))
        step = Step(
            time,
            1.0,
            *_of_epsilon(alpha, sigma * alpha, training),
            of_x=after * end / (sigma * alpha),
            of_x0=of_x0,
        )
        # Two times behind the last have equal noise, and no second order.
        if index and after and sigma < sigmas[index - 1]:
            second = of_x0 * h / (2 * log(sigmas[index - 1] / sigma))
            step = replace(step, of_x0=of_x0 + second, of_before=-second)
        steps.append(step)
        noised.append((alpha, sigma * alpha))
    return Schedule("dpm++2m", tuple(steps), 1.0, tuple(noised))


SCHEDULES: Mapping[str, Callable[[int, Training, float], Schedule]] = {
    "ddim": _ddim,
    "euler": _euler,
    "euler-a": _euler_ancestral,
    "dpm++2m": _dpm,
}
"""By name, what makes a schedule of a number of steps, a training and DDIM's eta."""
