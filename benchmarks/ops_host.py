"""ubridge's operations on the CPU compared with numpy's and torch's: `python -m
benchmarks.ops_host`.

Every library runs in its own process, on the same processors with the same number of threads,
several times in turn. The figure is the processor time of the whole process, without other
processes; it is the least of all rounds, because disturbances only add. Results are compared. The
exit status is 1 when a gate is missed or results differ.

    python -m benchmarks.ops_host --peers PYTHON          a Python that has torch and numpy
    python -m benchmarks.ops_host --peers PYTHON --json
    python -m benchmarks.ops_host --peers PYTHON --write docs/performance_ops.md
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.launch_overhead import machine
from benchmarks.ops import COLUMNS, FEW, OPERATIONS, PRODUCTS, Timing
from benchmarks.suites import ROOT
from benchmarks.tables import today, write_figures

PEERS = ("numpy", "torch")
OURS = "ubridge"
PASSES = 2
SECONDS = 900
SAME = 1e-3
"""How far checksums may differ; they are sums of magnitudes of f32."""


@dataclass
class Result:
    """All results of a run of the benchmark."""

    rows: dict[tuple[str, int, str], Timing] = field(default_factory=dict)
    """By operation, size and library."""
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, row: Timing) -> None:
        """Keep the least time of an operation."""
        key = (row.operation, row.size, row.library)
        before = self.rows.get(key)
        if before is None or row.nanoseconds < before.nanoseconds:
            self.rows[key] = row

    def nanoseconds(self, operation: str, size: int, libraries: Iterable[str]) -> float | None:
        """The least time of the libraries that ran."""
        found = [self.rows.get((operation, size, library)) for library in libraries]
        return min((row.nanoseconds for row in found if row is not None), default=None)

    def speed(self, operation: str, size: int, over: Iterable[str] = PEERS) -> float | None:
        """Speed of ubridge relative to the fastest other library."""
        ours, theirs = (self.nanoseconds(operation, size, one) for one in ((OURS,), over))
        return None if ours is None or theirs is None else theirs / ours

    def mean_speed(
        self, operations: Iterable[str], sizes: Iterable[int], over: Iterable[str] = PEERS
    ) -> float | None:
        """The geometric mean of the speeds."""
        pairs = [(operation, size) for operation in operations for size in sizes]
        found = [self.speed(operation, size, over) for operation, size in pairs]
        logarithms = [math.log(one) for one in found if one is not None]
        return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None

    def differences(self) -> list[str]:
        """Operations whose results differ between libraries."""
        found = []
        for (operation, size, library), row in self.rows.items():
            ours = self.rows.get((operation, size, OURS))
            if ours is not None and not math.isclose(ours.checksum, row.checksum, rel_tol=SAME):
                reported = f"{operation}, {size}: {OURS} {ours.checksum}, {library} {row.checksum}"
                found.append(reported)
        return found


@dataclass(frozen=True)
class Gate:
    """A relative speed that a run must reach."""

    what: str
    least: float
    speed: Callable[[Result], float | None]


THOUSAND = 1_000
LEAST_ON_A_THOUSAND = {"indexing": 0.8}
"""Gates for a family's geometric mean that are not 1. numpy's `take` copies on the spot."""


def _family_gate(family: str) -> Gate:
    operations = [name for name, its in OPERATIONS.items() if its == family]
    return Gate(
        f"{family} on {THOUSAND:,} elements, over the faster of numpy and torch",
        LEAST_ON_A_THOUSAND.get(family, 1.0),
        lambda result: result.mean_speed(operations, (THOUSAND,)),
    )


GATES = (
    *map(_family_gate, dict.fromkeys(OPERATIONS.values())),
    Gate(
        "elementwise, reductions, softmax, norms and indexing, over the faster of numpy and torch",
        1.0,
        lambda result: result.mean_speed(OPERATIONS, COLUMNS),
    ),
    Gate(
        "products of matrices, over numpy",
        0.95,
        lambda result: result.mean_speed(PRODUCTS, (0,), ("numpy",)),
    ),
    Gate(
        f"add on {FEW} elements, over torch",
        1.0,
        lambda result: result.speed("add", FEW, ("torch",)),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops_host")
    parser.add_argument("--peers", default=sys.executable, help="the Python with numpy and torch")
    parser.add_argument("--threads", type=int, default=1, help="of every library; numpy has one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, help="also write the tables to this Markdown file")
    options = parser.parse_args()
    result = run(options.peers, options.threads)
    if options.json:
        print(json.dumps(as_json(result, options.threads)))
    else:
        print(tables(result))
    if options.write:
        options.write.write_text(document(options, result), encoding="utf-8")
        write_figures(options.write, as_json(result, options.threads))
    speeds = [(gate, gate.speed(result)) for gate in GATES]
    missed = [gate for gate, speed in speeds if speed is not None and speed < gate.least]
    differences = result.differences()
    for difference in differences:
        print(f"results differ: {difference}", file=sys.stderr)
    return 1 if missed or differences or OURS in result.missing else 0


def run(peers: str, threads: int) -> Result:
    """Run every library in turn; keep the reason of a library that cannot run."""
    result = Result()
    for _ in range(PASSES):
        for library in (OURS, *PEERS):
            if library in result.missing:
                continue
            python = sys.executable if library == OURS else peers
            try:
                answer = _worker(library, python, threads)
            except RuntimeError as failure:
                result.missing[library] = str(failure)
                continue
            for row in answer["rows"]:
                result.add(Timing(**row))
            result.versions.update(answer["versions"])
    return result


def _worker(library: str, python: str, threads: int) -> dict[str, Any]:
    processors = sorted(os.sched_getaffinity(0))[-threads:]
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "UHAL_HOST_THREADS": str(threads),
    }
    command = [python, "-m", f"benchmarks.workers.ops_{library}", *map(str, processors)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise RuntimeError(str(failure)) from None
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def as_json(result: Result, threads: int) -> dict[str, Any]:
    return {
        "date": today(),
        "machine": machine(),
        "python": platform.python_version(),
        "threads": threads,
        "versions": result.versions,
        "rows": [vars(row) for row in result.rows.values()],
        "speeds": [
            {"operation": operation, "size": size, "speed": result.speed(operation, size)}
            for operation, size in dict.fromkeys(key[:2] for key in result.rows)
        ],
        "means": means(result),
        "gates": [
            {"what": gate.what, "least": gate.least, "is": gate.speed(result)} for gate in GATES
        ],
        "missing": result.missing,
    }


def tables(result: Result) -> str:
    """The gates, means by family and size, and every row, as Markdown."""
    text = ["| speed | at least | is |", "|---|---:|---:|"]
    for gate in GATES:
        text.append(f"| {gate.what} | {gate.least:.2f} | {_text(gate.speed(result))} |")
    text += ["", f"| geometric means | {' | '.join(f'{size:,}' for size in COLUMNS)} |"]
    text.append("|---|" + "---:|" * len(COLUMNS))
    for family, speeds in means(result).items():
        text.append(f"| {family} | {' | '.join(map(_text, speeds.values()))} |")
    for size in (*COLUMNS, FEW):
        text += ["", *_table(result, f"{size:,} elements", OPERATIONS, size)]
    text += ["", *_table(result, "matrix products", PRODUCTS, 0)]
    for name, reason in result.missing.items():
        text += ["", f"{name} took no part: {reason}"]
    return "\n".join(text)


def means(result: Result) -> dict[str, dict[str, float | None]]:
    """Geometric means of the speeds, by family and size."""
    return {
        family: {
            str(size): result.mean_speed(
                [one for one in OPERATIONS if OPERATIONS[one] == family], (size,)
            )
            for size in COLUMNS
        }
        for family in dict.fromkeys(OPERATIONS.values())
    }


def _table(result: Result, title: str, operations: Iterable[str], size: int) -> list[str]:
    text = [f"| {title}, µs | {OURS} | {' | '.join(PEERS)} | speed |", "|---|---:|---:|---:|---:|"]
    for operation in operations:
        found = [result.nanoseconds(operation, size, (one,)) for one in (OURS, *PEERS)]
        reported = ["" if one is None else f"{one / 1e3:,.1f}" for one in found]
        speed = _text(result.speed(operation, size))
        text.append(f"| {operation} | {' | '.join(reported)} | {speed} |")
    return text


def _text(speed: float | None) -> str:
    return "not measured" if speed is None else f"{speed:.2f}"


def document(options: argparse.Namespace, result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"""# Performance of operations on the CPU

Written by `python -m benchmarks.ops_host --write {options.write}` on
{today()}.

{machine()}; {options.threads} threads of each library; Python {platform.python_version()};
{versions}.

Processor time of the process, the least of the rounds. A speed is the time of the faster of
{" and ".join(PEERS)} over that of {OURS}: above 1 it is faster. Each library is called as programs
call it, without `out=`, so results are allocated too; {OURS} takes them from its pool.

<!-- plots -->

{tables(result)}
"""


if __name__ == "__main__":
    sys.exit(main())
