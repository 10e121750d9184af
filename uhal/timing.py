"""Times a function that enqueues work: warm-up, medians, device time and throughput."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uhal._lane import Event, Stream
from uhal._refusal import as_int, describe
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.terminal import printable

WARM_UP = 3
SAMPLES = 15
MOST_CALLS = 1 << 20


@dataclass(frozen=True)
class Timing:
    """Median times of a call; `str` gives a line of text."""

    device_time: float
    """Time on the device, between events around many calls."""
    host_time: float
    """Time until the call returns, without waiting for the device."""
    spread: float
    """Difference of the upper and lower quartile of `device_time`, relative to the median."""
    calls: int
    """Calls in a sample."""
    samples: int
    nbytes: int
    """Bytes that a call reads and writes, as stated; 0 if unknown."""

    @property
    def gigabytes_per_second(self) -> float:
        """Memory throughput by `nbytes` and `device_time`, in 10**9 bytes per second."""
        return self.nbytes / self.device_time / 1e9 if self.device_time else math.inf

    def __str__(self) -> str:
        rate = f" · {self.gigabytes_per_second:.1f} GB/s" if self.nbytes else ""
        return printable(
            f"{_readable(self.device_time)} on the device ±{50 * self.spread:.0f} % · "
            f"{_readable(self.host_time)} on the host{rate} "
            f"(median of {self.samples} samples of {self.calls} calls)"
        )


def bench(
    function: Callable[..., object],
    *arguments: Any,
    nbytes: int = 0,
    seconds: float = 0.3,
    stream: Stream | None = None,
) -> Timing:
    """Time calls of `function(*arguments)`, which enqueues work on a stream.

    `stream` is the stream that the function uses, by default the current device's default stream.
    The first calls warm up caches. Then samples of many calls take about `seconds` in all. `nbytes`
    is the number of bytes that a call reads and writes, for `Timing.gigabytes_per_second`.

    Waits for the stream. Raises `ArgumentTypeError` and `ArgumentValueError` for wrong arguments,
    and any exception of the function. Garbage collection is off during the measurement.
    """
    if not callable(function):
        raise ArgumentTypeError(
            f"bench: expected a function to call, got {describe(function)}. Write "
            "bench(function, argument, …), without calling it."
        )
    if as_int(nbytes) is None:
        raise ArgumentTypeError(
            f"bench, nbytes: expected a number of bytes, got {describe(nbytes)}"
        )
    if nbytes < 0 or not 0 < seconds < 3600:
        raise ArgumentValueError(
            f"bench: expected nbytes ≥ 0 and seconds in 0…3600, got {nbytes} and {seconds}"
        )
    if stream is None:
        stream = Stream.default()
    elif not isinstance(stream, Stream):
        raise ArgumentTypeError(f"bench, stream: expected a Stream or None, got {describe(stream)}")
    for _ in range(WARM_UP):
        function(*arguments)
    stream.synchronize()
    collects = gc.isenabled()
    gc.disable()
    try:
        calls = _calls_of_a_sample(function, arguments, stream, seconds / (SAMPLES + 2))
        samples = [_sample(function, arguments, stream, calls) for _ in range(SAMPLES)]
    finally:
        if collects:
            gc.enable()
    device = [sample[0] for sample in samples]
    import statistics  # importing it loads decimals and fractions, which programs seldom need

    lower, median, upper = statistics.quantiles(device, n=4)
    return Timing(
        device_time=median,
        host_time=statistics.median(sample[1] for sample in samples),
        spread=(upper - lower) / median if median else 0.0,
        calls=calls,
        samples=SAMPLES,
        nbytes=int(nbytes),
    )


def _calls_of_a_sample(
    function: Callable[..., object], arguments: tuple[Any, ...], stream: Stream, seconds: float
) -> int:
    """Double the number of calls until a sample takes long enough."""
    calls = 1
    while calls < MOST_CALLS:
        begun = time.perf_counter()
        _sample(function, arguments, stream, calls)
        if time.perf_counter() - begun >= seconds / 2:
            break
        calls *= 2
    return calls


def _sample(
    function: Callable[..., object], arguments: tuple[Any, ...], stream: Stream, calls: int
) -> tuple[float, float]:
    """Device and host time of a call, in seconds, as means over the calls of one sample."""
    with Event(device=stream.device) as start, Event(device=stream.device) as end:
        start.record(stream)
        begun = time.perf_counter()
        for _ in range(calls):
            function(*arguments)
        host = time.perf_counter() - begun
        end.record(stream)
        end.synchronize()
        return end.elapsed_since(start) / 1e3 / calls, host / calls


def _readable(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
