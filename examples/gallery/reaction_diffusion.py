"""Grow a pattern of Gray and Scott's reaction: two steps are captured and replayed as one call."""

import numpy as np
from shared import coloured, module_of, options, write_png

from uhal import Api, DeviceBuffer, LaunchConfig, Stream, launch

SIGNATURE = (
    "u32 width, u32 height, f32 feed, f32 kill, const f32* u, const f32* v, f32* next_u, "
    "f32* next_v"
)
FEED, KILL = 0.0545, 0.0620
REPLAYS = 3000


def main() -> None:
    chosen = options(__doc__, "reaction_diffusion")
    device = Api.quick_init(backend=chosen.backend)
    kernel = module_of(__file__, device).get_function("react", SIGNATURE)
    width = height = chosen.size // 2
    config = LaunchConfig.for_num_elems(width * height)

    start = np.zeros((2, height, width), np.float32)
    start[0] = 1
    rng = np.random.default_rng(3)
    for row, column in rng.integers(0, width - 8, (24, 2)):
        start[:, row : row + 8, column : column + 8] = [[[0.5]], [[0.25]]]
    u, v = (DeviceBuffer.from_numpy(one.ravel()) for one in start)
    next_u, next_v = (DeviceBuffer.uninitialized(u.size, "f32") for _ in range(2))

    stream = Stream()
    with stream.capture("two steps") as plan:
        for fields in ((u, v, next_u, next_v), (next_u, next_v, u, v)):
            args = (width, height, FEED, KILL, *fields)
            launch(kernel, args=args, config=config, stream=stream)
    for _ in range(REPLAYS):
        plan.replay(stream)
    stream.synchronize()

    grown = v.to_numpy().reshape(height, width)
    assert np.isfinite(grown).all() and grown.min() >= 0 and grown.max() < 1
    pixels = coloured(grown / grown.max())
    write_png(chosen.output, pixels.repeat(2, axis=0).repeat(2, axis=1))
    print(f"{2 * REPLAYS} steps of {width} x {height} cells on {device.backend}")


if __name__ == "__main__":
    main()
