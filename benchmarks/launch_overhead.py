"""What a launch costs on the host, beside other libraries: `python -m benchmarks.launch_overhead`.

Every library runs in a process of its own, pinned to one processor, on a driver that does nothing
(`make simulators` builds it), so that only the caller's side is left. The exit status is 1 when a
gate is missed, and a library that launched something else than it was asked to ends its own row
with the reason.

    python -m benchmarks.launch_overhead --peers PYTHON   a Python that has cuda-core, pycuda, …
    python -m benchmarks.launch_overhead --json
    python -m benchmarks.launch_overhead --write docs/performance.md
    python -m benchmarks.launch_overhead --backend rocm --peers PYTHON   one that has hip-python
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NULL_DRIVERS = ROOT / "simulators" / "build" / "null"
NULL_DRIVER = NULL_DRIVERS / "libcuda.so.1"
NULL_RUNTIME = NULL_DRIVERS / "libhsa-runtime64.so.1"
NULL_HIP = NULL_DRIVERS / "libamdhip64.so"
SECONDS = 180
IMPORTS = 5


@dataclass(frozen=True)
class Library:
    """A library and the worker that knows its forms."""

    name: str
    worker: str
    ours: bool = True
    """Runs in this environment; others run in that of the peers."""
    module: str = ""
    """What a program imports of it."""
    driver: Path = NULL_DRIVER
    """What it launches through."""


CUDA_LIBRARIES = (
    Library("floor", "floor"),
    Library("ctypes", "ctypes_calls"),
    Library("uhal", "uhal_calls", module="uhal"),
    Library("uhal, unchecked", "uhal_unchecked"),
    Library("cuda.bindings", "cuda_bindings_calls", ours=False, module="cuda.bindings.driver"),
    Library("cuda.core", "cuda_core_calls", ours=False, module="cuda.core"),
    Library("PyCUDA", "pycuda_calls", ours=False, module="pycuda.driver"),
)
ROCM_LIBRARIES = (
    Library("ctypes", "hip_ctypes_calls", driver=NULL_HIP),
    Library("uhal", "uhal_rocm_calls", module="uhal", driver=NULL_RUNTIME),
    Library("hip-python", "hip_python_calls", ours=False, module="hip", driver=NULL_HIP),
)


@dataclass(frozen=True)
class Gate:
    """A bound on one of our rows over others', in the same run."""

    what: str
    args: int
    form: str
    """Ours."""
    over: tuple[str, ...]
    """Libraries of which the fastest row counts."""
    limit: float
    over_form: str = ""
    """Theirs; empty: whichever is the fastest."""


UNCHECKED = ("uhal, unchecked",)
# Safety may cost 30 % of a launch.
SAFETY = 1 / 0.7
PEERS = ("ctypes", "cuda.bindings", "cuda.core", "PyCUDA")
CUDA_GATES = (
    Gate("launch", 3, "launch, keywords", ("cuda.core",), 0.2),
    Gate("launch", 8, "launch, keywords", ("cuda.core",), 0.2),
    Gate("launch", 3, "bound", ("cuda.core",), 0.15),
    Gate("launch", 8, "bound", ("cuda.core",), 0.15),
    Gate("launch", 3, "launch, keywords", UNCHECKED, SAFETY, "launch, keywords"),
    Gate("launch", 8, "launch, keywords", UNCHECKED, SAFETY, "launch, keywords"),
    Gate("launch", 3, "bound", UNCHECKED, SAFETY, "bound"),
    Gate("launch", 8, "bound", UNCHECKED, SAFETY, "bound"),
    Gate("alloc+free", 0, "DeviceBuffer, pooled", ("cuda.bindings",), 0.5),
    Gate("copy 4 KiB", 0, "copy_from", PEERS, 0.7),
    Gate("record", 0, "Event.record", PEERS, 0.6),
    Gate("sync", 0, "Stream.synchronize", PEERS, 1.2),
)

HIP = ("ctypes", "hip-python")
ROCM_GATES = (
    Gate("launch", 3, "launch, keywords", HIP, 1.0),
    Gate("launch", 8, "launch, keywords", HIP, 1.0),
    Gate("launch", 3, "bound", HIP, 1.0),
    Gate("launch", 8, "bound", HIP, 1.0),
)


@dataclass(frozen=True)
class Suite:
    """What is measured of a backend, and the bounds."""

    libraries: tuple[Library, ...]
    gates: tuple[Gate, ...]


SUITES = {
    "cuda": Suite(CUDA_LIBRARIES, CUDA_GATES),
    "rocm": Suite(ROCM_LIBRARIES, ROCM_GATES),
}


@dataclass
class Result:
    """All that one run of the benchmark saw."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    imports: dict[str, float] = field(default_factory=dict)
    """Milliseconds of processor time by module, over those of numpy."""
    missing: dict[str, str] = field(default_factory=dict)

    def fastest(
        self, what: str, args: int, libraries: tuple[str, ...], form: str = ""
    ) -> dict[str, Any] | None:
        found = [
            row
            for row in self.rows
            if (row["what"], row["args"]) == (what, args)
            and row["library"] in libraries
            and form in ("", row["form"])
        ]
        return min(found, key=lambda row: row["median_ns"]) if found else None

    def ours(self, gate: Gate) -> dict[str, Any] | None:
        return self.fastest(gate.what, gate.args, ("uhal",), gate.form)

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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, help="also write the tables to this Markdown file")
    options = parser.parse_args()
    suite = SUITES[options.backend]
    if not all(library.driver.is_file() for library in suite.libraries):
        parser.error("the do-nothing drivers are not built: make simulators")
    result = run(suite, options.peers)
    outcomes = [(gate, _ratio(result, gate)) for gate in suite.gates]
    if options.json:
        print(json.dumps(_as_json(result)))
    else:
        print(tables(result, outcomes))
    if options.write:
        text = _document(options.backend, options.write, result, outcomes)
        options.write.write_text(text, encoding="utf-8")
    missed = [gate for gate, ratio in outcomes if ratio is not None and ratio > gate.limit]
    return 1 if missed or "uhal" in result.missing else 0


def run(suite: Suite, peers: str) -> Result:
    """Run every worker; a library that cannot take part says why."""
    result = Result()
    for library in suite.libraries:
        python = sys.executable if library.ours else peers
        try:
            answer = _worker(library, python)
            if library.module:
                result.imports[library.module] = _import_milliseconds(library.module, python)
        except RuntimeError as failure:
            result.missing[library.name] = str(failure)
            continue
        result.rows += answer["rows"]
        result.versions.update(answer["versions"])
    return result


def _worker(library: Library, python: str) -> dict[str, Any]:
    said = _said([python, "-m", f"benchmarks.workers.{library.worker}", str(library.driver)])
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer


def _import_milliseconds(module: str, python: str) -> float:
    """The median of a few fresh processes."""
    program = (
        "import time, numpy; start = time.process_time(); "
        f"import {module}; print(1e3 * (time.process_time() - start))"
    )
    return statistics.median(float(_said([python, "-c", program])) for _ in range(IMPORTS))


def _said(command: list[str]) -> str:
    environment = {
        **os.environ,
        "UHAL_CUDA_LIBRARY": str(NULL_DRIVER),
        "UHAL_ROCM_LIBRARY": str(NULL_RUNTIME),
        "LD_LIBRARY_PATH": str(NULL_DRIVERS),
        "OPENBLAS_NUM_THREADS": "1",
    }
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


def _ratio(result: Result, gate: Gate) -> float | None:
    ours, theirs = (
        result.ours(gate),
        result.fastest(gate.what, gate.args, gate.over, gate.over_form),
    )
    if ours is None or theirs is None:
        return None
    return float(ours["median_ns"] / theirs["median_ns"])


def _as_json(result: Result) -> dict[str, Any]:
    return {
        "machine": machine(),
        "versions": result.versions,
        "floor_ns": result.floor_ns,
        "rows": result.rows,
        "imports_ms": result.imports,
        "missing": result.missing,
    }


def machine() -> str:
    """The processor and how many of it, as the system names them."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} processors, {platform.system()}"


def tables(result: Result, outcomes: list[tuple[Gate, float | None]]) -> str:
    """The rows by what they do, then the gates, as Markdown."""
    text = []
    for what in dict.fromkeys(row["what"] for row in result.rows if row["what"] != "control"):
        for args in sorted({row["args"] for row in result.rows if row["what"] == what}):
            title = f"{what}, {args} arguments" if what == "launch" else what
            text += [f"| {title} | | ns | ± |", "|---|---|---:|---:|"]
            found = [row for row in result.rows if (row["what"], row["args"]) == (what, args)]
            for row in sorted(found, key=lambda row: row["median_ns"]):
                text.append(
                    f"| {row['library']} | {row['form']} | {row['median_ns']:.0f} | "
                    f"{row['spread_ns']:.0f} |"
                )
            text.append("")
    text += ["| ratio | of | at most | is |", "|---|---|---:|---:|"]
    for gate, ratio in outcomes:
        named = f"{gate.what}, {gate.args} arguments" if gate.what == "launch" else gate.what
        over = gate.over[0] if len(gate.over) == 1 else "the fastest other library"
        found_ratio = "not measured" if ratio is None else f"{ratio:.2f}"
        text.append(f"| {named}: {gate.form} | {over} | {gate.limit:.2f} | {found_ratio} |")
    text += ["", "| import, over numpy's | ms |", "|---|---:|"]
    text += [f"| {name} | {milliseconds:.0f} |" for name, milliseconds in result.imports.items()]
    for name, reason in result.missing.items():
        text += ["", f"{name} took no part: {reason}"]
    return "\n".join(text)


def _document(
    backend: str, path: Path, result: Result, outcomes: list[tuple[Gate, float | None]]
) -> str:
    asked = "" if backend == "cuda" else f"--backend {backend} "
    today = datetime.date.today().isoformat()
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"""# Performance

Written by `python -m benchmarks.launch_overhead {asked}--write {path}` on {today}.

{machine()}; Python {platform.python_version()}; {versions}.

Processor time of the calling thread, median over rounds and half the distance between the
quartiles. The driver does nothing: these are the costs of the libraries alone. Ratios carry over
to other machines, nanoseconds do not.

{tables(result, outcomes)}
"""


if __name__ == "__main__":
    sys.exit(main())
