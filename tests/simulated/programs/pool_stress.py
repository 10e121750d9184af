"""Eight streams that make, use, read and free buffers at random: `pool_stress.py SEED TURNS`.

Each buffer's expected contents are known, and memory is freed while work on it is pending. Prints
`clean` and counts, or `stale` and the fault. With a third argument, launches take raw addresses, so
the pool does not learn of them.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.simulated.process import IMAGES
from uhal import (
    Api,
    Device,
    DeviceBuffer,
    DevicePointer,
    HostBuffer,
    Module,
    Stream,
    StreamFlags,
    diagnostics,
)
from uhal._lane import address_of
from uhal.errors import DeviceError

STREAMS = 8
MOST_HELD = 30
SIZES = (1, 64, 1000, 5000, 70_000)
Contents = np.ndarray[tuple[int], np.dtype[np.uint32]]


@dataclass
class Held:
    """A buffer, the stream that orders its contents, and the expected contents."""

    buffer: DeviceBuffer
    expected: Contents
    stream: Stream


@dataclass
class Read:
    """Pinned memory whose contents are `expected` after `stream`'s work; its source may be
    freed."""

    pinned: HostBuffer
    expected: Contents
    stream: Stream


class Stress:
    """The program orders data by events; the pool orders memory."""

    def __init__(self, device: Device, seed: int, untracked: bool) -> None:
        images = {
            name: Module.from_file(IMAGES / f"{name}.fatbin.gz") for name in ("fill", "binary")
        }
        self.fill: Any = images["fill"].get_function("fill_u32")
        self.add: Any = images["binary"].get_function("badd_u32")
        self.device = device
        self.untracked = untracked
        self.rng = np.random.default_rng(seed)
        self.streams = [Stream(StreamFlags.NON_BLOCKING) for _ in range(STREAMS)]
        self.held: list[Held] = []
        self.reads: list[Read] = []
        self.checks = 0

    def turn(self, number: int) -> None:
        stream = self.streams[self.rng.integers(STREAMS)]
        match self.rng.integers(10):
            case 0 | 1 | 2:
                self.make(stream, number)
            case 3 | 4 if self.held:
                self.combine(stream)
            case 5 | 6 if self.held:
                self.read(stream)
            case 7 if self.held:
                self.take().buffer.close()
            case 8 if self.reads:
                self.check(self.reads.pop(self.rng.integers(len(self.reads))))
            case 9 if number % 25 == 0:
                self.device.empty_cache()
        while len(self.held) > MOST_HELD:
            self.take().buffer.close()

    def argument(self, buffer: DeviceBuffer) -> DeviceBuffer | DevicePointer:
        """Return a launch's argument for a buffer."""
        return DevicePointer(address_of(buffer)) if self.untracked else buffer

    def take(self) -> Held:
        return self.held.pop(self.rng.integers(len(self.held)))

    def make(self, stream: Stream, value: int) -> None:
        size = int(self.rng.choice(SIZES))
        buffer = DeviceBuffer.uninitialized(size, "u32")
        self.fill[2, 32, 0, stream](self.argument(buffer), value, size)
        self.held.append(Held(buffer, np.full(size, value, "u4"), stream))

    def combine(self, stream: Stream) -> None:
        """Make a new buffer from an old buffer; free the old buffer at once or keep it."""
        old = self.take()
        new = DeviceBuffer.uninitialized(old.buffer.size, "u32")
        stream.wait_event(old.stream.record_event())
        source, target = self.argument(old.buffer), self.argument(new)
        self.add[2, 32, 0, stream](new.size, 1, None, source, source, target)
        self.held.append(Held(new, old.expected * np.uint32(2), stream))
        if self.rng.integers(2):
            old.buffer.close()
        else:
            # the buffer's next reader waits for this launch, too
            self.held.append(Held(old.buffer, old.expected, stream))

    def read(self, stream: Stream) -> None:
        item = self.take()
        stream.wait_event(item.stream.record_event())
        pinned = HostBuffer(item.buffer.size, "u32")
        item.buffer.copy_to_async(pinned, stream)
        item.buffer.close()
        self.reads.append(Read(pinned, item.expected, stream))

    def check(self, read: Read) -> None:
        read.stream.synchronize()
        wrong = np.flatnonzero(read.pinned.array != read.expected)
        if wrong.size:
            found, expected = int(read.pinned.array[wrong[0]]), int(read.expected[wrong[0]])
            raise AssertionError(
                f"{wrong.size} of {read.expected.size} elements, the first {found:#x} instead of "
                f"{expected:#x}"
            )
        self.checks += 1

    def finish(self) -> None:
        while self.held:
            self.read(self.streams[self.rng.integers(STREAMS)])
        while self.reads:
            self.check(self.reads.pop())


def main() -> None:
    device = Api.quick_init(0, backend="cuda")
    Stream.default().synchronize()
    before = diagnostics()["live"]
    stress = Stress(device, int(sys.argv[1]), untracked=bool(sys.argv[3:]))
    try:
        for number in range(int(sys.argv[2])):
            stress.turn(number)
        stress.finish()
    except (AssertionError, DeviceError) as wrong:
        print(f"stale after {stress.checks} checks: {wrong}", flush=True)
        # A lost device needs no cleanup, and its remaining objects would print warnings.
        os._exit(0)
    checks = stress.checks
    del stress
    gc.collect()
    device.synchronize()
    device.empty_cache()
    counts = device.pool_statistics()
    assert diagnostics()["live"] == before, diagnostics()
    assert (counts["bytes_in_use"], counts["bytes_reserved"]) == (0, 0), counts
    assert counts["driver_allocations"] == counts["driver_frees"], counts
    print(f"clean {checks} checks, {counts['allocations']} allocations, {counts['reuses']} reuses")


if __name__ == "__main__":
    main()
