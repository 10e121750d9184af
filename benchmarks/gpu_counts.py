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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.gpu_works import Gate, Work, works
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
