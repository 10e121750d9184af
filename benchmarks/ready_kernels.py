"""Ready kernels of `uhal.ptx` for `benchmarks.gpu_counts`, at the peers' shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.gpu_works import BANKS, ROWS, WIDE, Gate, Work


def works() -> Iterator[Work]:
    """Each ready kernel, with peers for the same computation."""
    import numpy as np

    from uhal import DeviceBuffer
    from uhal.ptx import Kernel, f16, f32, ready

    rng = np.random.default_rng(38)

    def made(count: int, dtype: str = "f4") -> DeviceBuffer:
        return DeviceBuffer.from_numpy(rng.standard_normal(count).astype(dtype))

    def work(
        name: str,
        size: int,
        kernel: Kernel,
        grid: Any,
        block: Any,
        arguments: Callable[[], tuple[Any, ...]],
        *peers: str,
        gates: tuple[Gate, ...] = (),
        rows: int = 0,
    ) -> Work:
        def prepare() -> Callable[[], object]:
            given = arguments()
            return lambda: (kernel[grid, block](*given), given)

        return Work(f"uhal.ptx {name}", size, prepare, gates, peers, rows)

    n = 1 << 16
    yield work(
        "saxpy f32",
        n,
        ready.saxpy(),
        16,
        256,
        lambda: (n, 1.5, made(n), made(n)),
        "triton add",
        "ubridge add contiguous f32",
        gates=(Gate("instructions", most=8), WIDE),
    )
    yield work(
        "reduction f32",
        n,
        ready.reduce_sum(),
        16,
        256,
        lambda: (n, made(n), made(1)),
        "ubridge sum of all 1048576",
        gates=(Gate("instructions", most=8), WIDE),
    )
    yield work(
        "softmax 64x1024 f32",
        n,
        ready.softmax(),
        64,
        128,
        lambda: (1024, made(n), made(n)),
        "triton softmax 64x1024",
        "ubridge softmax 64x1024 f32",
        gates=(*ROWS, WIDE),
    )
    for of in (f32, f16):
        kind = "f4" if of is f32 else "f2"
        yield work(
            f"rms_norm 32x2048 {of}",
            n,
            ready.rms_norm(of),
            32,
            128,
            lambda kind=kind: (2048, 1e-5, made(n, kind), made(2048, kind), made(n, kind)),
            f"triton rms_norm 32x2048 {of}",
            f"ubridge rms_norm 32x2048 {of}",
            gates=(*ROWS, WIDE),
        )
    yield work(
        "gemm 64^3 f32",
        64**3,
        ready.gemm(),
        (4, 4),
        (16, 16),
        lambda: (64, 64, 64, *(made(64 * 64) for _ in range(3))),
        "ubridge matmul 256x256x256 f32",
        gates=(BANKS, Gate("coalescing", least=0.95)),
    )
    yield work(
        "tensor_gemm 256^3 f16",
        256**3,
        ready.tensor_gemm(),
        (4, 4),
        128,
        lambda: (256, 256, 256, made(n, "f2"), made(n, "f2"), made(n)),
        "triton matmul 256^3 f16 64x64x32",
        "ubridge matmul 256x256x256 f16",
        gates=(Gate("instructions", most=0.25), BANKS, WIDE),
    )
    rows, k = 256, 2048
    yield work(
        "q4k_gemv 256x2048",
        rows * k,
        ready.q4k_gemv(),
        rows // 4,
        128,
        lambda: (
            rows,
            k,
            DeviceBuffer.zeros(rows * k // 256 * 36, "u32"),
            DeviceBuffer.zeros(k // 4, "i32"),
            made(k // 32),
            made(rows),
        ),
        "llama.cpp mul_mat_vec_q q4_K 256x2048",
        "ubridge linear q4_K 256x2048 x1",
        gates=(Gate("instructions", most=6), Gate("coalescing", least=0.9)),
        rows=rows,
    )
    yield work(
        "swiglu_gemv 256x2048 f16",
        2 * rows * k,
        ready.swiglu_gemv(),
        rows // 4,
        128,
        lambda: (
            rows,
            k,
            *(DeviceBuffer.zeros(count * k // 2, "u32") for count in (rows, rows, 1)),
            made(rows, "f2"),
        ),
        "ubridge vector by 256x2048 f16",
        gates=(Gate("instructions", most=7), WIDE),
        rows=rows,
    )
    yield work(
        "rope 32x8x64 f32",
        1 << 14,
        ready.rope(),
        128,
        64,
        lambda: (32, 8, 64, made(1024), made(1024), made(1 << 14), made(1 << 14)),
        gates=(Gate("coalescing", least=0.95),),
    )
    yield work(
        "attention 4x128x128 d64 f32",
        4 * 128 * 128 * 64,
        ready.attention(f32, 64),
        (8, 4),
        128,
        lambda: (128, 128, 1, 0.125, *(made(4 * 128 * 64) for _ in range(4))),
        "triton attention 4x128x128 d64",
        "ubridge attention 4x128x128 d64 f16",
        gates=(Gate("instructions", most=4), Gate("moved", most=3.5), WIDE),
    )
