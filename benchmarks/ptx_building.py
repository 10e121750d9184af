"""Time to build kernels written in Python: `python -m benchmarks.ptx_building`.

Each ready kernel of `uhal.ptx` is built to text, first in a new process, then again. Times are
processor time in ms; the second is the median of further builds. The exit status is 1 when a gate
is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

LIMIT = 20.0
"""Milliseconds that building the largest kernel, of 60 lines, may take."""
BUILDS = 20


def measured(name: str) -> dict[str, Any]:
    """Times of one kernel in this process, in ms."""
    from uhal.ptx import ready

    make = getattr(ready, name).__wrapped__
    times = []
    for _ in range(1 + BUILDS):
        begun = time.process_time()
        text = make().ptx
        times.append(1e3 * (time.process_time() - begun))
    lines = sum(line[0] == "\t" and line[1] != "." for line in text.splitlines() if line)
    return {
        "kernel": name,
        "instructions": lines,
        "first": times[0],
        "again": statistics.median(times[1:]),
    }


def main() -> int:
    """Print the times; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the gates as a line of JSON")
    parser.add_argument("--kernel", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kernel:
        print(json.dumps(measured(options.kernel)))
        return 0
    from uhal.ptx import ready

    rows = []
    for name in ready.__all__:
        command = [sys.executable, "-m", "benchmarks.ptx_building", "--kernel", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
    gates = [
        {
            "what": f"{one['kernel']}, built in a new process, ms",
            "is": one["first"],
            "at_most": LIMIT,
            "holds": one["first"] <= LIMIT,
        }
        for one in rows
    ]
    if options.json:
        print(json.dumps({"gates": gates, "results": rows}))
    else:
        print(f"{'kernel':<14} {'instructions':>12} {'first, ms':>10} {'again, ms':>10}")
        for one in rows:
            numbers = f"{one['instructions']:>12} {one['first']:>10.1f} {one['again']:>10.1f}"
            print(f"{one['kernel']:<14} {numbers}")
    return 0 if all(gate["holds"] for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
