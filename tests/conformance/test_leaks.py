"""No leaks: objects by count, memory by the system's numbers."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uhal import (
    Device,
    DeviceBuffer,
    Event,
    HostBuffer,
    LaunchConfig,
    Module,
    Stream,
    diagnostics,
    launch,
)
from uhal_conformance.sampling import rounds

STATUS = Path("/proc/self/statm")
ROUNDS = rounds(10_000, 200_000)
SETTLED = 1000


def resident_bytes() -> int:
    import resource

    return int(STATUS.read_text().split()[1]) * resource.getpagesize()


def one_round(image: Path, number: int) -> None:
    """Create an object of each kind, launch, and close it: by hand, by `with`, by the collector."""
    stream = Stream()
    with Event() as event, HostBuffer(64, "u32") as pinned:
        x = DeviceBuffer.zeros(64, "u32", stream=stream)
        module = Module.from_file(image) if number % 50 == 0 else None
        if module is not None:
            who = module.get_function("who")
            launch(who, config=LaunchConfig(1, 64), args=(x,), stream=stream)
            who[1, 64, 0, stream](x[:64])
            module.close()
        y = DeviceBuffer.from_numpy(np.arange(64, dtype="u4"), stream=stream)
        x.copy_from_async(y, stream)
        event.record(stream)
        x.copy_to_async(pinned, stream)
        stream.synchronize()
        assert pinned.array[63] == 63
        if number % 3 == 0:
            x.close()
        if number % 7 == 0:
            # DLPack does not support every device; a refused export must not leak.
            with contextlib.suppress(BufferError):
                y.__dlpack__()
        if number % 2 == 0:
            stream.close()


@pytest.mark.drawn(2, among_backends=True)
@pytest.mark.skipif(not STATUS.exists(), reason="no /proc to read resident memory from")
def test_rounds_of_everything_leave_nothing(device: Device, image: Callable[[str], Path]) -> None:
    path = image("globals")
    one_round(path, 0)
    gc.collect()
    start = diagnostics()
    grown = 0
    for _ in range(2):  # a leak grows again; caches of others, such as a shader compiler's, do not
        settled = 0
        for number in range(ROUNDS):
            one_round(path, number)
            if number == SETTLED - 1:
                gc.collect()
                settled = resident_bytes()
        gc.collect()
        device.synchronize()
        grown = resident_bytes() - settled
        if grown < 1 << 20:
            break
    end = diagnostics()
    print(f"{ROUNDS} rounds, {grown} bytes grown since round {SETTLED}")
    assert end["live"] == start["live"]
    assert end["native"] == start["native"]
    for name in ("bytes_in_use", "blocks_in_use", "bytes_reserved"):
        pool = f"{device.backend}:{device.ordinal}"
        assert end["pools"][pool][name] == start["pools"][pool][name]
    assert grown < 1 << 20


@pytest.mark.drawn(2, among_backends=True)
@pytest.mark.skipif(not STATUS.exists(), reason="no /proc to read resident memory from")
def test_launches_alone_leave_nothing(device: Device, basic: Module) -> None:
    fill = basic.get_function("fill")
    out = DeviceBuffer.zeros(8, "u32")
    settled = 0
    with Stream() as stream:
        bound = fill[1, 8, 0, stream]
        for number in range(rounds(24_000, 1_000_000)):
            bound(8, number, out)
            if number % 6_000 == 0:
                stream.synchronize()
            if number == 12_000:
                settled = resident_bytes()
        stream.synchronize()
    assert resident_bytes() - settled < 1 << 20


def test_refusals_leave_nothing(device: Device, basic: Module) -> None:
    fill = basic.get_function("fill")
    out = DeviceBuffer.zeros(8, "u32")
    before = diagnostics()
    for _ in range(rounds(1000, 10_000)):
        for wrong in ((8, -1, out), (8, 1, out, out), (8, 1, 5), (8, "x", out)):
            with pytest.raises((TypeError, ValueError)):
                fill[1, 1](*wrong)
    gc.collect()
    assert diagnostics() == before
