"""Random numbers and sorts on the CPU compared with numpy's: `python -m
benchmarks.random_and_sort`.

Both run in each round, and the median of the rounds' ratios counts. Time is the processor time of
the whole process. Both allocate their result. numpy draws with its own generators, PCG64 and
Ziggurat, which no GPU repeats. The exit status is 1 when a gate is missed.

    python -m benchmarks.random_and_sort [--threads 1] [--rounds 9] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

SIZE = 1 << 22
"""Random numbers in all."""
ROWS = {"1,000,003 in a row": (1, 1_000_003), "8 rows of 128,256": (8, 128_256)}
SPEED = 1.0
"""Least speed of random numbers relative to numpy's."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_and_sort")
    parser.add_argument("--threads", type=int, default=1, help="of ubridge; numpy has one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    os.environ["UHAL_HOST_THREADS"] = str(options.threads)
    rows = {name: _measured(options.rounds, *forms) for name, forms in _forms()}
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'':<32} {'ms':>8} {'times numpy':>12}")
        for name, (milliseconds, speed) in rows.items():
            print(f"{name:<32} {milliseconds:>8.2f} {speed:>12.2f}")
    missed = [name for name, (_, speed) in rows.items() if "rand" in name and speed < SPEED]
    for name in missed:
        print(f"{name}: below {SPEED} of numpy's speed", file=sys.stderr)
    return 1 if missed else 0


Form = Callable[[], object]


def _forms() -> Iterator[tuple[str, tuple[Form, Form]]]:
    import numpy as np

    import ubridge as ub
    from uhal import Device

    rng = np.random.default_rng(0)
    with Device(0, backend="host") as device:

        def waited(make: Callable[..., object], *given: Any, **named: Any) -> None:
            make(*given, **named)
            device.synchronize()

        for name, theirs in (("rand", rng.random), ("randn", rng.standard_normal)):
            ours = getattr(ub, name)
            for dtype, peer in (("f32", np.float32), ("f64", np.float64)):
                yield (
                    f"{name} {dtype}",
                    (partial(waited, ours, SIZE, dtype, seed=1), partial(theirs, SIZE, peer)),
                )
        for reported, shape in ROWS.items():
            for dtype in ("f32", "i64"):
                array = (rng.standard_normal(shape) * 1e6).astype("f4" if dtype == "f32" else "i8")
                x = ub.asarray(array)
                yield (
                    f"argsort {dtype}, {reported}",
                    (
                        partial(waited, ub.argsort, x),
                        partial(np.argsort, array, axis=-1, kind="stable"),
                    ),
                )


def _measured(rounds: int, ours: Form, theirs: Form) -> tuple[float, float]:
    """Milliseconds, and the speed relative to numpy."""
    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        times.append((_time(ours), _time(theirs)))
    # The first round allocates memory that later rounds reuse.
    counted = times[1:]
    return (
        statistics.median(one for one, _ in counted) * 1e3,
        statistics.median(other / one for one, other in counted),
    )


def _time(form: Form) -> float:
    begun = time.process_time()
    form()
    return time.process_time() - begun


if __name__ == "__main__":
    sys.exit(main())
