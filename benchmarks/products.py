"""Products of matrices on the CPU, in turn in one process: `python -m benchmarks.products`.

Compares ubridge's f32 with numpy's, and bf16 and f16 with f32. Every form runs in each round, and
the median of the rounds' ratios counts: a disturbance of the machine affects all forms of a round
equally. Time is the processor time of the whole process for several products, with one wait at the
end. With `--wall` it is the caller's time for one product and its wait, with each library's own
number of threads. The exit status is 1 when a gate is missed.

    python -m benchmarks.products [--wall | --threads 1] [--rounds 31] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

SIZES = (128, 192, 256, 384, 512, 768, 1024)
SPEED = 0.95
"""Least speed of f32 relative to numpy's, at every size."""
HALVES = 512
"""The least size at which bf16 and f16 must reach a share of f32's time."""
SHARE, SHARE_BY_INSTRUCTIONS = 1.1, 0.7
_ROUND_SECONDS = 0.004
_SLEEP_SECONDS = 0.15
"""Threads of numpy's OpenBLAS keep their processor for 0.1 s after a product."""

Taken = Callable[[Callable[[], object], int, Callable[[], None]], float]
"""Takes a call, its repetitions and a function that waits; returns the nanoseconds of a call."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.products")
    parser.add_argument("--threads", type=int, default=1, help="of ubridge and of numpy")
    parser.add_argument("--wall", action="store_true", help="wall time at default threads")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    # Both libraries read these variables at import; other values would slow OpenBLAS.
    for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
        del os.environ[name]
    if not options.wall:
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["UHAL_HOST_THREADS"] = str(options.threads)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    rows = measured(options.rounds, _waited_for if options.wall else _processor_time)
    if options.json:
        print(json.dumps({"rows": rows, "gates": [gate for row in rows for gate in gates(row)]}))
    else:
        print(f"{'product':>8} {'f32, µs':>10} {'numpy/f32':>10} {'bf16/f32':>9} {'f16/f32':>8}")
        for row in rows:
            print(
                f"{row['size']:>8} {row['f32']:>10.1f} {row['speed']:>10.2f} "
                f"{row['bf16']:>9.2f} {row['f16']:>8.2f}  {row['by']}"
            )
    missed = [
        f"{gate['what']}: {gate['is']:.2f}, gate {gate.get('least', gate.get('at_most'))}"
        for row in rows
        for gate in gates(row)
        if gate["is"] < gate.get("least", 0) or gate["is"] > gate.get("at_most", gate["is"])
    ]
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


def measured(rounds: int, taken: Taken) -> list[dict[str, float | str]]:
    """A row for each size."""
    import numpy as np

    import ubridge
    from uhal import Device

    rng = np.random.default_rng(0)
    rows: list[dict[str, float | str]] = []
    with Device(0, backend="host") as device:
        for size in SIZES:
            x, y = (rng.standard_normal((size, size), np.float32) for _ in range(2))
            held = [ubridge.from_numpy(one) for one in (x, y)]
            forms: dict[str, Callable[[], object]] = {"numpy": partial(np.matmul, x, y)}
            for dtype in ("f32", "bf16", "f16"):
                left, right = (one.astype(dtype) for one in held)
                forms[dtype] = partial(ubridge.matmul, left, right)
                if dtype == "bf16":
                    choice = ubridge.matmul_choice(left, right)
            times = _times(forms, rounds, device.synchronize, taken)
            ratio = {
                name: statistics.median(
                    one / ours for one, ours in zip(found, times["f32"], strict=True)
                )
                for name, found in times.items()
            }
            rows.append(
                {
                    "size": size,
                    "f32": min(times["f32"]) / 1e3,
                    "speed": ratio["numpy"],
                    "bf16": ratio["bf16"],
                    "f16": ratio["f16"],
                    "by": f"{choice.kernel}: {choice.reason}",
                }
            )
    return rows


def _times(
    forms: dict[str, Callable[[], object]], rounds: int, wait: Callable[[], None], taken: Taken
) -> dict[str, list[float]]:
    """Nanoseconds per call, by round."""
    counts = {}
    for name, form in forms.items():
        count = 1
        _processor_time(form, count, wait)  # the first call loads the libraries
        while _processor_time(form, count, wait) * count < _ROUND_SECONDS * 1e9:
            count *= 2
        counts[name] = count
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            # numpy's products are done when they return.
            own = _nothing if name == "numpy" else wait
            times[name].append(taken(form, counts[name], own))
    return times


def _nothing() -> None:
    pass


def _processor_time(form: Callable[[], object], count: int, wait: Callable[[], None]) -> float:
    start = time.process_time_ns()
    for _ in range(count):
        form()
    wait()
    return (time.process_time_ns() - start) / count


def _waited_for(form: Callable[[], object], count: int, wait: Callable[[], None]) -> float:
    time.sleep(_SLEEP_SECONDS)
    for _ in range(3):
        form()
        wait()
    times = []
    for _ in range(max(count, 3)):
        start = time.perf_counter_ns()
        form()
        wait()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def gates(row: dict[str, float | str]) -> list[dict[str, Any]]:
    """The gates of a size, with measured values."""
    size, by = row["size"], str(row["by"])
    found: list[dict[str, Any]] = [
        {"what": f"{size}: speed over numpy", "least": SPEED, "is": row["speed"]}
    ]
    for dtype in ("bf16", "f16") if float(size) >= HALVES else ():
        instructions = dtype == "bf16" and by.endswith(("bf16", "amx"))
        most = SHARE_BY_INSTRUCTIONS if instructions else SHARE
        what = f"{size}: time of {dtype} over f32"
        found.append({"what": what, "at_most": most, "is": row[dtype]})
    return found


if __name__ == "__main__":
    sys.exit(main())
