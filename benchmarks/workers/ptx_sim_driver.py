"""Times kernels of ptx_sim.ptx through uhal on the simulated driver; prints JSON for ptx_sim.py.

    python -m benchmarks.workers.ptx_sim_driver SIZE

UHAL_CUDA_LIBRARY names the driver, UHAL_SIM_CHECK its checks.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.ptx_sim import BLOCK, KERNELS_OF, REPEATS, TEXT, TINY_LAUNCHES, forms
from uhal import Api, DeviceBuffer, Module


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of the fastest of several runs."""
    wall, used = [], []
    for _ in range(REPEATS):
        start, processor = time.perf_counter(), time.process_time()
        action()
        wall.append(time.perf_counter() - start)
        used.append(time.process_time() - processor)
    return min(wall), min(used)


def main(size: int) -> None:
    """Print the times by kernel and form, and of one small launch."""
    device = Api.quick_init(0, "cuda")
    rng = np.random.default_rng()
    arrays = [DeviceBuffer.from_numpy(rng.normal(size=size).astype("f4")) for _ in range(3)]
    times: dict[str, tuple[float, float]] = {}
    with Module.from_file(TEXT) as module:
        for name, count in KERNELS_OF.items():
            for form, blocks in forms(size):
                length = "u64 n" if form else "u32 n"
                signature = ", ".join([length, *(f"f32* a{index}" for index in range(count))])
                kernel = module.get_function(name + form, signature)
                run = kernel[blocks, BLOCK]
                given = [size, *arrays[:count]]

                def launch(run: Callable[..., object] = run, given: list[object] = given) -> None:
                    run(*given)
                    device.synchronize()

                launch()
                times[name + form] = timed(launch)
        nothing = module.get_function("nothing")[1, 32]

        def many() -> None:
            for _ in range(TINY_LAUNCHES):
                nothing(arrays[0])
            device.synchronize()

        wall, used = timed(many)
        times["one block"] = (wall / TINY_LAUNCHES, used / TINY_LAUNCHES)
    print(json.dumps(times))


if __name__ == "__main__":
    main(int(sys.argv[1]))
