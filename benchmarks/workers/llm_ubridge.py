"""ubridge's part of `benchmarks/llm.py`: FILE THREADS CONTEXT, then lines of work and tokens."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import ubridge as ub
from ubridge.models import Model
from uhal import Device


def main(path: str, threads: str, context: str) -> None:
    tokens = np.random.default_rng(0).integers(3, 30000, int(context)).tolist()
    with Device(0, backend="host"):
        model = Model.load(path, context=int(context))
        cache = model.cache()
        for line in sys.stdin:
            what, count = line.split()
            some, start = tokens[: int(count)], time.perf_counter()
            if what == "memory":
                print(_peak(), flush=True)
                continue
            if what == "first":
                fresh = Model.load(path, context=int(context))
                with fresh.cache() as own:
                    int(ub.argmax(fresh.logits(some, own)))
            elif what == "prefill":
                cache.truncate(0)
                int(ub.argmax(model.logits(some, cache)))
            else:
                for token in some:
                    int(ub.argmax(model.logits([token], cache)))
            print(time.perf_counter() - start, flush=True)
            if what == "prefill":
                # The step is captured once, which no turn of decoding is to pay for.
                model.logits(tokens[-1:], cache)
            elif what == "decode":
                cache.truncate(cache.length - int(count))


def _peak() -> int:
    """The most bytes resident; `ru_maxrss` begins with those of whoever started the process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(one for one in status.splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
