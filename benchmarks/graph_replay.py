"""Cost of a graph's replay compared with its launches one by one.

    python -m benchmarks.graph_replay
    python -m benchmarks.graph_replay --json

Three workloads, each written as in a program:

* 430 bound launches of an empty kernel, captured into a `Plan`.
* The step of a decoder of 28 layers (examples/graph_decoder.py), run by `execute_graph` and
  replayed with other slots each time.
* A `ComputeGraph` of 10,000 nodes, built and instantiated.

The workloads run on the host, where small kernels run on the calling thread when launched and on
another thread when replayed. The workloads also run over the do-nothing drivers of ROCm and CUDA
(`make simulators` builds them), which leaves only the caller's side. CUDA's do-nothing driver
records nothing, so for the plan of 430 launches only the calls that arrive are counted.

Times are processor time of the calling thread, medians of rounds in which all forms take turns. The
stream is idle when a form begins. The cost of execute_graph beyond a replay is wall time of the
fastest rounds, because the host computes small operations on the calling thread. The exit status is
1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import cycle, repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import ubridge as ub
from benchmarks.launch_overhead import machine
from benchmarks.suites import HOST_RUNTIME, NULL_DRIVER, NULL_RUNTIME, ROOT
from benchmarks.workers.uhal_calls import Opened
from uhal import Stream

LAUNCHES = 430
CHANGED = 16
"""Number of slots with one launch each: enough to tell a slot's cost from the replay's."""
NODES = 10_000
BUILDS = 3
ROUNDS = 101
WARM_UP = 50
"""Rounds before the measurement: by then a queue of 16384 packets has wrapped around."""
SECONDS = 300
DRIVERS = {"host": HOST_RUNTIME, "rocm": NULL_RUNTIME, "cuda": NULL_DRIVER}
VARIABLES = {"rocm": "UHAL_ROCM_LIBRARY", "cuda": "UHAL_CUDA_LIBRARY"}
RECORDING = ("host", "rocm")
"""Backends whose do-nothing driver records captures."""


@dataclass
class Result:
    """Times of a backend, in seconds, and the number of calls that reached its driver."""

    backend: str
    eager: float = 0
    replay: float = 0
    arrived: dict[str, int] = field(default_factory=dict)
    """The driver's counts of one replay."""
    change: float | None = None
    """Seconds for one more slot."""
    decoder_operations: int = 0
    decoder_eager: float | None = None
    decoder_replay: float | None = None
    """Seconds of a replay with another token and position each time."""
    decoder_over_replay: float | None = None
    """Wall time of an eager step beyond a replay, per operation, in the fastest rounds."""
    build: float | None = None
    """Time for all nodes and their plan; the fastest of a few."""


@dataclass(frozen=True)
class Gate:
    """A bound on a backend's time."""

    what: str
    limit: float
    value: Callable[[Result], float | None]
    backends: tuple[str, ...] = RECORDING


def _over(replay: float | None, eager: float | None) -> float | None:
    return None if replay is None or not eager else replay / eager


GATES = (
    Gate(f"{LAUNCHES} launches, replay over eager", 0.1, lambda one: _over(one.replay, one.eager)),
    Gate(
        f"{LAUNCHES} launches, calls of a replay that the driver counts",
        1,
        lambda one: sum(one.arrived.values()),
        ("cuda",),
    ),
    Gate(
        "change of one slot more, µs",
        0.5,
        lambda one: None if one.change is None else one.change * 1e6,
    ),
    Gate(
        "decoder, replay over execute_graph",
        0.1,
        lambda one: _over(one.decoder_replay, one.decoder_eager),
    ),
    Gate(
        "decoder, execute_graph over the replay's wall time, µs an operation",
        0.7,
        lambda one: None if one.decoder_over_replay is None else one.decoder_over_replay * 1e6,
        ("host",),
    ),
    Gate(f"{NODES} nodes built and instantiated, s", 1.0, lambda one: one.build),
)


# -- in a process of its own -----------------------------------------------------------------------


def measure(backend: str) -> Result:
    """Measure one backend."""
    opened = Opened(backend, str(DRIVERS[backend]))
    result = Result(backend)
    measure_launches(opened, result)
    opened.driver.expect([])
    if backend in RECORDING:
        measure_decoder(result)
        result.build = min(built(opened.stream) for _ in range(BUILDS))
    return result


def measure_launches(opened: Opened, result: Result) -> None:
    """Plain launches of one kernel."""
    stream, x, out = opened.stream, opened.x, opened.out
    run = opened.function("three")[(*opened.shape, 0, stream)]

    def eager() -> None:
        for _ in repeat(None, LAUNCHES):
            run(1000, x, out)

    eager()
    names = [f"n{index}" for index in range(CHANGED)] if result.backend in RECORDING else []
    with stream.capture() as plan:
        for name in names:
            run(plan.slot(name, 1000), x, out)
        for _ in range(LAUNCHES - len(names)):
            run(1000, x, out)
    given, first = (
        cycle([dict.fromkeys(some, 1001), dict.fromkeys(some, 1000)]) for some in (names, names[:1])
    )
    with plan:
        result.eager, result.replay, changing, changing_one = timed(
            stream,
            eager,
            plan.replay,
            lambda: plan.replay(**next(given)),
            lambda: plan.replay(**next(first)),
        )
        if names:
            result.change = (changing - changing_one) / (len(names) - 1)
        opened.driver.expect([8, 8, 8])
        opened.driver.take()
        plan.replay()
        arrived = opened.driver.take()
    result.arrived = {
        name: count for name, count in arrived.items() if name not in ("checksum", "copied_bytes")
    }
    if len(plan.kernels) != LAUNCHES:
        sys.exit(f"{result.backend}: the plan has {len(plan.kernels)} launches, not {LAUNCHES}")
    if result.backend in RECORDING and arrived["launches"] != LAUNCHES:
        sys.exit(f"{result.backend}: a replay launched {arrived['launches']}, not {LAUNCHES}")


def measure_decoder(result: Result) -> None:
    """One step of the example's decoder, for other positions each time."""
    program = example("graph_decoder")
    sizes = program.Sizes()
    decoder = program.Decoder(sizes, program.random_weights(sizes, np.random.default_rng(0)))
    with ub.trace() as graph:
        token = graph.scalar("token", 0, low=0, high=sizes.vocabulary - 1)
        position = graph.scalar("pos", 0, low=0, high=sizes.positions - 1)
        decoder.step(token, position)
    positions = cycle(range(sizes.positions))

    def slots() -> Mapping[str, int]:
        position = next(positions)
        return {"token": position % sizes.vocabulary, "pos": position}

    with Stream() as stream, graph.instantiate(stream) as plan:
        acts: list[Callable[[], object]] = [
            lambda: ub.execute_graph(graph, stream=stream, **slots()),
            lambda: plan.replay(**slots()),
        ]
        result.decoder_operations = graph.n_ops
        result.decoder_eager, result.decoder_replay = timed(stream, *acts)
        eager, replay = least_wall(stream, *acts)
        result.decoder_over_replay = (eager - replay) / graph.n_ops


def built(stream: Stream) -> float:
    """Seconds to build a graph node by node and make it ready to be replayed."""
    x = ub.ones(16)
    began = time.thread_time()
    graph = ub.ComputeGraph()
    leaf = last = graph.add_leaf(x)
    for index in range(1, NODES):
        if index % 2:
            last = graph.add_op(ub.TensorOp.Add, None, (16,), [last, leaf])
        else:
            last = graph.add_op(ub.TensorOp("silu"), None, (16,), [last])
    plan = graph.instantiate(stream)
    took = time.thread_time() - began
    if len(plan.plan) != NODES - 1:
        sys.exit(f"the plan has {len(plan.plan)} launches, not {NODES - 1}")
    plan.close()
    return took


def timed(stream: Stream, *acts: Callable[[], object]) -> list[float]:
    """Return the median seconds of the calling thread for each form."""
    spent: list[list[float]] = [[] for _ in acts]
    for turn in range(WARM_UP + ROUNDS):
        for act, found in zip(acts, spent, strict=True):
            stream.synchronize()
            began = time.thread_time_ns()
            act()
            took = time.thread_time_ns() - began
            if turn >= WARM_UP:
                found.append(took / 1e9)
    stream.synchronize()
    return [statistics.median(found) for found in spent]


def least_wall(stream: Stream, *acts: Callable[[], object]) -> list[float]:
    """Fastest wall time until each form has finished; other load only adds time."""
    found = [float("inf")] * len(acts)
    for _ in range(ROUNDS):
        for number, act in enumerate(acts):
            began = time.perf_counter()
            act()
            stream.synchronize()
            found[number] = min(found[number], time.perf_counter() - began)
    return found


def example(name: str) -> ModuleType:
    """A program of examples/, which is no package."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


# -- all of them -----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_replay")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=DRIVERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(asdict(measure(options.only))))
        return 0
    results = [Result(**_measured(name, driver)) for name, driver in DRIVERS.items()]
    gates = list(_gates(results))
    if options.json:
        rows = [asdict(one) for one in results]
        print(json.dumps({"machine": machine(), "rows": rows, "gates": gates}))
    else:
        print(_table(results, gates))
    return 1 if any(gate["missed"] for gate in gates) else 0


def _measured(backend: str, driver: Path) -> dict[str, Any]:
    chosen = {VARIABLES[backend]: str(driver)} if backend in VARIABLES else {}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.graph_replay", "--only", backend],
        cwd=ROOT,
        env={**os.environ, **chosen},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=SECONDS,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _gates(results: list[Result]) -> list[dict[str, Any]]:
    found = []
    for gate in GATES:
        for result in results:
            if result.backend in gate.backends:
                value = gate.value(result)
                missed = value is None or value > gate.limit
                reported = {"backend": result.backend, "what": gate.what, "at_most": gate.limit}
                found.append({**reported, "is": value, "missed": missed})
    return found


def _table(results: list[Result], gates: list[dict[str, Any]]) -> str:
    text = ["| host time, µs | eager | replay |", "|---|---:|---:|"]
    for one in results:
        text.append(
            f"| {one.backend}, {LAUNCHES} launches | {_micros(one.eager)} | {_micros(one.replay)} |"
        )
        if one.decoder_eager is not None:
            text.append(
                f"| {one.backend}, decoder of {one.decoder_operations} operations | "
                f"{_micros(one.decoder_eager)} | {_micros(one.decoder_replay)} |"
            )
    text += ["", "| gate | at most | is | |", "|---|---:|---:|---|"]
    for gate in gates:
        verdict = "missed" if gate["missed"] else ""
        value = "not measured" if gate["is"] is None else f"{gate['is']:.3f}"
        text.append(
            f"| {gate['backend']}, {gate['what']} | {gate['at_most']} | {value} | {verdict} |"
        )
    return "\n".join(text)


def _micros(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f}"


if __name__ == "__main__":
    sys.exit(main())
