"""Compares this checkout with another in one run: `python -m benchmarks.against CHECKOUT`.

The other checkout is a worktree of an earlier commit that the same Python built in place,
simulators included. Both run the uhal and ubridge rows of `ops_host`, `launch_overhead` and
`graph_replay` several times in turn. The fastest run of each figure counts, because other load only
adds time. The exit status is 1 when a figure takes more than 1.05 times as long here. A figure is
compared if both checkouts have it.

    python -m benchmarks.against ../before --turns 5
    python -m benchmarks.against ../before --only ops_host
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.suites import ROOT

TURNS = 3
LIMIT = 1.05
SECONDS = 900
NULL = Path("simulators", "build", "null")
DRIVERS = {
    "cuda": NULL / "libcuda.so.1",
    "rocm": NULL / "libhsa-runtime64.so.1",
    "tops": NULL / "libtopsrt.so.1",
    "host": Path("host_backend", "libuhal_host.so"),
}
RECORDING = ("host", "rocm", "cuda")
Figures = dict[str, float]
"""Nanoseconds by figure."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against")
    parser.add_argument("checkout", type=Path, help="a built worktree of the commit before")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--only", choices=BENCHMARKS)
    options = parser.parse_args()
    names = [options.only] if options.only else list(BENCHMARKS)
    ours, theirs = Figures(), Figures()
    for _ in range(options.turns):
        for checkout, found in ((options.checkout.resolve(), theirs), (ROOT, ours)):
            for name in names:
                for figure, nanoseconds in BENCHMARKS[name](checkout):
                    found[figure] = min(found.get(figure, nanoseconds), nanoseconds)
    slower = [one for one in ours if one in theirs and ours[one] > LIMIT * theirs[one]]
    print("| µs | before | now | of before | |\n|---|---:|---:|---:|---|")
    for figure in (one for one in ours if one in theirs):
        before, now = theirs[figure] / 1e3, ours[figure] / 1e3
        verdict = "slower" if figure in slower else ""
        print(f"| {figure} | {before:,.3f} | {now:,.3f} | {now / before:.2f} | {verdict} |")
    return 1 if slower else 0


def _operations(checkout: Path) -> Iterator[tuple[str, float]]:
    command = ("benchmarks.ops_host", "--alone", "--cases", "0", "--json")
    for row in _answer(checkout, *command)["rows"]:
        size = f", {row['size']:,}" if row["size"] else ""
        yield f"{row['operation']}{size}", row["nanoseconds"]


def _launches(checkout: Path) -> Iterator[tuple[str, float]]:
    for backend, driver in DRIVERS.items():
        library = str(checkout / driver)
        for row in _answer(checkout, "benchmarks.workers.uhal_calls", library, backend)["rows"]:
            arguments = f", {row['args']} arguments" if row["what"] == "launch" else ""
            if row["what"] != "control":
                yield f"{backend}: {row['what']}: {row['form']}{arguments}", min(row["times_ns"])


def _replays(checkout: Path) -> Iterator[tuple[str, float]]:
    for backend in RECORDING:
        answer = _answer(checkout, "benchmarks.graph_replay", "--only", backend)
        for name in ("eager", "replay", "change", "decoder_eager", "decoder_replay", "build"):
            if answer[name]:
                yield f"{backend}: {name.replace('_', ', ')}", answer[name] * 1e9


BENCHMARKS: Mapping[str, Callable[[Path], Iterator[tuple[str, float]]]] = {
    "ops_host": _operations,
    "launch_overhead": _launches,
    "graph_replay": _replays,
}


def _answer(checkout: Path, *command: str) -> dict[str, Any]:
    """Result of a checkout's worker, on the drivers built in that checkout."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=checkout,
        env={
            **os.environ,
            "UHAL_CUDA_LIBRARY": str(checkout / DRIVERS["cuda"]),
            "UHAL_ROCM_LIBRARY": str(checkout / DRIVERS["rocm"]),
            "UHAL_TOPS_LIBRARY": str(checkout / DRIVERS["tops"]),
            "OPENBLAS_NUM_THREADS": "1",
            "UHAL_HOST_THREADS": "1",
        },
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=SECONDS,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    sys.exit(main())
