"""ubridge's part of `benchmarks/llm.py`: FILE THREADS WAY, then lines of work and a number."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ubridge as ub
import uhal
from benchmarks.llm_models import CONTEXT
from benchmarks.workers.resident import peak_resident
from ubridge.models import Cache, Model

SHORT, STEPS, ROUNDS = 104, 20, 5


class Work:
    """A model in memory, with a text that decoding continues."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tokens = np.random.default_rng(0).integers(3, 8000, CONTEXT).tolist()
        self.model = Model.load(path, context=CONTEXT)
        self.cache = self.model.cache()
        self.others: dict[int, Cache] = {}
        self.read_all: Callable[[], float] | None = None

    def first(self, count: int) -> float:
        """Seconds from the file to the first token after a prompt of `count` tokens."""
        start = time.perf_counter()
        model = Model.load(self.path, context=CONTEXT)
        with model.cache() as cache:
            int(ub.argmax(model.logits(self.tokens[:count], cache)))
        return time.perf_counter() - start

    def prefill(self, count: int) -> float:
        """Seconds to read a number of tokens at once."""
        self.cache.truncate(0)
        start = time.perf_counter()
        int(ub.argmax(self.model.logits(self.tokens[:count], self.cache)))
        return time.perf_counter() - start

    def decode(self, count: int) -> float:
        """Seconds for a number of tokens, one by one, after the text in the cache."""
        length = self.cache.length
        # The step is captured once, outside of the measurement.
        self._step(self.cache, 0)
        start = time.perf_counter()
        for token in self.tokens[:count]:
            self._step(self.cache, token)
        spent = time.perf_counter() - start
        self.cache.truncate(length)
        return spent

    def length(self, capacity: int) -> float:
        """Seconds of a token after `SHORT` others, in a cache of a given capacity."""
        if capacity not in self.others:
            self.others[capacity] = self.model.cache(capacity)
        cache = self.others[capacity]
        cache.truncate(0)
        self.model.logits(self.tokens[:SHORT], cache)
        spent = []
        for _ in range(ROUNDS):
            spent += [self._spent(cache, token) for token in self.tokens[:STEPS]]
            cache.truncate(SHORT)
        return min(spent)

    def outside(self, count: int) -> float:
        """The share of a step outside kernels: the median of several steps.

        The kernels' time is the replay's time on the device, including the choice of the token. The
        time of an empty kernel is subtracted once for each kernel.
        """
        length = self.cache.length
        # The first token captures the step.
        self._step(self.cache, 0)
        with uhal.profile(graphs="whole", measure_copy=False) as profile:
            whole = [self._spent(self.cache, token) for token in self.tokens[:count]]
        self.cache.truncate(length)
        within = sum(_on_device(profile, kind, count) for kind in ("replay", "launch"))
        assert self.cache.step is not None
        kernels = len(self.cache.step.graph.nodes)
        nothing = kernels * _of_nothing(kernels)
        return float(np.median((np.array(whole) - within + nothing) / whole))

    def bandwidth(self, nbytes: int) -> float:
        """Bytes per second of the fastest of several readers."""
        if self.read_all is None:
            self.read_all = _reader(nbytes)
        return self.read_all()

    def memory(self, _: int) -> float:
        """Peak resident bytes."""
        return peak_resident()

    def _spent(self, cache: Cache, token: int) -> float:
        start = time.perf_counter()
        self._step(cache, token)
        return time.perf_counter() - start

    def _step(self, cache: Cache, token: int) -> int:
        return int(ub.argmax(self.model.logits([token], cache)))


def _on_device(profile: uhal.Profile, kind: str, steps: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Seconds of a step on the device for one kind of work."""
    rows = profile.records.of(kind)
    spent = (rows["device_end"] - rows["device_begin"]).reshape(steps, -1)
    found: np.ndarray[Any, np.dtype[Any]] = spent.sum(1) / 1e9
    return found


def _of_nothing(kernels: int) -> float:
    """Seconds of a plan per kernel of one element."""
    one = ub.zeros((1,))
    with ub.trace() as graph:
        for _ in range(kernels):
            one = -one
    stream = uhal.Stream()
    plan = graph.instantiate(stream)
    with uhal.profile(graphs="whole", measure_copy=False) as profile:
        for _ in range(STEPS):
            plan.replay(stream)
            stream.synchronize()
    return float(_on_device(profile, "replay", STEPS).min()) / kernels


def _reader(nbytes: int) -> Callable[[], float]:
    from benchmarks.quantized import readers_of

    device = uhal.Device.current()
    memory = uhal.DeviceBuffer.zeros(nbytes, "u8")
    ways = readers_of(device, memory, device.limits.processors, uhal.Stream())

    def read_all() -> float:
        spent = []
        for read in ways.values():
            start = time.perf_counter()
            read()
            spent.append(time.perf_counter() - start)
        return nbytes / min(spent)

    return read_all


def main(path: str, threads: str, way: str) -> None:
    """Answer each line with one number. The runtime takes its threads from the environment."""
    with uhal.Device(0, backend="host"):
        work = Work(path)
        for line in sys.stdin:
            what, number = line.split()
            print(float(getattr(work, what)(int(number))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
