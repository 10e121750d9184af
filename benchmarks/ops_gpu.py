"""Operations on an NVIDIA GPU, relative to the device's limits: `python -m benchmarks.ops_gpu`.

Elementwise operations, softmax and norms: their bandwidth relative to a copy within the device.
Products of matrices: cuBLASLt's time, if it is installed, divided by the time of each of our
kernels. Times are measured on the device, between two events. A ratio compares medians of one run.
`--smoke` runs everything once on tiny operands: it shows that the benchmark works, also on the
simulated driver, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

import ubridge
from ubridge import DeviceExecutor, DeviceTensor
from ubridge.core.lowering import Steps
from ubridge.core.product import Product
from ubridge.core.question import Question
from ubridge.device.ready import make_ready
from ubridge.prepare.matmul import cublaslt
from ubridge.prepare.matmul.kernels import ProductKernel
from uhal import Api, Device, DeviceBuffer, Stream, as_dtype

GOAL = 0.92
"""Least share of a copy's bandwidth, for operations that only move and map elements."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of operands, and numbers of repetitions."""

    elements: int
    rows: int
    columns: int
    products: tuple[tuple[int, int, int], ...]
    """(m, n, k)."""
    batches: int
    calls: int
    """Enqueued between two events."""


FULL = Sizes(
    1 << 26,
    1 << 14,
    4096,
    ((512, 512, 512), (4096, 4096, 4096), (128, 14336, 4096), (2048, 4096, 14336)),
    batches=11,
    calls=20,
)
SMOKE = Sizes(1000, 3, 64, ((32, 48, 16),), batches=1, calls=1)

Enqueue = Callable[[], object]


def median_seconds(enqueue: Enqueue, stream: Stream, sizes: Sizes) -> float:
    """Device time of one call, the median over batches."""
    enqueue()
    stream.synchronize()
    times = []
    for _ in range(sizes.batches):
        first = stream.record_event()
        for _ in range(sizes.calls):
            enqueue()
        last = stream.record_event()
        last.synchronize()
        times.append(last.elapsed_since(first) / 1e3 / sizes.calls)
    return max(statistics.median(times), 1e-9)


def drawn(shape: tuple[int, ...], dtype: str) -> DeviceTensor:
    """Random numbers between 0.5 and 1.5: nothing overflows and no branch is special."""
    values = np.random.default_rng().random(shape, np.float32) + 0.5
    return ubridge.asarray(values).astype(dtype)


def mapped(dtype: str, sizes: Sizes, stream: Stream) -> Iterator[tuple[str, Enqueue, int]]:
    """Operations that only move and map elements: name, call, bytes moved."""
    x, y = drawn((sizes.elements,), dtype), drawn((sizes.elements,), dtype)
    out = ubridge.empty_like(x)
    bytes_ = x.buffer.nbytes
    yield "copy", lambda: ubridge.copy(x, out=out, stream=stream), 2 * bytes_
    yield "silu", lambda: ubridge.silu(x, out=out, stream=stream), 2 * bytes_
    yield "exp", lambda: ubridge.exp(x, out=out, stream=stream), 2 * bytes_
    yield "add", lambda: ubridge.add(x, y, out=out, stream=stream), 3 * bytes_
    yield "affine", lambda: ubridge.affine(x, 2, 1, out=out, stream=stream), 2 * bytes_
    to = ubridge.empty((sizes.elements,), "f16" if dtype == "f32" else "f32")
    moved = bytes_ + to.buffer.nbytes
    yield f"to {to.dtype}", lambda: x.astype(to.dtype, out=to, stream=stream), moved

    rows = drawn((sizes.rows, sizes.columns), dtype)
    weight, bias = drawn((sizes.columns,), dtype), drawn((sizes.columns,), dtype)
    result = ubridge.empty_like(rows)
    both = 2 * rows.buffer.nbytes
    yield "softmax", lambda: ubridge.softmax(rows, out=result, stream=stream), both
    yield "rms_norm", lambda: ubridge.rms_norm(rows, weight, out=result, stream=stream), both
    yield (
        "layer_norm",
        lambda: ubridge.layer_norm(rows, weight, bias, out=result, stream=stream),
        both,
    )


def bandwidths(device: Device, sizes: Sizes, stream: Stream) -> None:
    """Print each operation's bandwidth relative to a copy's."""
    here, there = (DeviceBuffer.zeros(4 * sizes.elements, "u8", device=device) for _ in range(2))
    copy = median_seconds(lambda: here.copy_from_async(there, stream), stream, sizes)
    best = 2 * here.nbytes / copy
    print(f"copy within the device: {best / 1e9:.0f} GB/s; goal {GOAL} of it")
    for dtype in ("f32", "f16", "bf16"):
        for name, enqueue, moved in mapped(dtype, sizes, stream):
            ratio = moved / median_seconds(enqueue, stream, sizes) / best
            print(f"{name:12} {dtype:5} {ratio:6.2f}")


def products(device: Device, sizes: Sizes, stream: Stream) -> None:
    """Print cuBLASLt's time relative to each of our kernels for a product."""
    executor = DeviceExecutor.of(device)
    cublaslt.LEAST_WORK = 1  # so that small products take it too
    for dtype in ("f16", "bf16", "f32", "f64"):
        for m, n, k in sizes.products:
            a, b = drawn((m, k), dtype), drawn((k, n), dtype)
            out = ubridge.empty((m, n), dtype)
            product = Product(as_dtype(dtype), 1, m, n, k, m * k, k, 1, k * n, n, 1)
            choice = ubridge.matmul_choice(a, b)
            times = {}
            question = Question(
                ubridge.OPS["matmul"],
                ((a.dtype, a.layout), (b.dtype, b.layout)),
                (out.dtype, out.layout),
            )
            given = (stream, out.buffer, a.buffer, b.buffer)
            for kernel in executor.matmul_kernels:
                if isinstance(kernel, ProductKernel) and not kernel.refusal(product):
                    steps = Steps(question, executor)
                    left, right = steps.operands
                    kernel.prepare(product, left, right, steps.result, steps)
                    enqueue = make_ready(executor, steps.prepared(), None).launch
                    times[kernel.name] = median_seconds(partial(enqueue, *given), stream, sizes)
            peer = times.pop("cublaslt", None)
            reported = ", ".join(
                f"{name} {2 * m * n * k / seconds / 1e12:.1f} TFLOP/s"
                + (f" (cuBLASLt's time over its: {peer / seconds:.2f})" if peer else "")
                for name, seconds in times.items()
            )
            print(f"{dtype:5} {m} x {n} x {k}: {reported}; chosen: {choice.kernel}")
            if peer is None:
                print(f"      no peer: {dict(choice.passed_over)['cublaslt']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="everything once, tiny")
    options = parser.parse_args()
    device = Api.quick_init(options.device, "cuda")
    sizes = SMOKE if options.smoke else FULL
    print(f"{device.name}, driver {Api.get_api_version()}")
    with Stream() as stream:
        bandwidths(device, sizes, stream)
        products(device, sizes, stream)


if __name__ == "__main__":
    main()
