"""The workloads of `benchmarks.gpu_counts`, with the bounds on their counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MOVED_BY_LLAMA = {"q4_K": 86_300, "q8_0": 143_600}
"""Sectors that llama.cpp's kernels request for 256 rows of 2048: `moved` times the touched
sectors."""
SORT_TODAY = 548_000
"""Sectors that sorting 16 rows of 1024 requested when the gate was set."""

Prepare = Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Gate:
    """A bound on a count of a piece of work."""

    number: str
    """A name in `numbers_of`."""
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Work:
    """A piece of work: `prepare` makes the operands and returns the call that is counted."""

    name: str
    size: int
    """Elements or multiplications."""
    prepare: Prepare
    gates: tuple[Gate, ...] = ()
    peers: tuple[str, ...] = ()
    """Recorded works to compare with: of the peers' file, or as `ubridge` and a work of this
    module."""
    rows: int = 0
    """Rows of the matrix, for a product with a vector."""


BANKS = Gate("bank_factor", most=1.1)
WIDE = Gate("load_sectors", least=16)
ROWS = (Gate("instructions", most=30), BANKS)


def works() -> Iterator[Work]:
    """Every piece of work, with operands of the shapes that peers were counted with."""
    import numpy as np

    import ubridge as ub
    from ubridge import DeviceTensor
    from ubridge.quantized import QuantizedWeight

    rng = np.random.default_rng(36)

    def made(*shape: int, dtype: str = "f32") -> DeviceTensor:
        return ub.asarray(rng.standard_normal(shape, np.float32)).astype(dtype)

    def mapped(
        name: str,
        operands: Callable[[], tuple[Any, ...]],
        call: Callable[..., object],
        size: int,
        *gates: Gate,
        peers: tuple[str, ...] = (),
        rows: int = 0,
    ) -> Work:
        def prepare() -> Callable[[], object]:
            given = operands()
            return lambda: call(*given)

        return Work(name, size, prepare, gates, peers, rows)

    n = 1 << 16
    square = (256, 256)
    contiguous: tuple[tuple[str, Callable[..., object], int, str, float, tuple[str, ...]], ...] = (
        ("copy", ub.copy, 1, "f32", 8, ("candle copy contiguous",)),
        ("add", ub.add, 2, "f32", 10, ("triton add", "candle add contiguous")),
        ("add", ub.add, 2, "f16", 10, ()),
        ("exp", ub.exp, 1, "f32", 10 + 17, ("candle exp contiguous",)),
        ("gelu", ub.gelu, 1, "f16", 10 + 65, ()),
        ("silu_mul", ub.silu_mul, 2, "f16", 10 + 40, ()),
        ("greater", ub.greater, 2, "f32", 10, ()),
    )
    for name, call, count, dtype, most, peers in contiguous:
        yield mapped(
            f"{name} contiguous {dtype}",
            lambda count=count, dtype=dtype: tuple(
                made(*square, dtype=dtype) for _ in range(count)
            ),
            call,
            n,
            Gate("instructions", most=most),
            WIDE,
            peers=peers,
        )
    yield mapped(
        "cast f32 to f16",
        lambda: (made(*square),),
        lambda x: x.astype("f16"),
        n,
        Gate("instructions", most=10),
        WIDE,
    )
    large = 1 << 20
    for name, call, count, most in (("copy", ub.copy, 1, 8), ("add", ub.add, 2, 10)):
        yield mapped(
            f"{name} contiguous f32 of {large}",
            lambda count=count: tuple(made(large) for _ in range(count)),
            call,
            large,
            Gate("instructions", most=most),
            WIDE,
        )
    transposed = Gate("coalescing", least=0.9)
    for dtype, peers in (
        ("f32", ("triton transpose 256x256 f32", "candle copy transposed")),
        ("f16", ()),
    ):
        yield mapped(
            f"copy transposed {dtype}",
            lambda dtype=dtype: (made(*square, dtype=dtype).mT,),
            ub.copy,
            n,
            transposed,
            BANKS,
            peers=peers,
        )
    yield mapped(
        "copy transposed f32 1024x1024", lambda: (made(1024, 1024).mT,), ub.copy, large, transposed
    )
    yield mapped("exp transposed f32", lambda: (made(*square).mT,), ub.exp, n, transposed)
    yield mapped(
        "add transposed f32", lambda: (made(*square), made(*square).mT), ub.add, n, transposed
    )
    yield mapped(
        "add broadcast row f32",
        lambda: (made(*square), made(256)),
        ub.add,
        n,
        peers=("candle add broadcast row",),
    )
    yield mapped("add broadcast column f32", lambda: (made(*square), made(256, 1)), ub.add, n)

    first = (Gate("coalescing", least=0.95), BANKS)
    yield mapped(
        "sum first axis 64x4096",
        lambda: (made(64, 4096), 0),
        ub.sum,
        64 * 4096,
        *first,
        peers=("triton column sum 64x4096", "candle sum first axis 64x4096"),
    )
    yield mapped("sum first axis 1024x1024", lambda: (made(1024, 1024), 0), ub.sum, large, *first)
    yield mapped(
        "sum last axis 64x4096",
        lambda: (made(64, 4096), -1),
        ub.sum,
        64 * 4096,
        BANKS,
        peers=("candle sum last axis 64x4096",),
    )
    yield mapped("sum of all 1048576", lambda: (made(large),), ub.sum, large, BANKS)
    yield mapped("argmax 64x4096", lambda: (made(64, 4096), -1), ub.argmax, 64 * 4096, BANKS)
    yield mapped(
        "cumsum of 65536", lambda: (made(n), 0), ub.cumsum, n, Gate("launches", most=3), BANKS
    )

    yield mapped(
        "softmax 64x1024 f32",
        lambda: (made(64, 1024),),
        ub.softmax,
        n,
        *ROWS,
        peers=(
            "triton softmax 64x1024",
            "candle softmax 64x1024 f32",
            "llama.cpp soft_max 64x1024 f32",
        ),
    )
    yield mapped(
        "softmax 64x1024 f16", lambda: (made(64, 1024, dtype="f16"),), ub.softmax, n, *ROWS
    )
    for dtype in ("f32", "f16"):
        yield mapped(
            f"rms_norm 32x2048 {dtype}",
            lambda dtype=dtype: (made(32, 2048, dtype=dtype), made(2048, dtype=dtype)),
            ub.rms_norm,
            n,
            *ROWS,
            peers=(f"triton rms_norm 32x2048 {dtype}",)
            + (("candle rmsnorm 32x2048 f32",) if dtype == "f32" else ()),
        )
    yield mapped(
        "layer_norm 32x2048 f32",
        lambda: (made(32, 2048), made(2048), made(2048)),
        ub.layer_norm,
        n,
        *ROWS,
    )
    yield mapped(
        "sort 16x1024",
        lambda: (made(16, 1024),),
        ub.sort,
        16 << 10,
        Gate("sectors", most=SORT_TODAY / 4),
    )

    yield mapped(
        "matmul 256x256x256 f16",
        lambda: (made(*square, dtype="f16"), made(*square, dtype="f16")),
        ub.matmul,
        256**3,
        peers=("triton matmul 256^3 f16 64x64x32",),
    )
    yield mapped(
        "matmul 256x256x256 f32", lambda: (made(*square), made(*square)), ub.matmul, 256**3, BANKS
    )
    for rows, columns in ((256, 2048), (1024, 1024)):
        yield mapped(
            f"vector by {rows}x{columns} f16",
            lambda rows=rows, columns=columns: (
                made(1, columns, dtype="f16"),
                made(rows, columns, dtype="f16").mT,
            ),
            ub.matmul,
            rows * columns,
            Gate("instructions", most=3),
            WIDE,
            Gate("warps_a_row", least=1),
            BANKS,
            rows=rows,
        )
    yield mapped(
        "linear 4x1024x1024 f16",
        lambda: (made(4, 1024, dtype="f16"), made(1024, 1024, dtype="f16")),
        ub.linear,
        4 << 20,
        BANKS,
    )
    for name, coalescing in (("q4_K", 0.36), ("q8_0", 0.26)):

        def weight(name: str = name) -> QuantizedWeight:
            values = rng.standard_normal((256, 2048), np.float32)
            return QuantizedWeight.from_numpy(values, name)

        for rows in (1, 8, 64):
            gates = (
                (
                    Gate("sectors", most=MOVED_BY_LLAMA[name]),
                    Gate("coalescing", least=coalescing),
                    BANKS,
                )
                if rows == 1
                else (BANKS,)
            )
            known = {1: f"llama.cpp mul_mat_vec_q {name} 256x2048"}
            known[8] = f"candle(llama.cpp) mmvq {name} 256x2048 x8"
            yield mapped(
                f"linear {name} 256x2048 x{rows}",
                lambda rows=rows, weight=weight: (made(rows, 2048), weight()),
                ub.linear,
                rows * 256 * 2048,
                *gates,
                peers=(known[rows],) if rows in known else (),
            )

    for width in (64, 128):
        for causal in (False, True):
            yield mapped(
                f"attention {'causal ' if causal else ''}4x128x128 d{width} f16",
                lambda width=width: tuple(made(1, 4, 128, width, dtype="f16") for _ in range(3)),
                lambda q, k, v, causal=causal: ub.attention(q, k, v, causal=causal),
                2 * 4 * 128 * 128 * width // (2 if causal else 1),
                Gate("coalescing", least=0.9),
                Gate("moved", most=3.0),
                *(() if causal else (Gate("instructions", most=0.3),)),
                BANKS,
                peers=(f"triton attention 4x128x128 d{width}",),
            )
        decode = (Gate("coalescing", least=0.95), Gate("moved", most=1.3), BANKS)
        yield mapped(
            f"attention decode kv512 gqa d{width} f16",
            lambda width=width: (
                made(1, 8, 1, width, dtype="f16"),
                made(1, 2, 512, width, dtype="f16"),
                made(1, 2, 512, width, dtype="f16"),
            ),
            ub.attention,
            2 * 8 * 512 * width,
            *decode,
            peers=(f"llama.cpp flash_attn_vec decode kv512 gqa d{width}",),
        )
        yield mapped(
            f"cached_attention decode kv512 gqa d{width} f16",
            lambda width=width: (
                made(1, 8, width, dtype="f16"),
                made(2, 512, width, dtype="f16"),
                made(2, 512, width, dtype="f16"),
                ub.asarray(np.array([511], np.int64)),
            ),
            ub.cached_attention,
            2 * 8 * 512 * width,
            *decode,
            peers=(f"llama.cpp flash_attn_vec decode kv512 gqa d{width}",),
        )

    for dtype in ("f32", "f16"):
        yield mapped(
            f"conv2d 1x16x32x32 k3 32 {dtype}",
            lambda dtype=dtype: (made(1, 16, 32, 32, dtype=dtype), made(32, 16, 3, 3, dtype=dtype)),
            lambda x, w: ub.conv2d(x, w, padding=1),
            32 * 32 * 32 * 16 * 9,
            Gate("loads", most=0.3),
            BANKS,
        )
    from benchmarks import ready_kernels

    yield from ready_kernels.works()
