"""Times the forms of a call, and checks the launches of each form.

A worker times all its forms in turn, in many rounds, so that a disturbance of the machine affects
all of them. It counts the processor time of the calling thread, which other processes do not add
to. Every round asks the do-nothing driver for the launches that arrived: a form with missing
launches or wrong arguments ends the benchmark.

A worker's last line of output is one JSON object: its rows, gaps and versions, or the reason why
the library cannot run.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from types import ModuleType
from typing import NoReturn, Protocol

# After these calls, compilation and measurements of kernels' durations are finished.
WARMING_CALLS = 500
ROUNDS = 7
ROUND_SECONDS = 0.005


class Counts(ctypes.Structure):
    """`uhal_null_counts` of simulators/null/counting.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "launches checksum allocations frees copies copied_bytes waits records".split()
        )
    ]


class Driver(Protocol):
    """A driver that counts launches and reports the counts."""

    def expect(self, sizes: Sequence[int]) -> None:
        """Tell the driver the parameter size of the next launches: 4 or 8 bytes each."""

    def take(self) -> dict[str, int]:
        """Counts since the last call, by the names of `Counts`."""


class NullDriver:
    """The do-nothing driver this process has loaded."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.uhal_null_take.restype = Counts

    def expect(self, sizes: Sequence[int]) -> None:
        self._library.uhal_null_expect((ctypes.c_uint32 * len(sizes))(*sizes), len(sizes))

    def take(self) -> dict[str, int]:
        return as_dict(self._library.uhal_null_take())


def as_dict(counts: Counts) -> dict[str, int]:
    """The counts by name."""
    return {name: getattr(counts, name) for name, _ in Counts._fields_}


@dataclass
class Form:
    """A form of a call."""

    name: str
    what: str
    """`launch`, `alloc+free`, `copy 4 KiB`, `get_function`, `sync`, `record`, `op` or `control`."""
    run: Callable[[int], object]
    """Makes the call the given number of times."""
    arguments: Sequence[tuple[int, int]] = ()
    """Size in bytes and unsigned value of each parameter, as the driver must see them."""
    expected: dict[str, int] = field(default_factory=dict)
    """The driver's counts that one call raises, and the amounts."""


@dataclass
class Measurement:
    """Measured cost of one form of call."""

    library: str
    form: str
    what: str
    args: int
    times_ns: list[float]
    """Times of a call, by round."""
    launches: int
    checksum: int


@dataclass
class Gap:
    """A row that a library cannot fill."""

    what: str
    form: str
    reason: str


def calls(function: Callable[[], object]) -> Callable[[int], None]:
    """A loop over a call without arguments; other calls need a written-out loop."""

    def run(count: int) -> None:
        for _ in repeat(None, count):
            function()

    return run


def loop(statement: str, **names: object) -> Callable[[int], None]:
    """A loop over a statement; the names it uses are local variables, as in a program."""
    source = (
        f"def run(count, repeat, {', '.join(names)}):\n"
        f"    for _ in repeat(None, count):\n"
        f"        {statement}\n"
    )
    made: dict[str, Callable[..., None]] = {}
    exec(source, made)
    return lambda count: made["run"](count, repeat, *names.values())


def spelled(values: Sequence[object]) -> tuple[str, dict[str, object]]:
    """`a0, a1, …` for use in a statement, and the values by those names."""
    names = {f"a{index}": value for index, value in enumerate(values)}
    return ", ".join(names), names


def launch_form(
    name: str, run: Callable[[int], object], arguments: Sequence[tuple[int, int]]
) -> Form:
    """The form of a launch that must arrive with these arguments."""
    checksum = sum(value for _, value in arguments) % 2**64
    return Form(name, "launch", run, arguments, {"launches": 1, "checksum": checksum})


def measure(library: str, forms: Sequence[Form], driver: Driver | None) -> list[Measurement]:
    """Time every form; raise SystemExit if the wrong launches arrived."""
    counts = [_calibrate(form, driver) for form in forms]
    times: list[list[float]] = [[] for _ in forms]
    totals = [[0, 0] for _ in forms]
    for _ in range(ROUNDS):
        for form, count, found, total in zip(forms, counts, times, totals, strict=True):
            arrived = _timed(form, count, driver, found)
            total[0] += arrived.get("launches", 0)
            total[1] = (total[1] + arrived.get("checksum", 0)) % 2**64
    return [
        Measurement(library, form.name, form.what, len(form.arguments), found, launches, checksum)
        for form, found, (launches, checksum) in zip(forms, times, totals, strict=True)
    ]


def _timed(form: Form, count: int, driver: Driver | None, found: list[float]) -> dict[str, int]:
    if driver is not None:
        driver.expect([size for size, _ in form.arguments])
        driver.take()
    start = time.thread_time_ns()
    form.run(count)
    found.append((time.thread_time_ns() - start) / count)
    if driver is None:
        return {}
    arrived = driver.take()
    for name, each in form.expected.items():
        if arrived[name] != each * count % 2**64:
            sys.exit(
                f"{form.name}, {form.what}: {count} calls should bring {name} to "
                f"{each * count % 2**64}, the driver saw {arrived[name]}"
            )
    return arrived


def _calibrate(form: Form, driver: Driver | None) -> int:
    """Number of calls that fill a round."""
    _timed(form, WARMING_CALLS, driver, [])
    count = 16
    while True:
        found: list[float] = []
        _timed(form, count, driver, found)
        if found[0] * count >= ROUND_SECONDS * 1e9 / 4 or count >= 1 << 22:
            return max(1, int(ROUND_SECONDS * 1e9 / max(found[0], 1.0)))
        count *= 4


def pin() -> None:
    """Run on one processor, if the system lets a process choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def load(module: str) -> ModuleType:
    """Import a library, or end this worker with the reason."""
    try:
        return importlib.import_module(module)
    except ImportError as failure:
        absent(str(failure))


def absent(reason: str) -> NoReturn:
    """End this worker: its library cannot run, which is no failure of the benchmark."""
    print(json.dumps({"absent": reason}))
    sys.exit(0)


def report(rows: Sequence[Measurement], *, gaps: Sequence[Gap] = (), **facts: object) -> None:
    """Hand a worker's result to the benchmark."""
    reported = {"rows": list(map(asdict, rows)), "gaps": list(map(asdict, gaps))}
    print(json.dumps({**reported, **facts}))


def control() -> Form:
    """Cost of the loop itself and of the cheapest call, for comparison."""
    nothing = iter(repeat(None)).__next__
    return Form("loop over a C function", "control", calls(nothing))
