"""ubridge's operations on the CPU compared with numpy's and torch's: `python -m
benchmarks.ops_host`.

`benchmarks.ops_rows` has a row for each public function and method. Without `--cases all`, a run
takes every row as f32 and contiguous, and draws other element types and layouts by the seed. Each
library has a process of its own, on the same processors with the same number of threads. The
libraries take a case in turn, one at a time, several times. The figure is the least time of all
rounds, because disturbances only add time. It is the process's processor time for one thread, else
wall time. Results are compared. The exit status is 1 when a gate is missed or results differ.

    python -m benchmarks.ops_host --peers PYTHON          a Python that has torch and numpy
    python -m benchmarks.ops_host --peers PYTHON --sizes 1000 1000000 --rows 'softmax|sort'
    python -m benchmarks.ops_host --peers PYTHON --json
    python -m benchmarks.ops_host --peers PYTHON --write docs/performance_ops.md
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.launch_overhead import machine
from benchmarks.ops import COLUMNS, ROWS, Case, Timing, cases
from benchmarks.ops_rows import FAMILIES, Row
from benchmarks.suites import ROOT
from benchmarks.tables import today, write_figures

PEERS = ("numpy", "torch")
OURS = "ubridge"
PASSES = 2
DRAWN = 100
"""Cases beside the basic cases, drawn by the seed."""
SAME = 1e-3
"""How far checksums may differ; they are sums of magnitudes."""
COMPARED = ("f32", "f64", "i32", "i64", "bool")
"""Element types whose checksums are compared: sums of narrower types depend on the order."""
SLOW = 0.9
"""Rows below this speed are listed."""
REALS = ("f32", "f64", "bf16", "f16")


@dataclass
class Result:
    """All results of a run of the benchmark."""

    timings: dict[tuple[Case, str], Timing] = field(default_factory=dict)
    """Times by case and library."""
    gaps: dict[tuple[Case, str], str] = field(default_factory=dict)
    """Reasons why a library has no time."""
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, case: Case, library: str, timing: Timing) -> None:
        """Keep the least time of a case."""
        before = self.timings.get((case, library))
        if before is None or timing.nanoseconds < before.nanoseconds:
            self.timings[case, library] = timing

    @property
    def cases(self) -> list[Case]:
        """The measured cases, in their order."""
        return list(dict.fromkeys(case for case, _ in self.timings))

    def nanoseconds(self, case: Case, libraries: Iterable[str]) -> float | None:
        """The least time of the libraries that ran."""
        found = [self.timings.get((case, library)) for library in libraries]
        return min((one.nanoseconds for one in found if one is not None), default=None)

    def speed(self, case: Case, over: Iterable[str] = PEERS) -> float | None:
        """Speed of ubridge relative to the fastest other library."""
        ours, theirs = (self.nanoseconds(case, one) for one in ((OURS,), over))
        return None if ours is None or theirs is None else theirs / ours

    def mean_speed(
        self, wanted: Callable[[Case], bool], over: Iterable[str] = PEERS
    ) -> float | None:
        """The geometric mean of the speeds."""
        found = [self.speed(case, over) for case in self.cases if wanted(case)]
        logarithms = [math.log(one) for one in found if one is not None]
        return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None

    def slow(self) -> list[tuple[float, Case]]:
        """Cases below the wanted speed, the slowest first."""
        found = [(self.speed(case), case) for case in self.cases]
        below = [(one, case) for one, case in found if one is not None and one < SLOW]
        return sorted(below, key=lambda pair: pair[0])

    def share_of_slow(self) -> float | None:
        """Share of the cases at the wanted speed."""
        found = [one for case in self.cases if (one := self.speed(case)) is not None]
        return sum(one >= SLOW for one in found) / len(found) if found else None

    def differences(self) -> list[str]:
        """Cases whose results differ between libraries."""
        found = []
        for (case, library), timing in self.timings.items():
            ours = self.timings.get((case, OURS))
            if ours is None or not ROWS[case.row][1].is_compared or case.dtype not in COMPARED:
                continue
            pair = (ours.checksum, timing.checksum)
            if all(map(math.isfinite, pair)) and not math.isclose(*pair, rel_tol=SAME):
                where = f"{case.operation}, {case.size}"
                found.append(f"{where}: {OURS} {pair[0]}, {library} {pair[1]}")
        return found


@dataclass(frozen=True)
class Gate:
    """A relative speed that a run must reach."""

    what: str
    least: float
    speed: Callable[[Result], float | None]


def _family_gate(family: str) -> Gate:
    return Gate(
        f"{family}, over the faster of numpy and torch",
        1.0,
        lambda result: result.mean_speed(lambda case: case.family == family),
    )


GATES = (
    *map(_family_gate, FAMILIES),
    Gate(
        "all rows, over the faster of numpy and torch",
        1.15,
        lambda result: result.mean_speed(lambda case: True),
    ),
    Gate(f"share of the rows at {SLOW} or more", 0.95, Result.share_of_slow),
    Gate(
        "products, over numpy",
        0.95,
        lambda result: result.mean_speed(lambda case: case.family == "products", ("numpy",)),
    ),
    Gate(
        "add(x, y) on 16 elements, over torch",
        1.0,
        lambda result: result.mean_speed(
            lambda case: (case.row, case.size) == ("add(x, y)", 16), ("torch",)
        ),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops_host")
    parser.add_argument("--peers", default=sys.executable, help="the Python with numpy and torch")
    parser.add_argument("--alone", action="store_true", help="measure ubridge only")
    parser.add_argument("--threads", type=int, default=1, help="of every library; numpy has one")
    parser.add_argument("--sizes", type=int, nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--rows", default="", help="regular expression for names and families")
    parser.add_argument("--cases", default=str(DRAWN), help="cases beside the basic ones, or all")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, help="also write the tables to this Markdown file")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    result = run(options, tuple(chosen(options)))
    if options.json:
        print(json.dumps(as_json(result, options)))
    else:
        print(tables(result))
    if options.write:
        options.write.write_text(document(options, result), encoding="utf-8")
        write_figures(options.write, as_json(result, options))
    speeds = [(gate, gate.speed(result)) for gate in GATES]
    missed = [gate for gate, speed in speeds if speed is not None and speed < gate.least]
    differences = result.differences()
    for difference in differences:
        print(f"results differ: {difference}", file=sys.stderr)
    return 1 if missed or differences or OURS in result.missing else 0


def promised(row: Row) -> tuple[str, ...]:
    """Return the element types that a row's definition promises."""
    from ubridge import OPS

    if row.dtypes:
        return tuple(row.dtypes.split())
    called = row.ubridge.partition("(")[0].rpartition(".")[2]
    found = [op.dtypes for op in OPS.values() if op.called == called and op.dtypes]
    return found[0] if found else REALS


def chosen(options: argparse.Namespace) -> Iterator[Case]:
    """Yield the basic cases and those that the seed draws, by row."""
    wanted = re.compile(options.rows)
    found = [
        pair
        for family, rows in FAMILIES.items()
        for row in rows
        if wanted.search(row.name) or wanted.search(family)
        for pair in cases(row, promised(row), tuple(options.sizes))
    ]
    others = [case for is_basic, case in found if not is_basic]
    count = len(others) if options.cases == "all" else min(int(options.cases), len(others))
    drawn = set(random.Random(options.seed).sample(others, count))
    return (case for is_basic, case in found if is_basic or case in drawn)


# -- workers -------------------------------------------------------------------------------------


class Worker:
    """The process of a library."""

    def __init__(self, library: str, python: str, options: argparse.Namespace) -> None:
        processors = sorted(os.sched_getaffinity(0))[-options.threads :]
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "UHAL_HOST_THREADS")
        command = [library, str(options.seed), *map(str, processors)]
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.workers.ops", *command],
            cwd=ROOT,
            env={**os.environ, **dict.fromkeys(names, str(options.threads))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.versions: dict[str, str] = self._answer()

    def time(self, case: Case) -> dict[str, Any]:
        """Return a timing, or the reason for a gap."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(asdict(case))}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            lines = self._process.stderr.read().strip().splitlines()
            raise RuntimeError((lines or ["it ended without a word"])[-1])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate()


def run(options: argparse.Namespace, wanted: Iterable[Case]) -> Result:
    """Run every library in turn, case by case; keep the reason of a library that cannot run."""
    result = Result()
    workers: dict[str, Worker] = {}
    for library in (OURS,) if options.alone else (OURS, *PEERS):
        python = sys.executable if library == OURS else options.peers
        try:
            workers[library] = Worker(library, python, options)
        except (OSError, RuntimeError) as failure:
            result.missing[library] = str(failure)
            continue
        result.versions.update(workers[library].versions)
    for case in wanted:
        for library, worker in [*workers.items()] * PASSES:
            if not ROWS[case.row][1].of(library) or (case, library) in result.gaps:
                continue
            try:
                answer = worker.time(case)
            except (OSError, RuntimeError) as failure:
                result.missing[library] = f"{case.operation}, {case.size}: {failure}"
                workers.pop(library, None)
                continue
            if "gap" in answer:
                result.gaps[case, library] = answer["gap"]
            else:
                result.add(case, library, Timing(**answer))
    for worker in workers.values():
        worker.close()
    return result


# -- figures -------------------------------------------------------------------------------------


def as_json(result: Result, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": today(),
        "machine": machine(),
        "python": platform.python_version(),
        "threads": options.threads,
        "seed": options.seed,
        "versions": result.versions,
        "rows": [
            {
                "library": library,
                "family": case.family,
                "operation": case.operation,
                "size": case.size,
                **asdict(timing),
            }
            for (case, library), timing in result.timings.items()
        ],
        "speeds": [
            {"operation": case.operation, "size": case.size, "speed": result.speed(case)}
            for case in result.cases
        ],
        "means": means(result),
        "gates": [
            {"what": gate.what, "least": gate.least, "is": gate.speed(result)} for gate in GATES
        ],
        "gaps": [
            {"library": library, "operation": case.operation, "size": case.size, "reason": reason}
            for (case, library), reason in result.gaps.items()
        ],
        "missing": result.missing,
    }


def tables(result: Result) -> str:
    """The gates, means by family and size, slow rows, and every row, as Markdown."""
    text = ["| speed | at least | is |", "|---|---:|---:|"]
    for gate in GATES:
        text.append(f"| {gate.what} | {gate.least:.2f} | {_text(gate.speed(result))} |")
    sizes = _sizes(result)
    text += ["", f"| geometric means | {' | '.join(map(_of_size, sizes))} |"]
    text.append("|---|" + "---:|" * len(sizes))
    for family, speeds in means(result).items():
        text.append(f"| {family} | {' | '.join(map(_text, speeds.values()))} |")
    slow = [case for _, case in result.slow()]
    text += ["", *_table(result, f"below {SLOW}", slow, with_size=True)]
    for size in sizes:
        found = [case for case in result.cases if case.size == size]
        text += ["", *_table(result, _of_size(size), found)]
    for name, reason in result.missing.items():
        text += ["", f"{name} took no part: {reason}"]
    return "\n".join(text)


def means(result: Result) -> dict[str, dict[str, float | None]]:
    """Geometric means of the speeds, by family and size."""
    return {
        family: {
            str(size): result.mean_speed(
                lambda case, key=(family, size): (case.family, case.size) == key  # type: ignore[misc]
            )
            for size in _sizes(result)
        }
        for family in dict.fromkeys(case.family for case in result.cases)
    }


def _sizes(result: Result) -> list[int]:
    return sorted({case.size for case in result.cases})


def _of_size(size: int) -> str:
    return f"{size:,} elements" if size else "shapes of models"


def _table(
    result: Result, title: str, found: Iterable[Case], *, with_size: bool = False
) -> Iterator[str]:
    libraries = (OURS, *PEERS)
    yield f"| {title}, µs | {' | '.join(libraries)} | speed | page faults of a call |"
    yield "|---|" + "---:|" * 5
    for case in found:
        times = [result.nanoseconds(case, (one,)) for one in libraries]
        reported = ["" if one is None else f"{one / 1e3:,.2f}" for one in times]
        timings = [result.timings.get((case, one)) for one in libraries]
        faults = ["-" if one is None else f"{one.faults:,.0f}" for one in timings]
        name = case.operation.replace("|", "\\|")
        where = f"{name}, {case.size:,}" if with_size and case.size else name
        cells = (where, *reported, _text(result.speed(case)), " / ".join(faults))
        yield f"| {' | '.join(cells)} |"


def _text(speed: float | None) -> str:
    return "not measured" if speed is None else f"{speed:.2f}"


def document(options: argparse.Namespace, result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"""# Performance of operations on the CPU

Written by `python -m benchmarks.ops_host --write {options.write}` on
{today()}, with `--seed {options.seed} --cases {options.cases}`.

{machine()}; {options.threads} threads of each library; Python {platform.python_version()};
{versions}.

The least time of the rounds. A speed is the time of the faster of {" and ".join(PEERS)}, divided
by {OURS}'s time: above 1 {OURS} is faster. Each library is called as programs call it,
without `out=`, so results are allocated too; {OURS} takes them from its pool. Page faults show that
much of a peer's time for a large result belongs to the operating system.

<!-- plots -->

{tables(result)}
"""


if __name__ == "__main__":
    sys.exit(main())
