"""Mistakes that hardware may not reveal: the simulator reports each, or uhal prevents it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from tests.simulated.process import IMAGES, LIBRARY, ROOT, needs_simulator, run_python

pytestmark = needs_simulator

PROLOGUE = """
import sys
import numpy as np
from uhal import *
Api.quick_init(0, "cuda")
relu = Module.from_file({image!r}).get_function("activationf32")
rng = np.random.default_rng(int(sys.argv[1]))
values = rng.standard_normal(50_000, dtype="f4")
clipped = np.maximum(values, 0)
shape = (1, values.size, 0)
"""


def run(script: str, seed: int, schedule: str) -> str:
    code = PROLOGUE.format(image=str(IMAGES / "activation.fatbin.gz")) + textwrap.dedent(script)
    chosen = f"random:{seed}" if schedule == "random" else schedule
    return run_python("-c", code, str(seed), UHAL_SIM_SCHEDULE=chosen)


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_missing_wait_shows(schedule: str, seed: int) -> None:
    """With two unordered streams, at least one round in twenty reads stale data."""
    out = run(
        """
        launches, reads = Stream(), Stream()
        data = DeviceBuffer.zeros(values.size, "f32")
        late = 0
        for planted in [False] + [True] * 20:
            data.copy_from(values, stream=launches)
            launches.synchronize()
            relu[64, 256, 0, launches](data, *shape)
            if not planted:
                reads.wait_event(launches.record_event(Event()))
            found = data.to_numpy(stream=reads)
            assert planted or np.array_equal(found, clipped)
            late += not np.array_equal(found, clipped)
        print(late)
        """,
        seed,
        schedule,
    )
    assert int(out) == 20 if schedule == "lazy" else int(out) > 0


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_source_may_be_reused_at_once_and_a_pinned_one_may_not(schedule: str, seed: int) -> None:
    """uhal copies a pageable source at once; a pinned source is read when the copy runs."""
    out = run(
        """
        stream = Stream(StreamFlags.NON_BLOCKING)
        data = DeviceBuffer.zeros(values.size, "f32")
        spoiled = 0
        for _ in range(20):
            source = values.copy()
            data.copy_from(source, stream=stream)
            source[:] = np.nan
            assert np.array_equal(data.to_numpy(stream=stream), values)
            pinned = HostBuffer(values.size, "f32")
            pinned.array[:] = values
            data.copy_from_async(pinned, stream)
            pinned.array[:] = np.nan
            spoiled += not np.array_equal(data.to_numpy(stream=stream), values)
        print(spoiled)
        """,
        seed,
        schedule,
    )
    assert int(out) == 20 if schedule == "lazy" else int(out) > 0


def test_a_host_read_of_a_device_address_is_a_fault() -> None:
    code = (
        "import ctypes; from uhal import *; Api.quick_init(0, 'cuda');"
        "x = DeviceBuffer.zeros(4, 'f32'); Stream.default().synchronize();"
        "ctypes.string_at(x.as_device_ptr().address, 4)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"UHAL_CUDA_LIBRARY": str(LIBRARY), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGSEGV, done


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_queue_filled_behind_a_python_callback_goes_on(schedule: str, seed: int) -> None:
    """A callback waits for the GIL while three queues of launches fill up behind it."""
    out = run(
        """
        import time
        stream = Stream()
        data = DeviceBuffer.from_numpy(np.arange(64, dtype="f4"))
        done = []
        def slow(name):
            time.sleep(0.2)
            done.append(name)
        stream.add_callback(slow, "first")
        for _ in range(3 * 1024):
            relu[1, 64, 0, stream](data, 1, 64, 0)
        stream.add_callback(done.append, "last")
        stream.synchronize()
        deadline = time.monotonic() + 30
        while len(done) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert np.array_equal(data.to_numpy(), np.arange(64, dtype="f4"))
        print(*done)
        """,
        seed,
        schedule,
    )
    assert out.split() == ["first", "last"]
