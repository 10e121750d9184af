"""Requests of kernels to a GPU, counted by the simulated CUDA driver (`UHAL_SIM_CHECK=count`).

The driver writes a line of JSON for each launch. This module adds up the launches of one kernel
with one geometry, and computes Nsight Compute's ratios, under Nsight's names where the meaning is
the same. Instructions are PTX instructions, not a GPU's machine code. Caches are not modelled.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from uhal import environment
from uhal.kept import kept_property
from uhal.profiler.accesses import Access, Branch, Instructions, Kind, Space, add, advice
from uhal.profiler.ptx_lines import PtxLines, SourceLine

if TYPE_CHECKING:
    from uhal.profiler.resources import KernelResources

VARIABLE = "UHAL_SIM_COUNTS"
"""Names the file that the simulated driver appends to."""
_SUMS = {
    "accesses": (Access, ("line", "kind", "space", "bytes")),
    "branches": (Branch, ("line",)),
    "instructions": (Instructions, ("line", "kind")),
}


@dataclass
class KernelCounts:
    """Counts of all launches of a kernel with one geometry. Immutable once read."""

    kernel: str
    ptx: str
    """The file of the kernel's PTX."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    static_shared: int
    dynamic_shared: int
    launches: int
    blocks: int
    counted_blocks: int
    """Fewer than `blocks` if only some were counted; sums cover the counted blocks."""
    warps: int
    distinct_sectors: int | None
    """Distinct sectors per launch: loaded and stored. `None` where blocks are sampled."""
    block_distinct_sectors: int
    """Distinct sectors per launch, with each sector counted once per block."""
    spread: dict[str, tuple[float, float]]
    accesses: list[Access] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    instructions: list[Instructions] = field(default_factory=list)

    # -- sums --------------------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """Factor from a sum over the counted blocks to a sum over all blocks."""
        return self.blocks / self.counted_blocks

    def sums(self, space: Space, *kinds: Kind) -> Access:
        """The accesses to one space added up, by default of all kinds."""
        total = Access(0, "load", space, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        for one in self.accesses:
            if one.space == space and (not kinds or one.kind in kinds):
                add(total, one, ("line", "kind", "space", "bytes"))
        return total

    @kept_property
    def thread_instructions(self) -> float:
        """Instructions of the PTX that threads execute, in all blocks."""
        return self.scale * sum(one.threads for one in self.instructions)

    @kept_property
    def warp_instructions(self) -> float:
        """Instructions of the PTX that warps issue, in all blocks."""
        return self.scale * sum(one.warps for one in self.instructions)

    @kept_property
    def classes(self) -> dict[str, float]:
        """Instructions of threads by class, most first."""
        found: dict[str, float] = {}
        for one in self.instructions:
            found[one.kind] = found.get(one.kind, 0) + self.scale * one.threads
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    # -- ratios ------------------------------------------------------------------------------------

    def sectors_per_request(self, *kinds: Kind) -> float | None:
        """Sectors of global memory per request of a warp; 4 for adjacent 4-byte lanes."""
        found = self.sums("global", *kinds)
        return _ratio(found.sectors, found.requests)

    @property
    def coalescing(self) -> float | None:
        """Fewest sectors for the bytes of the requests, as a share of the touched sectors: 0…1."""
        found = self.sums("global")
        return _ratio(found.ideal_sectors, found.sectors)

    @property
    def moved(self) -> float | None:
        """Sectors requested per sector touched: 1 without repeated requests. Unsampled only."""
        if self.distinct_sectors is None:
            return None
        return _ratio(self.sums("global").sectors, self.distinct_sectors)

    @property
    def moved_in_block(self) -> float | None:
        """Sectors requested per sector that each block touches."""
        return _ratio(self.sums("global").sectors, self.block_distinct_sectors)

    @property
    def bank_factor(self) -> float | None:
        """Cycles of shared memory relative to cycles without bank conflicts: at least 1.

        Fragments of `wmma` are left out: their layout is the simulator's own.
        """
        lines = self.lines_of_text
        found = [
            one
            for one in self.accesses
            if one.space == "shared" and not lines.instruction(one.line).startswith("wmma")
        ]
        return _ratio(
            sum(one.wavefronts for one in found), sum(one.ideal_wavefronts for one in found)
        )

    @property
    def lanes_on_one_address(self) -> float | None:
        """Number of lanes of a warp that an atomic operation serializes."""
        found = [one for one in self.accesses if one.kind == "atomic"]
        return _ratio(sum(one.same_address for one in found), sum(one.requests for one in found))

    def error(self, what: Literal["instructions", "sectors"]) -> float | None:
        """Relative standard error of a sum over all blocks; 0 if every block is counted.

        `None` if only one of many blocks was counted.
        """
        n, total = self.counted_blocks, self.blocks
        sum_, squares = self.spread[what]
        if n == total or sum_ == 0:
            return 0.0
        if n < 2:
            return None
        mean = sum_ / n
        variance = max(squares - n * mean * mean, 0.0) / (n - 1)
        return math.sqrt(variance / n * (1 - n / total)) / mean

    @kept_property
    def lines_of_text(self) -> PtxLines:
        """The PTX by its lines."""
        return PtxLines(self.ptx)

    def metrics(self) -> dict[str, float | None]:
        """Every number under Nsight Compute's name, or under a name of uhal (`uhal__…`).

        Sums cover all launches and all blocks; `.ratio` and `.pct` are as in Nsight Compute.
        """
        scale = self.scale
        tensor = sum(one.warps for one in self.instructions if one.kind == "tensor")
        divergent = sum(one.divergent for one in self.branches)
        executed = sum(one.executed for one in self.branches)
        everywhere, shared = self.sums("global"), self.sums("shared")
        found: dict[str, float | None] = {
            "smsp__inst_executed.sum": self.warp_instructions,
            "smsp__thread_inst_executed.sum": self.thread_instructions,
            "smsp__thread_inst_executed_per_inst_executed.ratio": _ratio(
                self.thread_instructions, self.warp_instructions
            ),
            "sm__inst_executed_pipe_tensor.sum": scale * tensor,
            "smsp__sass_average_branch_targets_threads_uniform.pct": _percent(
                executed - divergent, executed
            ),
        }
        kinds: tuple[tuple[Kind, str], ...] = (("load", "ld"), ("store", "st"))
        for kind, short in kinds:
            one = self.sums("global", kind)
            name = f"pipe_lsu_mem_global_op_{short}"
            found |= {
                f"l1tex__t_requests_{name}.sum": scale * one.requests,
                f"l1tex__t_sectors_{name}.sum": scale * one.sectors,
                f"l1tex__average_t_sectors_per_request_{name}.ratio": _ratio(
                    one.sectors, one.requests
                ),
                f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{short}.ratio": _ratio(
                    one.used_bytes, one.sectors
                ),
            }
        found |= {
            "memory_l2_theoretical_sectors_global": scale * everywhere.sectors,
            "memory_l2_theoretical_sectors_global_ideal": scale * everywhere.ideal_sectors,
            "memory_l1_wavefronts_shared": scale * shared.wavefronts,
            "memory_l1_wavefronts_shared_ideal": scale * shared.ideal_wavefronts,
        }
        for kind, short in kinds:
            one = self.sums("shared", kind)
            found[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{short}.sum"] = scale * (
                one.wavefronts - one.ideal_wavefronts
            )
        found |= {
            "launch__shared_mem_per_block_static": self.static_shared,
            "launch__shared_mem_per_block_dynamic": self.dynamic_shared,
            "uhal__coalescing.pct": _hundred(self.coalescing),
            "uhal__sectors_per_sector_touched.ratio": self.moved,
            "uhal__sectors_per_sector_touched_in_block.ratio": self.moved_in_block,
            "uhal__bank_factor.ratio": self.bank_factor,
            "uhal__atomic_lanes_on_one_address.ratio": self.lanes_on_one_address,
            "uhal__counted_blocks.pct": 100 * self.counted_blocks / self.blocks,
            "uhal__error_of_instructions.pct": _hundred(self.error("instructions")),
            "uhal__error_of_sectors.pct": _hundred(self.error("sectors")),
        }
        return found

    # -- by line -----------------------------------------------------------------------------------

    @kept_property
    def lines(self) -> list[LineCounts]:
        """The counts by line of the source, in order; by PTX line if the PTX names no source."""
        found: dict[tuple[str, int], LineCounts] = {}

        def at(line: int) -> LineCounts:
            location = self.lines_of_text.location(line)
            return found.setdefault(
                (location.file, location.line), LineCounts(location, self.scale)
            )

        for instructions in self.instructions:
            at(instructions.line).threads += self.scale * instructions.threads
        for access in self.accesses:
            at(access.line).accesses.append(access)
        for branch in self.branches:
            at(branch.line).branches.append(branch)
        return [found[key] for key in sorted(found)]


@dataclass
class LineCounts:
    """The counts of one line of a source."""

    location: SourceLine
    scale: float
    threads: float = 0
    """Instructions of the PTX that threads execute for the line."""
    accesses: list[Access] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)

    def total(self, space: Space) -> Access | None:
        """The line's accesses to one space added up; `None` without accesses."""
        found = [one for one in self.accesses if one.space == space]
        if not found:
            return None
        total = Access(0, found[0].kind, space, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        for one in found:
            add(total, one, ("line", "kind", "space", "bytes"))
        return total

    @property
    def advice(self) -> str:
        """A text about the line's worst pattern and its remedy; empty without a bad pattern."""
        return advice(self.accesses, self.branches)


# -- reading ---------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], start: int = 0) -> list[KernelCounts]:
    """Read a driver's file from a byte offset; kernels in the order of first launches.

    Launches of one kernel with one geometry are added up. Raises `OSError`, and `ValueError` for a
    line not written by a driver.
    """
    found: dict[tuple[Any, ...], KernelCounts] = {}
    with Path(path).open("rb") as file:
        file.seek(start)
        for line in file:
            one = _launch(json.loads(line))
            same = found.setdefault(_identity(one), one)
            if same is not one:
                _merge(same, one)
    return list(found.values())


def size_of_file() -> int | None:
    """Bytes written so far by this process' driver; `None` if it does not count."""
    path = environment.read(VARIABLE)
    if not path or environment.read("UHAL_SIM_CHECK") != "count":
        return None
    return os.stat(path).st_size if os.path.exists(path) else 0


def from_counts(kernel: str, ptx: str, counts: dict[str, Any]) -> KernelCounts:
    """Counts of a launch, from a line by `simulators.ptx.launch`."""
    return _launch({"kernel": kernel, "ptx": ptx, **counts})


def _launch(one: dict[str, Any]) -> KernelCounts:
    try:
        distinct, in_block = one["distinct"], one["block_distinct"]
        return KernelCounts(
            kernel=one["kernel"],
            ptx=one["ptx"],
            grid=tuple(one["grid"]),
            block=tuple(one["block"]),
            static_shared=one["static_shared"],
            dynamic_shared=one["dynamic_shared"],
            launches=1,
            blocks=one["blocks"],
            counted_blocks=one["counted_blocks"],
            warps=one["warps"],
            distinct_sectors=None
            if distinct is None
            else distinct["load_sectors"] + distinct["store_sectors"],
            block_distinct_sectors=in_block["load_sectors"] + in_block["store_sectors"],
            spread={name: (pair[0], pair[1]) for name, pair in one["spread"].items()},
            accesses=[Access(**each) for each in one["accesses"]],
            branches=[Branch(**each) for each in one["branches"]],
            instructions=[Instructions(*each) for each in one["instructions"]],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"counts of a kernel: expected a line of {VARIABLE}, got {error}"
        ) from None


def _identity(one: KernelCounts) -> tuple[Any, ...]:
    return one.kernel, one.ptx, one.grid, one.block, one.dynamic_shared


def _merge(into: KernelCounts, one: KernelCounts) -> None:
    into.launches += one.launches
    into.blocks += one.blocks
    into.counted_blocks += one.counted_blocks
    into.warps += one.warps
    into.block_distinct_sectors += one.block_distinct_sectors
    if into.distinct_sectors is not None and one.distinct_sectors is not None:
        into.distinct_sectors += one.distinct_sectors
    else:
        into.distinct_sectors = None
    for name, (sum_, squares) in one.spread.items():
        before = into.spread[name]
        into.spread[name] = (before[0] + sum_, before[1] + squares)
    for name, (_, key) in _SUMS.items():
        rows: list[Any] = getattr(into, name)
        known = {tuple(getattr(row, each) for each in key): row for row in rows}
        for row in getattr(one, name):
            same = known.get(tuple(getattr(row, each) for each in key))
            if same is None:
                rows.append(row)
            else:
                add(same, row, key)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _percent(part: float, whole: float) -> float | None:
    return _hundred(_ratio(part, whole))


def _hundred(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def resources_of(
    kernels: Iterable[KernelCounts], target: str
) -> dict[tuple[str, str], KernelResources]:
    """Registers, spills and shared memory on a target from `ptxas`, by text and kernel.

    Raises the same errors as `resources.of_ptx`.
    """
    from uhal.profiler import resources

    found: dict[tuple[str, str], KernelResources] = {}
    for ptx, names in _kernels_by_text(kernels).items():
        for one in resources.of_ptx(Path(ptx).read_bytes(), target, names):
            found[ptx, one.kernel] = one
    return found


def _kernels_by_text(kernels: Iterable[KernelCounts]) -> dict[str, list[str]]:
    texts: dict[str, dict[str, None]] = {}
    for one in kernels:
        texts.setdefault(one.ptx, {})[one.kernel] = None
    return {ptx: list(names) for ptx, names in texts.items()}


def as_dict(
    kernels: Iterable[KernelCounts],
    resources: Mapping[tuple[str, str], KernelResources] | None = None,
) -> list[dict[str, Any]]:
    """The counts as plain values: metrics of each kernel, classes of instructions, and lines."""
    reported = resources or {}
    return [
        {
            "kernel": one.kernel,
            "grid": list(one.grid),
            "block": list(one.block),
            "launches": one.launches,
            "blocks": one.blocks,
            "counted_blocks": one.counted_blocks,
            "metrics": one.metrics() | _of_target(one, reported.get((one.ptx, one.kernel))),
            "ptx_instructions": one.classes,
            "lines": [_line_as_dict(line) for line in one.lines],
        }
        for one in kernels
    ]


def _of_target(one: KernelCounts, reported: KernelResources | None) -> dict[str, float | None]:
    if reported is None:
        return {}
    return {
        "launch__registers_per_thread": reported.registers,
        "sm__maximum_warps_per_active_cycle_pct": _hundred(
            reported.occupancy(math.prod(one.block), one.dynamic_shared)
        ),
        "uhal__spill_stores.bytes": reported.spill_stores,
        "uhal__spill_loads.bytes": reported.spill_loads,
    }


def _line_as_dict(line: LineCounts) -> dict[str, Any]:
    memory, shared = line.total("global"), line.total("shared")
    return {
        "file": line.location.file,
        "line": line.location.line,
        "text": line.location.text,
        "smsp__thread_inst_executed.sum": line.threads,
        "memory_l2_theoretical_sectors_global": line.scale * memory.sectors if memory else 0,
        "memory_l2_theoretical_sectors_global_ideal": line.scale * memory.ideal_sectors
        if memory
        else 0,
        "sectors_per_request": _ratio(memory.sectors, memory.requests) if memory else None,
        "memory_l1_wavefronts_shared": line.scale * shared.wavefronts if shared else 0,
        "memory_l1_wavefronts_shared_ideal": line.scale * shared.ideal_wavefronts if shared else 0,
        "divergent_branches": line.scale * sum(one.divergent for one in line.branches),
        "advice": line.advice,
    }


__all__ = [
    "KernelCounts",
    "LineCounts",
    "as_dict",
    "from_counts",
    "read",
    "resources_of",
    "size_of_file",
]
