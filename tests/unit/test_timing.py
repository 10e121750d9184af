"""`uhal.bench`: calls, streams and the report. No time is compared with a limit."""

from __future__ import annotations

import gc
import math
import statistics
from typing import Any

import numpy as np
import pytest

import ubridge
import uhal
from uhal import timing
from uhal.errors import ArgumentTypeError, ArgumentValueError

SECONDS = 0.01


def test_medians_of_samples(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """The first samples find the number of calls; only later samples count."""
    taken: list[tuple[float, float]] = []

    def sample(function: Any, arguments: Any, stream: Any, calls: int) -> tuple[float, float]:
        taken.append((float(rng.uniform(1, 2)), float(rng.uniform(1, 2))))
        return taken[-1]

    monkeypatch.setattr(timing, "_sample", sample)
    monkeypatch.setattr(timing, "_calls_of_a_sample", lambda *given: 7)
    with uhal.Device(0, "host"):
        found = uhal.bench(lambda: None, nbytes=3 * 10**9, seconds=SECONDS)
    assert (found.calls, found.samples) == (7, len(taken)) == (7, timing.SAMPLES)
    assert found.device_time == statistics.median(device for device, _ in taken)
    assert found.host_time == statistics.median(host for _, host in taken)
    assert found.gigabytes_per_second == pytest.approx(3 / found.device_time)
    assert 0 < found.spread < 1


def test_a_launch_is_timed_on_its_stream() -> None:
    calls: list[tuple[Any, ...]] = []
    with uhal.Device(0, "host") as device, uhal.Stream(device=device) as stream:
        x = ubridge.ones(1000, device=device)

        def add(left: Any, right: Any) -> None:
            calls.append((left, right))
            ubridge.add(left, right, stream=stream)

        found = uhal.bench(add, x, x, nbytes=3 * x.nbytes, seconds=SECONDS, stream=stream)
        assert stream.query()
    assert all(left is x and right is x for left, right in calls)
    assert len(calls) >= timing.WARM_UP + timing.SAMPLES * found.calls
    assert found.device_time > 0 < found.host_time
    text = str(found)
    assert "GB/s" in text and f"median of {timing.SAMPLES} samples of {found.calls} calls" in text


def test_collection_goes_on_after_an_error() -> None:
    def fail() -> None:
        raise RuntimeError("mine")

    with uhal.Device(0, "host"):
        for prepare in (gc.enable, gc.disable):
            prepare()
            state = gc.isenabled()
            with pytest.raises(RuntimeError, match="mine"):
                uhal.bench(fail, seconds=SECONDS)
            assert gc.isenabled() is state
    gc.enable()


def test_without_a_size_there_is_no_throughput() -> None:
    empty = uhal.Timing(0.0, 0.0, 0.0, 1, 1, 0)
    assert "GB/s" not in str(empty) and empty.gigabytes_per_second == math.inf
    scales = [f"{uhal.Timing(time, time, 0.0, 1, 1, 0)}" for time in (2.0, 2e-3, 2e-6, 2e-9)]
    assert [text.split(" on ")[0] for text in scales] == ["2 s", "2 ms", "2 µs", "2 ns"]


def test_wrong_arguments() -> None:
    given: Any = uhal.bench
    with uhal.Device(0, "host"):
        with pytest.raises(ArgumentTypeError, match="without calling it"):
            given(None)
        for nbytes in ("8", 1.5, True):
            with pytest.raises(ArgumentTypeError, match="nbytes: expected a number of bytes"):
                given(int, nbytes=nbytes)
        for wrong in ({"nbytes": -1}, {"seconds": 0}, {"seconds": math.nan}):
            with pytest.raises(ArgumentValueError, match="expected nbytes"):
                given(int, **wrong)
        with pytest.raises(ArgumentTypeError, match="stream: expected a Stream"):
            given(int, stream=0)
