"""Requests of our kernels to a GPU, counted on a simulator: `python -m benchmarks.gpu_counts`.

Each workload runs once on the simulated CUDA driver, which counts every block: sectors of memory,
turns of shared memory, instructions of the PTX. Gates bound each kernel by the counts of a good
kernel. Triton's, Candle's and llama.cpp's kernels were counted on the same simulator on 2026-11-25;
gpu_counts_peers.json has the numbers.

Instructions are counted per thread, for a multiplication or an element. `moved` is sectors
requested over sectors touched in the launch. Nothing here is a time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.launch_overhead import machine
from benchmarks.suites import ROOT
from benchmarks.tables import today
from uhal.errors import InvalidImageError
from uhal.profiler import counts, resources
from uhal.profiler.counts import KernelCounts

PEERS = Path(__file__).with_name("gpu_counts_peers.json")
RECORD = figures.FOLDER / "pages" / "gpu_counts.json"
"""The last recorded numbers; a run prints its own numbers beside them."""
DRIVER = ROOT / "simulators" / "build" / "libcuda.so.1"
COMMAND = "python -m benchmarks.gpu_counts"
DEVICE = "sm_86"
"""Our images have no cubin for this target, so the driver executes and counts PTX."""
IMAGES = ROOT / "ubridge" / "kernels" / "images" / "cuda"
SPILL_TARGETS = ("sm_75", "sm_80", "sm_90")
MOVED_BY_LLAMA = {"q4_K": 86_300, "q8_0": 143_600}
"""Sectors that llama.cpp's kernels request for 256 rows of 2048: `moved` times those touched."""
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
    """Works in the file of peers; `ubridge` and one of the works here, as recorded."""
    rows: int = 0
    """Rows of the matrix, for a product with a vector."""


def numbers_of(kernels: Sequence[KernelCounts], work: Work) -> dict[str, float | None]:
    """All counts of a piece of work, which may be several launches."""
    memory = [one.sums("global") for one in kernels]
    shared = [one for kernel in kernels for one in _banked(kernel)]
    distinct = [one.distinct_sectors or 0 for one in kernels]
    sectors = sum(one.sectors for one in memory)
    loads = sum(
        one.classes.get(f"load_{at}", 0.0) for one in kernels for at in ("global", "shared")
    )
    busiest = max(kernels, key=lambda one: one.sums("global").sectors)
    return {
        "launches": float(sum(one.launches for one in kernels)),
        "sectors": float(sectors),
        "load_sectors": busiest.sectors_per_request("load"),
        "store_sectors": busiest.sectors_per_request("store"),
        "coalescing": sum(one.ideal_sectors for one in memory) / max(sectors, 1),
        "moved": sectors / max(sum(distinct), 1),
        "moved_in_block": busiest.moved_in_block,
        "bank_factor": sum(shared[0::2]) / max(sum(shared[1::2]), 1) if shared else None,
        "instructions": sum(one.thread_instructions for one in kernels) / work.size,
        "loads": loads / work.size,
        "lanes": sum(one.thread_instructions for one in kernels)
        / (32 * sum(one.warp_instructions for one in kernels)),
        "warps_a_row": busiest.warps / work.rows if work.rows else None,
    }


def _banked(kernel: KernelCounts) -> Iterator[int]:
    for one in kernel.accesses:
        text = kernel.lines_of_text.instruction(one.line)
        if one.space == "shared" and not text.startswith("wmma"):
            yield one.wavefronts
            yield one.ideal_wavefronts


# -- the work --------------------------------------------------------------------------------------

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


# -- spills ----------------------------------------------------------------------------------------


def spills() -> list[dict[str, Any]]:
    """Kernels of our images that keep registers in memory, as `ptxas` compiles them."""
    found = []
    for target in SPILL_TARGETS:
        spilling = []
        for image in sorted(IMAGES.glob("*.fatbin.gz")):
            try:
                rows = resources.of_image(image.read_bytes(), target)
            except InvalidImageError:
                continue  # tensor cores of a later target
            spilling += [
                f"{image.name.partition('.')[0]}.{one.kernel}" for one in rows if one.spills
            ]
        found.append(
            {
                "work": f"all kernels for {target}",
                "kernels": spilling,
                "numbers": {"spilling_kernels": float(len(spilling))},
                "gates": [vars(Gate("spilling_kernels", most=0))],
                "peers": (),
            }
        )
    return found


# -- running ---------------------------------------------------------------------------------------


def launch(only: str) -> None:
    """Run the works on this machine's device, for a tool that watches it."""
    import uhal

    device = uhal.Api.quick_init(0, "cuda")
    for work in works():
        if re.search(only, work.name) is not None:
            kept = work.prepare()()
            device.synchronize()
            del kept


def count(only: str) -> list[dict[str, Any]]:
    """Count the works whose names match, on this process' driver, which counts every block."""
    import uhal

    found = []
    device = uhal.Api.quick_init(0, "cuda")
    file = os.environ[counts.VARIABLE]
    for work in works():
        if re.search(only, work.name) is None:
            continue
        call = work.prepare()
        device.synchronize()
        before = os.stat(file).st_size
        kept = call()
        device.synchronize()
        kernels = counts.read(file, before)
        del kept
        found.append(
            {
                "work": work.name,
                "kernels": [
                    {
                        "name": one.kernel,
                        "grid": one.grid,
                        "block": one.block,
                        "launches": one.launches,
                        "metrics": one.metrics(),
                    }
                    for one in kernels
                ],
                "numbers": numbers_of(kernels, work),
                "gates": [vars(gate) for gate in work.gates],
                "peers": work.peers,
            }
        )
        print(_line(found[-1]), file=sys.stderr, flush=True)
    return found


def _line(one: dict[str, Any]) -> str:
    numbers = one["numbers"]
    said = (
        f"{numbers['load_sectors'] or 0:5.1f}/{numbers['store_sectors'] or 0:5.1f}",
        f"{100 * numbers['coalescing']:5.0f} %",
        f"{numbers['moved']:8.2f}",
        f"{numbers['bank_factor'] or 1:6.2f}",
        f"{numbers['instructions']:9.2f}",
        f"{numbers['loads']:7.2f}",
        f"{numbers['launches']:5.0f}",
    )
    return f"{one['work']:44} {' '.join(said)}  {one['kernels'][-1]['name'][:36]}"


def verdicts(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each gate, as `python -m benchmarks` reads it."""
    rows = []
    recorded = {row["work"]: row["numbers"] for row in json.loads(RECORD.read_text())}
    peers = {f"{row['peer']} {row['work']}": row for row in json.loads(PEERS.read_text())}
    peers |= {f"ubridge {work}": numbers for work, numbers in recorded.items()}
    for one in found:
        for gate in one["gates"]:
            row = {
                "recorded": recorded.get(one["work"], {}).get(gate["number"]),
                "what": f"{one['work']}: {gate['number'].replace('_', ' ')}",
                "is": one["numbers"][gate["number"]],
                "least": gate["least"],
                "at_most": gate["most"],
            }
            row["peers"] = {
                name: peers[name][gate["number"]]
                for name in one["peers"]
                if gate["number"] in peers.get(name, {})
            }
            rows.append({**row, "holds": holds(row)})
    return rows


def holds(row: dict[str, Any]) -> bool:
    """Whether a gate's number is within its bounds, or does not apply."""
    value, least, most = row["is"], row["least"], row["at_most"]
    if value is None:
        return True
    return (least is None or value >= least) and (most is None or value <= most)


def in_counting_process(only: str) -> list[dict[str, Any]]:
    """Run `count` in a process whose driver counts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.jsonl"
        file.touch()
        environment = {
            "UHAL_BACKEND": "cuda",
            "UHAL_CUDA_LIBRARY": str(DRIVER),
            "UHAL_SIM_CUDA_PROFILE": DEVICE,
            "UHAL_SIM_CHECK": "count",
            "UHAL_SIM_COUNT_EVERY": "1",
            "UHAL_SIM_LAUNCH_SECONDS": "0",
            counts.VARIABLE: str(file),
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu_counts", "--here", "--only", only],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
        )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def record(found: Sequence[dict[str, Any]]) -> None:
    """Record the numbers of the counted works; other works keep earlier numbers."""
    known = {row["work"]: row for row in json.loads(RECORD.read_text())} if RECORD.exists() else {}
    for one in found:
        numbers = {
            name: round(value, 3) for name, value in one["numbers"].items() if value is not None
        }
        reported = {"date": today(), "commit": figures.commit(), "driver": f"simulated {DEVICE}"}
        known[one["work"]] = {"work": one["work"], **reported, "numbers": numbers}
    rows = ",\n".join(f" {json.dumps(row)}" for row in known.values())
    RECORD.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


def main() -> int:
    """Print the counts and the gates; the exit status is 1 when a gate is missed."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression of works, or spills")
    parser.add_argument("--record", action="store_true", help="write the values to docs/figures")
    parser.add_argument("--json", action="store_true", help="print everything as a line of JSON")
    parser.add_argument("--launch", action="store_true", help="run the works and count nothing")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch(options.only)
        return 0
    if options.here:
        print(json.dumps(count(options.only)))
        return 0
    print(
        f"{'work':44} {'sectors a request':>11} {'coal.':>7} {'moved':>8} {'banks':>6} "
        f"{'instr.':>9} {'loads':>7} {'launches':>5}  kernel",
        file=sys.stderr,
    )
    found = in_counting_process(options.only)
    if re.search(options.only, "spills"):
        found += spills()
    rows = verdicts(found)
    if options.record:
        record(found)
    if options.json:
        print(json.dumps({"works": found, "gates": rows, "machine": machine()}))
    else:
        print(f"gate  {'':64} {'is':>12}  {'wanted':>9}  {'recorded':>12}  peers")
        for row in rows:
            print(_verdict(row))
        missed = sum(not row["holds"] for row in rows)
        print(f"{len(rows) - missed} of {len(rows)} gates hold")
    return 0 if all(row["holds"] for row in rows) else 1


def _verdict(row: dict[str, Any]) -> str:
    wanted = f"≥ {row['least']:g}" if row["least"] is not None else f"≤ {row['at_most']:g}"
    reported = "-" if row["is"] is None else f"{row['is']:.2f}"
    before = "" if row["recorded"] is None else f"{row['recorded']:.2f}"
    beside = ", ".join(f"{name} {value:g}" for name, value in row["peers"].items())
    held = "pass" if row["holds"] else "MISS"
    return f"{held}  {row['what']:64} {reported:>12}  {wanted:>9}  {before:>12}  {beside}"


if __name__ == "__main__":
    sys.exit(main())
