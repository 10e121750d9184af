"""Draw a piece of the Mandelbrot set: one launch, a thread for each pixel."""

import numpy as np
from shared import coloured, module_of, options, write_png

from uhal import Api, DeviceBuffer, LaunchConfig, launch

SIGNATURE = "u32 width, u32 height, f32 left, f32 top, f32 step, u32 limit, f32* out"
LEFT, TOP, WIDE = -0.7485, 0.1163, 0.0105
LIMIT = 2000


def main() -> None:
    chosen = options(__doc__, "mandelbrot")
    device = Api.quick_init(backend=chosen.backend)
    kernel = module_of(__file__, device).get_function("mandelbrot", SIGNATURE)
    width, height = chosen.size, chosen.size * 5 // 8

    out = DeviceBuffer.uninitialized(width * height, "f32")
    config = LaunchConfig.for_num_elems(out.size)
    launch(kernel, args=(width, height, LEFT, TOP, WIDE / width, LIMIT, out), config=config)

    rounds = out.to_numpy().reshape(height, width)
    order = np.log1p(rounds) / np.log1p(rounds.max())
    write_png(chosen.output, coloured(order**2))
    inside = (rounds == 0).mean()
    print(f"{width} x {height} points on {device.backend}, {inside:.0%} of them in the set")


if __name__ == "__main__":
    main()
