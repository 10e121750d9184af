"""Replaying a graph beside launching its kernels one by one: `python -m benchmarks.graph_replay`.

430 launches, those of a decode step of 28 layers, of kernels that do nothing: on the host, and on
the do-nothing HSA runtime (`make simulators` builds it), so that only the caller's side is left.
Eager is uhal's bound launch in a Python loop; a replay is one call of the slot `graph_launch`; a
change is one of `graph_update_kernel`, both from a C loop. The exit status is 1 when a replay takes
more than 0.1 of the launches on the calling thread, a change more than 0.5 µs, or 10,000 launches
more than 1 s to record and instantiate.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import kernels
from benchmarks.suites import NULL_RUNTIME, ROOT
from tests.host_kernels import build
from uhal import Api, DeviceBuffer, Function, Module, Stream
from uhal.contract import Backend
from uhal.registry import backend as opened_backend

LAUNCHES = 430
LARGE = 10_000
ROUNDS = 25
WARM_UP = 50
"""Times before anything is measured: a queue of 16384 packets has been gone through then."""
CHANGES = 20_000
HOST_KERNEL = """
#include <uhal/kernel.h>
KERNEL(three, (u64 n, const f32 *x, f32 *out)) { if (n == 0) out[0] = x[0]; }
"""
LOOPS = """
int replay(int (*launch)(void *, void *), void *executable, void *stream) {
    return launch(executable, stream);
}
int change(int (*update)(void *, void *, void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, unsigned, void **),
           void *executable, void *const *nodes, int count, void *function, void **parameters,
           int times) {
    int status = 0;
    for (int i = 0; i < times && status == 0; ++i)
        status = update(executable, nodes[i % count], function, 1, 1, 1, 64, 1, 1, 0, parameters);
    return status;
}
"""


@dataclass(frozen=True)
class Result:
    """What one backend took: seconds, of the calling thread where nothing else is said."""

    backend: str
    eager: float
    eager_total: float
    """Until the stream was done, by the clock on the wall."""
    replay: float
    replay_total: float
    change: float
    """One launch in the graph."""
    large: float
    """To record and instantiate, by the clock on the wall."""

    def misses(self) -> list[str]:
        """Return the gates that were missed."""
        found = {
            "replay over eager": (self.replay / self.eager, 0.1),
            "a change, µs": (self.change * 1e6, 0.5),
            f"{LARGE} launches, s": (self.large, 1.0),
        }
        return [
            f"{self.backend}: {what} is {value:.3g}, the gate is {gate}"
            for what, (value, gate) in found.items()
            if value > gate
        ]


class Bench:
    """One backend with its kernel, and the native calls."""

    def __init__(self, name: str, folder: Path) -> None:
        Api.quick_init(0, backend=name)
        self.backend: Backend = opened_backend(name)
        image = build(HOST_KERNEL) if name == "host" else kernels.hsaco()
        declared = None if name == "host" else kernels.declaration("three")
        self._module = Module.from_bytes(image)
        self.kernel: Function = self._module.get_function("three", declared)
        self.stream = Stream()
        self.x = DeviceBuffer.from_numpy(_zeros(1024))
        self.out = DeviceBuffer.from_numpy(_zeros(1024))
        source = folder / "loops.c"
        source.write_text(LOOPS, encoding="utf-8")
        library = folder / "loops.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        self.loops = ctypes.CDLL(str(library))
        slots = self.backend.hot_table.slots
        self.launch_slot = ctypes.c_void_p(slots["graph_launch"])
        self.change_slot = ctypes.c_void_p(slots["graph_update_kernel"])
        values = (
            ctypes.c_uint64(1000),
            ctypes.c_uint64(int(self.x.as_device_ptr())),
            ctypes.c_uint64(int(self.out.as_device_ptr())),
        )
        self._kept = values
        self.parameters = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
        slot = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3
        )
        self._launch = slot(slots["launch"])

    def eager(self) -> None:
        """Launch as a program does."""
        run = self.kernel[1, 64, 0, self.stream]
        x, out = self.x, self.out
        for _ in range(LAUNCHES):
            run(1000, x, out)

    def record(self, launches: int) -> tuple[int, int, tuple[int, ...]]:
        """A graph, and an executable one with its kernels; the library is called as it is."""
        stream = self.stream.handle
        self.backend.begin_capture(stream)
        function, parameters = self.kernel.handle, self.parameters
        for _ in range(launches):
            self._launch(function, 1, 1, 1, 64, 1, 1, 0, stream, parameters, None)
        graph = self.backend.end_capture(stream)
        executable = self.backend.instantiate_graph(graph)
        assert executable.kernels is not None and len(executable.kernels) == launches
        return graph, executable.handle, executable.kernels

    def replay(self, executable: int) -> None:
        """Launch the graph."""
        assert self.loops.replay(self.launch_slot, _handle(executable), self.handle) == 0

    @property
    def handle(self) -> ctypes.c_void_p:
        """The stream."""
        return _handle(self.stream.handle)

    def change(self, executable: int, nodes: tuple[int, ...]) -> float:
        """Seconds of one change."""
        array = (ctypes.c_void_p * len(nodes))(*nodes)
        began = time.thread_time()
        status = self.loops.change(
            *(self.change_slot, _handle(executable), array, len(nodes)),
            *(_handle(self.kernel.handle), self.parameters, CHANGES),
        )
        spent = time.thread_time() - began
        assert status == 0
        return spent / CHANGES

    def timed(self, act: Callable[[], None]) -> tuple[float, float]:
        """Medians: seconds of the calling thread, and until the stream is done."""
        own, total = [], []
        for _ in range(WARM_UP):
            act()
        for _ in range(ROUNDS):
            self.stream.synchronize()
            began, thread_began = time.perf_counter(), time.thread_time()
            act()
            own.append(time.thread_time() - thread_began)
            self.stream.synchronize()
            total.append(time.perf_counter() - began)
        return statistics.median(own), statistics.median(total)


def measure(name: str) -> Result:
    """Measure one backend, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="uhal-graph-") as folder:
        bench = Bench(name, Path(folder))
        bench.eager()
        bench.stream.synchronize()
        graph, executable, nodes = bench.record(LAUNCHES)
        eager = bench.timed(bench.eager)
        replay = bench.timed(lambda: bench.replay(executable))
        change = bench.change(executable, nodes)
        began = time.perf_counter()
        large = bench.record(LARGE)
        took = time.perf_counter() - began
        bench.replay(large[1])
        bench.stream.synchronize()
        for made in ((graph, executable), large[:2]):
            bench.backend.destroy_executable_graph(made[1])
            bench.backend.destroy_graph(made[0])
        return Result(name, *eager, *replay, change, took)


def _handle(value: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)


def _zeros(count: int) -> object:
    import numpy as np

    return np.zeros(count, "f4")


def main() -> int:
    """Print a line for each backend."""
    if len(sys.argv) > 1:
        print(json.dumps(asdict(measure(sys.argv[1]))))
        return 0
    misses = []
    environments = {"host": {}, "rocm": {"UHAL_ROCM_LIBRARY": str(NULL_RUNTIME)}}
    print(
        f"{LAUNCHES} launches     eager, µs (total)    replay, µs (total)    ratio (total)  change"
    )
    for name, environment in environments.items():
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.graph_replay", name],
            cwd=ROOT,
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        one = Result(**json.loads(done.stdout))
        print(
            f"{name:12} {one.eager * 1e6:12.1f} ({one.eager_total * 1e6:6.1f})"
            f" {one.replay * 1e6:12.1f} ({one.replay_total * 1e6:6.1f})"
            f" {one.replay / one.eager:10.3f} ({one.replay_total / one.eager_total:5.2f})"
            f" {one.change * 1e9:6.0f} ns; {LARGE} launches recorded in {one.large:.2f} s"
        )
        misses += one.misses()
    for miss in misses:
        print(miss)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
