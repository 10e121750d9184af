"""Cost of a call from several threads, compared with other libraries.

    python -m benchmarks.threads --peers PYTHON   a Python that has cuda-bindings
    python -m benchmarks.threads --json

Every thread has its own stream, on the do-nothing driver. Numbers are wall time divided by the
calls of all threads, in nanoseconds. With a global interpreter lock, no result can be below one
thread's. The exit status is 1 if uhal with eight threads takes over 1.5 times one thread's result:
then the library waits for its own lock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.launch_overhead import machine
from benchmarks.suites import NULL_DRIVER, ROOT

LIBRARIES = {"uhal": True, "ctypes": True, "cuda.bindings": False}
"""Libraries, and whether each runs in this environment or in the peers'."""
MOST_THREADS = 8
LIMIT = 1.5
SECONDS = 180


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads")
    parser.add_argument("--peers", default=sys.executable, help="the Python with other libraries")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not NULL_DRIVER.is_file():
        parser.error("the do-nothing drivers are not built: make simulators")
    rows: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for library, ours in LIBRARIES.items():
        try:
            rows += measured(library, sys.executable if ours else options.peers)
        except RuntimeError as failure:
            missing[library] = str(failure)
    if options.json:
        reported = {"machine": machine(), "rows": rows, "gates": gates(rows), "missing": missing}
        print(json.dumps(reported))
    else:
        print(table(rows))
        for library, reason in missing.items():
            print(f"\n{library} took no part: {reason}")
    slowed = [gate for gate in gates(rows) if gate["is"] > gate["at_most"]]
    return 1 if slowed or "uhal" in missing else 0


def gates(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bound on the cost of a call with several threads, relative to the call alone."""
    return [
        {
            "what": f"{row['what']}: {MOST_THREADS} threads over one",
            "at_most": LIMIT,
            "is": row["ns"] / alone(rows, row),
        }
        for row in rows
        if row["library"] == "uhal" and row["threads"] == MOST_THREADS
    ]


def measured(library: str, python: str) -> list[dict[str, Any]]:
    """The rows of a library, from a separate process."""
    done = subprocess.run(
        [python, "-m", "benchmarks.workers.threaded_calls", library, str(NULL_DRIVER)],
        cwd=ROOT,
        env={
            **os.environ,
            "UHAL_CUDA_LIBRARY": str(NULL_DRIVER),
            "LD_LIBRARY_PATH": str(NULL_DRIVER.parent),
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["rows"]
    return rows


def alone(rows: list[dict[str, Any]], row: dict[str, Any]) -> float:
    """Cost of the same call with one thread."""
    (found,) = [
        other["ns"]
        for other in rows
        if (other["library"], other["what"], other["threads"]) == (row["library"], row["what"], 1)
    ]
    return float(found)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown with a line for each library and call, and a column for each thread count."""
    counts = sorted({row["threads"] for row in rows})
    text = [
        f"| ns a call | {' | '.join(f'{n} threads' for n in counts)} | {counts[-1]} over 1 |",
        f"|---|{'---:|' * (len(counts) + 1)}",
    ]
    for what in dict.fromkeys(row["what"] for row in rows):
        for library in dict.fromkeys(row["library"] for row in rows):
            found = [r for r in rows if (r["library"], r["what"]) == (library, what)]
            if found:
                costs = " | ".join(f"{row['ns']:.0f}" for row in found)
                ratio = found[-1]["ns"] / alone(rows, found[-1])
                text.append(f"| {library}, {what} | {costs} | {ratio:.2f} |")
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
