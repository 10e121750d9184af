"""Times operations of ubridge and of torch on one GPU: `python -m benchmarks.beside_torch`.

Each operation runs many times between two events of its own library; a ratio compares medians of
one run. Without torch, or without a GPU that torch can use, only ubridge's operations are timed.
`--smoke` runs everything once on small operands: it shows that the benchmark works, also on the
simulated driver.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import ubridge as ub
from uhal import Api, Stream

Call = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    """Sizes of operands, and numbers of repetitions."""

    elements: int
    rows: int
    columns: int
    square: int
    tokens: int
    batches: int
    calls: int


FULL = Sizes(1 << 26, 1 << 13, 4096, 4096, 2048, batches=9, calls=10)
SMOKE = Sizes(1000, 3, 64, 32, 16, batches=1, calls=1)
HEADS, KV_HEADS, WIDTH = 32, 8, 128


def operands(sizes: Sizes, dtype: str) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of every operation by name, in f32; a library casts them."""
    rng = np.random.default_rng(0)
    shapes = {
        "x": (sizes.elements,),
        "y": (sizes.elements,),
        "rows": (sizes.rows, sizes.columns),
        "weight": (sizes.columns,),
        "left": (sizes.square, sizes.square),
        "right": (sizes.square, sizes.square),
        "vector": (1, sizes.square),
        "q": (1, HEADS, sizes.tokens, WIDTH),
        "k": (1, HEADS, sizes.tokens, WIDTH),
        "one": (1, HEADS, 1, WIDTH),
        "keys": (1, KV_HEADS, sizes.tokens, WIDTH),
    }
    return {name: rng.random(shape, np.float32) - 0.5 for name, shape in shapes.items()}


def ours(given: dict[str, np.ndarray[Any, Any]], dtype: str, stream: Stream) -> dict[str, Call]:
    """ubridge's calls in a stream, by the operation's name."""
    t = {name: ub.asarray(values).astype(dtype) for name, values in given.items()}
    return {
        "copy": lambda: ub.copy(t["x"], stream=stream),
        "add": lambda: ub.add(t["x"], t["y"], stream=stream),
        "exp": lambda: ub.exp(t["x"], stream=stream),
        "transposed copy": lambda: ub.copy(t["left"].mT, stream=stream),
        "sum of rows": lambda: ub.sum(t["rows"], -1, stream=stream),
        "sum of columns": lambda: ub.sum(t["rows"], 0, stream=stream),
        "softmax": lambda: ub.softmax(t["rows"], stream=stream),
        "rms_norm": lambda: ub.rms_norm(t["rows"], t["weight"], stream=stream),
        "matmul": lambda: ub.matmul(t["left"], t["right"], stream=stream),
        "vector by matrix": lambda: ub.linear(t["vector"], t["left"], stream=stream),
        "attention": lambda: ub.attention(t["q"], t["k"], t["k"], causal=True, stream=stream),
        "attention of one query": lambda: ub.attention(
            t["one"], t["keys"], t["keys"], stream=stream
        ),
    }


def torchs(given: dict[str, np.ndarray[Any, Any]], dtype: str) -> dict[str, Call]:
    """torch's calls, by the operation's name."""
    import torch
    from torch.nn import functional as f

    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    t = {name: torch.from_numpy(values).to("cuda", kind) for name, values in given.items()}
    attention = f.scaled_dot_product_attention
    return {
        "copy": lambda: t["x"].clone(),
        "add": lambda: t["x"] + t["y"],
        "exp": lambda: t["x"].exp(),
        "transposed copy": lambda: t["left"].mT.contiguous(),
        "sum of rows": lambda: t["rows"].sum(-1),
        "sum of columns": lambda: t["rows"].sum(0),
        "softmax": lambda: t["rows"].softmax(-1),
        "rms_norm": lambda: f.rms_norm(t["rows"], t["weight"].shape, t["weight"], 1e-5),
        "matmul": lambda: t["left"] @ t["right"],
        "vector by matrix": lambda: f.linear(t["vector"], t["left"]),
        "attention": lambda: attention(t["q"], t["k"], t["k"], is_causal=True),
        "attention of one query": lambda: attention(
            t["one"], t["keys"], t["keys"], enable_gqa=True
        ),
    }


def our_seconds(call: Call, stream: Stream, sizes: Sizes) -> float:
    """Median device time of a call of ubridge."""
    call()
    stream.synchronize()
    times = []
    for _ in range(sizes.batches):
        first = stream.record_event()
        for _ in range(sizes.calls):
            call()
        last = stream.record_event()
        last.synchronize()
        times.append(last.elapsed_since(first) / 1e3 / sizes.calls)
    return statistics.median(times)


def torch_seconds(call: Call, sizes: Sizes) -> float:
    """Median device time of a call of torch."""
    import torch

    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(sizes.batches):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(sizes.calls):
            call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / 1e3 / sizes.calls)
    return statistics.median(times)


def has_torch() -> bool:
    """Whether torch is installed and has a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def main() -> None:
    """Print a line for each operation and dtype; with `--json` one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="everything once, small")
    parser.add_argument("--json", action="store_true", help="print a line of JSON at the end")
    options = parser.parse_args()
    sizes = SMOKE if options.smoke else FULL
    Api.quick_init(0, "cuda")
    stream = Stream()
    beside = has_torch()
    if not beside:
        print("torch is not installed, or has no GPU: ours alone")
    rows = []
    for dtype in ("f16",) if options.smoke else ("f16", "f32"):
        given = operands(sizes, dtype)
        others = torchs(given, dtype) if beside else {}
        for name, call in ours(given, dtype, stream).items():
            seconds = our_seconds(call, stream, sizes)
            other = torch_seconds(others[name], sizes) if beside else None
            ratio = "" if other is None else f"{seconds / other:8.2f} of torch's"
            print(f"{name:24} {dtype:5} {1e6 * seconds:12.1f} us {ratio}", flush=True)
            rows.append({"operation": name, "dtype": dtype, "seconds": seconds, "torch": other})
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
