"""`python -m uhal bench MODEL`: tokens/s of reading and writing, at several lengths."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.models.commands.options import add_loading, loaded
from ubridge.models.model import Model

_RUNS = 3
"""Runs of each length; the fastest counts."""


@dataclass(frozen=True)
class Speed:
    """One length."""

    length: int
    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float

    @property
    def prefill_rate(self) -> float:
        """Tokens/s of reading, all tokens at once."""
        return self.prefill_tokens / self.prefill_seconds

    @property
    def decode_rate(self) -> float:
        """Tokens/s of writing, one by one, after reading."""
        return self.decode_tokens / self.decode_seconds


def run(arguments: Sequence[str]) -> int:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m uhal bench", description=__doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a folder of Hugging Face's, or a GGUF file")
    told = "tokens read before those written (default 32,128,512)"
    add("--lengths", type=_lengths, default=[32, 128, 512], metavar="N,…", help=told)
    add("--decode", type=int, default=32, metavar="N", help="tokens written (default 32)")
    add("--runs", type=int, default=_RUNS, metavar="N", help=f"of each (default {_RUNS})")
    add("--json", action="store_true", help="print one JSON object")
    add_loading(parser)
    options = parser.parse_args(arguments)
    require(
        min((options.decode, options.runs, *options.lengths)) >= 1,
        "--lengths, --decode and --runs: expected numbers of at least 1",
    )
    options.context = options.context or max(options.lengths) + options.decode
    model = loaded(options, options.model, None)
    rows = [measured(model, length, options.decode, options.runs) for length in options.lengths]
    if options.json:
        print(json.dumps({**_described(model), "rows": [_record(row) for row in rows]}))
        return 0
    print(f"{'tokens':>8} {'read/s':>12} {'written/s':>12} {'ms a token':>12}")
    for row in rows:
        print(
            f"{row.length:8} {row.prefill_rate:12.2f} {row.decode_rate:12.2f} "
            f"{1000 * row.decode_seconds / row.decode_tokens:12.3f}"
        )
    return 0


def measured(model: Model, length: int, decode: int, runs: int) -> Speed:
    """Read random tokens at once, then write the most probable ones; return the fastest run."""
    cache = model.cache(length + decode)
    tokens = np.random.default_rng(length).integers(0, model.vocabulary, length).tolist()
    prefill, written = [], []
    # One additional run, because the first compiles and captures.
    for _ in range(runs + 1):
        cache.truncate(0)
        start = time.perf_counter()
        token = _best(model.logits(tokens, cache))
        read = time.perf_counter()
        for _ in range(decode):
            token = _best(model.logits([token], cache))
        prefill.append(read - start)
        written.append(time.perf_counter() - read)
    return Speed(length, length, min(prefill[1:]), decode, min(written[1:]))


def _best(logits: ub.DeviceTensor) -> int:
    return int(ub.argmax(logits).to_numpy())


def _lengths(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _record(row: Speed) -> dict[str, float]:
    return {**asdict(row), "prefill_rate": row.prefill_rate, "decode_rate": row.decode_rate}


def _described(model: Model) -> dict[str, str]:
    device = model.device
    return {
        "model": str(model.source),
        "architecture": model.architecture,
        "device": f"{device.backend}:{device.ordinal} {device.name}",
        "python": sys.version.split()[0],
    }
