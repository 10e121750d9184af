"""Times launches, waits and copies on one device: `python benchmarks/device.py --backend cuda`.

Prints medians. On a simulated driver the numbers only describe the simulator.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import ubridge
from uhal import Api, DeviceBuffer, HostBuffer, Stream

BATCHES = 21
CALLS = 500
SIZES = (4 << 10, 1 << 20, 64 << 20)


def median_seconds(act: Callable[[], object], after: Callable[[], object], calls: int) -> float:
    """Median time of a call over batches; `after` ends each batch, untimed."""
    act()
    after()
    times = []
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(calls):
            act()
        times.append(time.perf_counter() - start)
        after()
    return statistics.median(times) / calls


def copies(size: int, stream: Stream) -> dict[str, Callable[[], object]]:
    """Copies of `size` bytes in `stream`, by name."""
    here, there = (DeviceBuffer.zeros(size, "u8") for _ in range(2))
    array = np.zeros(size, "u1")
    pinned = HostBuffer(size, "u8")
    return {
        "pageable to device": lambda: here.copy_from(array, stream=stream),
        "device to pageable": lambda: here.copy_to(array, stream=stream),
        "pinned to device": lambda: here.copy_from_async(pinned, stream),
        "device to pinned": lambda: here.copy_to_async(pinned, stream),
        "device to device": lambda: here.copy_from_async(there, stream),
    }


def and_wait(act: Callable[[], object], stream: Stream) -> Callable[[], object]:
    """The same call, followed by a wait."""

    def both() -> None:
        act()
        stream.synchronize()

    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default=None)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    device = Api.quick_init(options.device, options.backend)
    print(f"{device.backend}:{device.ordinal} {device.name}, driver {Api.get_api_version()}")

    stream = Stream()
    kernel = ubridge.load_module("activation").get_function("activationf32")
    data = DeviceBuffer.zeros(64, "f32")
    launch = kernel[1, 64, 0, stream]
    queued = median_seconds(lambda: launch(data, 8, 8, 0), stream.synchronize, CALLS)
    print(f"launch, queued              {1e6 * queued:9.3f} µs")

    waited = median_seconds(
        and_wait(lambda: launch(data, 8, 8, 0), stream), stream.synchronize, CALLS // 10
    )
    print(f"launch and wait             {1e6 * waited:9.3f} µs")

    for size in SIZES:
        for name, copy in copies(size, stream).items():
            calls = 1 if size > 1 << 20 else 20
            seconds = median_seconds(and_wait(copy, stream), stream.synchronize, calls)
            speed = size / seconds / 1e9
            print(f"{name:<18} {size >> 10:>6} kB {1e6 * seconds:9.1f} µs {speed:7.2f} GB/s")


if __name__ == "__main__":
    main()
