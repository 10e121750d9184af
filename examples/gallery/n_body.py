"""Let two turning discs of stars fall into each other; tiles of bodies go through shared memory."""

import numpy as np
import numpy.typing as npt
from shared import coloured, module_of, options, write_png

from uhal import Api, DeviceBuffer

SIGNATURE = "u32 n, f32 dt, const f32* x, const f32* y, f32* vx, f32* vy, f32* next_x, f32* next_y"
BODIES, STEPS, DT, SHOWN = 2048, 240, 0.01, 120


def disc(rng: np.random.Generator, count: int, centre: float) -> npt.NDArray[np.float64]:
    radius = 0.6 * np.sqrt(rng.random(count)) + 0.02
    angle = rng.random(count) * 2 * np.pi
    # A disc holds half of all mass, spread evenly: the mass within r pulls with r² / 0.72.
    speed = np.sqrt(radius / 0.72)
    x, y = radius * np.cos(angle) + centre, radius * np.sin(angle) + centre / 3
    return np.stack([x, y, -speed * np.sin(angle) - centre / 3, speed * np.cos(angle)])


def main() -> None:
    chosen = options(__doc__, "n_body")
    device = Api.quick_init(backend=chosen.backend)
    step = module_of(__file__, device).get_function("step", SIGNATURE)[-(-BODIES // 256), 256]

    rng = np.random.default_rng(1)
    halves = [disc(rng, BODIES // 2, centre) for centre in (-0.8, 0.8)]
    stars = np.concatenate(halves, axis=1).astype(np.float32)
    x, y, vx, vy = (DeviceBuffer.from_numpy(one) for one in stars)
    next_x, next_y = (DeviceBuffer.uninitialized(BODIES, "f32") for _ in range(2))
    before = stars[2:].mean(axis=1)

    light = np.zeros((chosen.size, chosen.size))
    for number in range(STEPS):
        step(BODIES, DT, x, y, vx, vy, next_x, next_y)
        x, y, next_x, next_y = next_x, next_y, x, y
        if number >= STEPS - SHOWN:
            positions = np.stack([y.to_numpy(), x.to_numpy()])
            rows, columns = ((positions / 3.2 + 0.5) * chosen.size).astype(int)
            seen = (rows >= 0) & (rows < chosen.size) & (columns >= 0) & (columns < chosen.size)
            np.add.at(light, (rows[seen], columns[seen]), (number - STEPS + SHOWN + 1) / SHOWN)

    moved = np.abs([vx.to_numpy().mean(), vy.to_numpy().mean()] - before).max()
    assert moved < 1e-3, f"momentum is kept, but changed by {moved}"
    shown = np.log1p(light) / np.log1p(np.quantile(light, 0.998) + 1)
    write_png(chosen.output, coloured(np.clip(shown, 0, 1)))
    print(f"{STEPS} steps of {BODIES} bodies on {device.backend}, momentum kept to {moved:.0e}")


if __name__ == "__main__":
    main()
