"""Host cost of a launch, compared with other libraries: `python -m benchmarks.launch_overhead`.

Every library runs in processes of its own, pinned to one processor. They run on a driver that does
nothing (`make simulators` builds it), which leaves only the caller's side. The host backend has no
driver to replace; its kernels are almost empty. The libraries run in turn, several times, so that a
disturbance of the machine affects all of them.

The exit status is 1 when a gate is missed, and when a library failed or launched the wrong kernels.
A library that is not installed, or does not load on the do-nothing driver, is listed with the
reason. OpenCL has no do-nothing driver: Intel's runtime for CPUs runs kernels that count, and only
the time of the calling thread is measured.

    python -m benchmarks.launch_overhead --peers PYTHON   a Python that has cuda-core, pycuda, …
    python -m benchmarks.launch_overhead --backend rocm --peers PYTHON   one that has hip-python
    python -m benchmarks.launch_overhead --json
    python -m benchmarks.launch_overhead --write docs/performance.md    and its data
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.suites import (
    HOST_RUNTIME,
    NULL_DRIVERS,
    OPENCL_RUNTIME,
    ROOT,
    SUITES,
    Gate,
    Library,
    Suite,
)

TURNS = 5
STARTS = 5
SECONDS = 600  # a first run builds the lane without checks


@dataclass
class Start:
    """Cost of starting to use a library."""

    import_ms: float
    """Processor time, less the import of numpy."""
    first_device_ms: float | None
    """Time of the import and of opening a first device together."""
    installed_mb: float | None
    """Size on disk, with its requirements."""


@dataclass
class Result:
    """All results of a run of the benchmark."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, str]] = field(default_factory=list)
    """Rows a library cannot fill: library, what, form, reason."""
    versions: dict[str, str] = field(default_factory=dict)
    starts: dict[str, Start] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Libraries that take no part, and why."""
    failed: dict[str, str] = field(default_factory=dict)
    """Libraries that failed or sent other work than requested."""

    def fastest(
        self, what: str, args: int, libraries: tuple[str, ...], form: str = ""
    ) -> dict[str, Any] | None:
        """The cheapest matching row; `None` without a matching row."""
        found = [
            row
            for row in self.rows
            if (row["what"], row["args"]) == (what, args)
            and row["library"] in libraries
            and form in ("", row["form"])
        ]
        return min(found, key=lambda row: row["median_ns"]) if found else None

    def ratio(self, gate: Gate) -> float | None:
        """Ratio of uhal to the peer; `None` if either was not measured."""
        ours = self.fastest(gate.what, gate.args, ("uhal",), gate.form)
        theirs = self.fastest(gate.what, gate.args, gate.over, gate.over_form)
        if ours is None or theirs is None:
            return None
        return float(ours["median_ns"] / theirs["median_ns"])

    @property
    def floor_ns(self) -> float | None:
        row = self.fastest("launch", 3, ("floor",))
        return row["median_ns"] if row else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launch_overhead")
    parser.add_argument(
        "--peers", default=sys.executable, help="the Python that has the other libraries"
    )
    parser.add_argument("--backend", choices=SUITES, default="cuda")
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each library runs")
    parser.add_argument("--wheel", type=Path, help="a wheel of uhal whose size is told as well")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, help="also write the tables to this Markdown file")
    options = parser.parse_args()
    suite = SUITES[options.backend]
    unbuilt = [one.driver for one in suite.libraries if not one.driver.is_file()]
    if unbuilt:
        if OPENCL_RUNTIME in unbuilt:
            parser.error(f"there is no {OPENCL_RUNTIME}: pip install -e '.[opencl]'")
        what = "build" if HOST_RUNTIME in unbuilt else "simulators"
        parser.error(f"{unbuilt[0].name} is not built: make {what}")
    result = run(suite, options.backend, options.peers, options.turns)
    outcomes = [(gate, result.ratio(gate)) for gate in suite.gates]
    if options.json:
        print(json.dumps(_as_json(result, outcomes, options.wheel)))
    else:
        print(tables.tables(result, outcomes, options.wheel))
    if options.write:
        text = tables.document(options.backend, options.write, result, outcomes, options.wheel)
        options.write.write_text(text, encoding="utf-8")
        tables.write_figures(options.write, _as_json(result, outcomes, options.wheel))
    missed = [gate for gate, ratio in outcomes if ratio is not None and ratio > gate.limit]
    return 1 if missed or result.failed else 0


def run(suite: Suite, backend: str, peers: str, turns: int) -> Result:
    """Run every worker in turn; keep the reason of a library that cannot run."""
    result = Result()
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for _ in range(turns):
        for library in suite.libraries:
            if library.name in (*result.absent, *result.failed):
                continue
            python = sys.executable if library.ours else peers
            try:
                answer = _worker(library, backend, python)
            except RuntimeError as failure:
                result.failed[library.name] = str(failure)
                continue
            _take_in(library, answer, result, rows)
    result.rows = [_summary(row) for row in rows.values()]
    for library in suite.libraries:
        if library.module and library.name not in (*result.absent, *result.failed):
            python = sys.executable if library.ours else peers
            result.starts[library.name] = _start(library, python)
    return result


def _worker(library: Library, backend: str, python: str) -> dict[str, Any]:
    worker = f"benchmarks.workers.{library.worker}"
    said = _said([python, "-m", worker, str(library.driver), backend])
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer


def _take_in(
    library: Library,
    answer: dict[str, Any],
    result: Result,
    rows: dict[tuple[Any, ...], dict[str, Any]],
) -> None:
    """Add the rows of a library's turn to the rows of earlier turns."""
    if "absent" in answer:
        result.absent[library.name] = answer["absent"]
        return
    for row in answer["rows"]:
        known = rows.setdefault((row["library"], row["form"], row["what"], row["args"]), row)
        if known is not row:
            known["times_ns"] += row["times_ns"]
            known["launches"] += row["launches"]
            known["checksum"] = (known["checksum"] + row["checksum"]) % 2**64
    for gap in answer["gaps"]:
        reported = {"library": library.name, **gap}
        if reported not in result.gaps:
            result.gaps.append(reported)
    result.versions.update(answer["versions"])


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the median of its rounds, and half the distance between their quartiles."""
    times = row["times_ns"]
    quartiles = statistics.quantiles(times, n=4)
    return {
        **{name: row[name] for name in ("library", "form", "what", "args")},
        "median_ns": round(statistics.median(times), 1),
        "spread_ns": round((quartiles[2] - quartiles[0]) / 2, 1),
        "launches": row["launches"],
        "checksum": row["checksum"],
    }


def _start(library: Library, python: str) -> Start:
    """Medians over a few new processes."""
    timed = "import time, ctypes, numpy; start = time.process_time(); "
    reported = "print(1e3 * (time.process_time() - start))"
    imported = f"import {library.module}"
    first = installed = None
    if library.first_device:
        first = _milliseconds(python, f"{timed}{imported}; {library.first_device}; {reported}")
    if library.distribution:
        worker = [python, "-m", "benchmarks.workers.installed", library.distribution]
        installed = float(_said(worker)) / 1e6
    return Start(_milliseconds(python, f"{timed}{imported}; {reported}"), first, installed)


def _milliseconds(python: str, program: str) -> float:
    return statistics.median(float(_said([python, "-c", program])) for _ in range(STARTS))


def _said(command: list[str]) -> str:
    environment = {
        **os.environ,
        "UHAL_CUDA_LIBRARY": str(NULL_DRIVERS / "libcuda.so.1"),
        "UHAL_ROCM_LIBRARY": str(NULL_DRIVERS / "libhsa-runtime64.so.1"),
        "UHAL_TOPS_LIBRARY": str(NULL_DRIVERS / "libtopsrt.so.1"),
        "LD_LIBRARY_PATH": str(NULL_DRIVERS),
        "OPENBLAS_NUM_THREADS": "1",
    }
    # A program's modules are compiled only once, so a start does not include compilation.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
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
    return done.stdout


def _as_json(result: Result, outcomes: tables.Outcomes, wheel: Path | None) -> dict[str, Any]:
    return {
        "date": tables.today(),
        "machine": machine(),
        "python": platform.python_version(),
        "versions": result.versions,
        "floor_ns": result.floor_ns,
        "rows": result.rows,
        "gates": [
            {"what": tables.gate_text(gate), "at_most": gate.limit, "is": ratio}
            for gate, ratio in outcomes
        ],
        "gaps": result.gaps,
        "starts": {name: vars(start) for name, start in result.starts.items()},
        "wheel_bytes": wheel.stat().st_size if wheel else None,
        "absent": result.absent,
        "failed": result.failed,
    }


def machine() -> str:
    """The processor's name and the number of processors."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} processors, {platform.system()}"


if __name__ == "__main__":
    sys.exit(main())
