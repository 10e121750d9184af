"""Denoise with the schedules of Stable Diffusion, by an exact denoiser in place of the network."""

from math import sqrt

import numpy as np
import numpy.typing as npt
from shared import options, write_png

import ubridge as ub
from ubridge.models.diffusion import SCHEDULES, Schedule, schedule
from uhal import Api

COLUMNS, STEPS = 8, 24


def drawn(size: int) -> npt.NDArray[np.float32]:
    """Eight pictures of values from -1 to 1, a row each."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j][..., None]
    radius, angle, colour = np.hypot(x, y), np.arctan2(y, x), np.arange(3)
    found = [
        np.sin(4 * radius + petals * angle + colour) * np.exp(-(radius**2)) - radius**2 / 2
        for petals in range(2, 10)
    ]
    return np.asarray(found, np.float32).reshape(len(found), -1)


def noise_in(x: ub.DeviceTensor, kept: float, pictures: ub.DeviceTensor) -> ub.DeviceTensor:
    """Estimate the noise in x; the noise has the variance 1 - kept."""
    lengths = ub.sum(ub.square(pictures), 1)
    likely = (x @ pictures.mT * sqrt(kept) - lengths * (kept / 2)) / (1 - kept)
    return (x - ub.softmax(likely) @ pictures * sqrt(kept)) / sqrt(1 - kept)


def steps_of(plan: Schedule, pictures: ub.DeviceTensor) -> list[ub.DeviceTensor]:
    noise = ub.Generator(4)
    x = ub.randn((1, pictures.shape[1]), seed=noise) * plan.start
    before, found = x, []
    for step, (of_image, _) in zip(plan.steps, plan.noised, strict=True):
        out = noise_in(x * step.scale, (of_image * step.scale) ** 2, pictures)
        found.append(x * step.scale)
        x0 = x * step.x0_of_x + out * step.x0_of_out
        x = x * step.of_x + x0 * step.of_x0 + before * step.of_before
        x, before = x + ub.randn(x.shape, seed=noise) * step.of_noise, x0
    return [*found[:: STEPS // (COLUMNS - 1)][: COLUMNS - 1], x]


def main() -> None:
    chosen = options(__doc__, "schedules")
    device = Api.quick_init(backend=chosen.backend)
    size = chosen.size // COLUMNS
    pictures = ub.array(drawn(size))
    rows = []
    for name in SCHEDULES:
        shown = steps_of(schedule(name, STEPS), pictures)
        error = ub.abs(pictures - shown[-1]).to_numpy().mean(1).min()
        assert error < 0.1, (name, error)
        rows.append(np.concatenate([one.reshape(size, size, 3).to_numpy() for one in shown], 1))
    values = np.clip(np.concatenate(rows) * 127.5 + 127.5, 0, 255)
    write_png(chosen.output, values.astype(np.uint8))
    print(f"{STEPS} steps of {len(rows)} schedules on {device.backend}")


if __name__ == "__main__":
    main()
