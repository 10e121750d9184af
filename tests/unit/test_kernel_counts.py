"""Counts of kernels from the driver: sums over launches, errors of sampling, advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uhal.profiler.accesses import Access, Branch, advice
from uhal.profiler.counts import KernelCounts, from_counts, read

TEXT = """\
.version 8.0
.entry k() {
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1}, [%r2], %r3;
    ld.shared.u32 %r4, [%r5];
}
"""


def access(line: int, **members: Any) -> dict[str, Any]:
    usual = {"kind": "load", "space": "global", "bytes": 4, "lanes": 32, "requests": 1}
    sums = {"sectors": 4, "ideal_sectors": 4, "used_bytes": 128, "same_address": 0}
    return {"line": line, **usual, **sums, "wavefronts": 0, "ideal_wavefronts": 0, **members}


def launch(blocks: int = 1, values: Any = (10.0,), **members: Any) -> dict[str, Any]:
    chosen = np.asarray(values, np.float64)
    spread = [float(chosen.sum()), float((chosen**2).sum())]
    return {
        "grid": [blocks, 1, 1],
        "block": [32, 1, 1],
        "static_shared": 0,
        "dynamic_shared": 0,
        "blocks": blocks,
        "counted_blocks": chosen.size,
        "warps": chosen.size,
        "distinct": {"load_sectors": 4, "store_sectors": 4, "load_bytes": 1, "store_bytes": 1}
        if chosen.size == blocks
        else None,
        "block_distinct": {"load_sectors": 4, "store_sectors": 4},
        "spread": {"instructions": spread, "sectors": spread},
        "instructions": [[4, "int", 32 * chosen.size, chosen.size]],
        "accesses": [],
        "branches": [],
        **members,
    }


def counts(tmp_path: Path, *launches: dict[str, Any], kernel: str = "k") -> list[KernelCounts]:
    text, file = tmp_path / "k.ptx", tmp_path / "counts.jsonl"
    text.write_text(TEXT)
    lines = ({"kernel": kernel, "ptx": str(text), **one} for one in launches)
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return read(file)


def test_launches_of_one_geometry_are_added_up(tmp_path: Path) -> None:
    loads = [access(4, sectors=8), access(4, sectors=16)]
    same = [launch(accesses=[one]) for one in loads]
    first, other = counts(tmp_path, *same, launch(2, (1, 1)))
    assert (first.launches, first.blocks, other.launches) == (2, 2, 1)
    assert first.sums("global", "load").sectors == 24
    assert first.sums("global", "load").requests == 2
    assert first.sums("global", "store").requests == 0
    assert first.coalescing == 8 / 24
    assert first.moved == 24 / 16
    assert first.thread_instructions == 64


def test_the_error_of_a_sample(tmp_path: Path, rng: np.random.Generator) -> None:
    whole = rng.uniform(50, 150, 400)
    chosen = rng.choice(whole, 40, replace=False)
    (found,) = counts(tmp_path, launch(400, chosen))
    wanted = chosen.std(ddof=1) / np.sqrt(40) * np.sqrt(1 - 40 / 400) / chosen.mean()
    assert found.error("instructions") == pytest.approx(wanted, rel=1e-9)
    assert found.moved is None
    assert found.thread_instructions == 32 * 400
    (exact,) = counts(tmp_path, launch(400, whole))
    assert exact.error("sectors") == 0
    (one,) = counts(tmp_path, launch(400, [3.0]))
    assert one.error("sectors") is None
    assert one.metrics()["uhal__error_of_sectors.pct"] is None


def test_fragments_of_wmma_are_no_bank_conflicts(tmp_path: Path) -> None:
    shared = {"space": "shared", "sectors": 0, "ideal_sectors": 0}
    fragment = access(3, **shared, wavefronts=16, ideal_wavefronts=1)
    load = access(4, **shared, wavefronts=3, ideal_wavefronts=2)
    (found,) = counts(tmp_path, launch(accesses=[fragment, load]))
    assert found.bank_factor == 1.5
    (alone,) = counts(tmp_path, launch(accesses=[fragment]))
    assert alone.bank_factor is None


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, "4 bytes a lane: accesses of 16 need 4 times fewer requests"),
        ({"bytes": 16, "sectors": 16, "ideal_sectors": 16}, ""),
        ({"sectors": 32}, "32.0 sectors a request, 12 % of their bytes used"),
        ({"kind": "atomic", "same_address": 32, "sectors": 1, "ideal_sectors": 1}, "32 lanes of a"),
        ({"space": "shared", "wavefronts": 8, "ideal_wavefronts": 1}, "8.0 turns for one"),
        ({"space": "shared", "wavefronts": 1, "ideal_wavefronts": 1}, ""),
    ],
)
def test_advice_on_an_access(members: dict[str, Any], words: str) -> None:
    said = advice([Access(**access(1, **members))], [])
    assert words in said
    assert bool(said) == bool(words)


def test_advice_on_the_worst_alone() -> None:
    small = Access(**access(1))
    large = Access(**access(1, sectors=32))
    branch = Branch(1, lanes=320, executed=10, taken=160, divergent=10)
    assert "sectors a request" in advice([small, large], [branch])
    assert "lanes part in 100 %" in advice([small], [branch])
    assert advice([], [Branch(1, lanes=320, executed=10, taken=320, divergent=0)]) == ""


def test_a_line_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a line of UHAL_SIM_COUNTS"):
        from_counts("k", "k.ptx", {"grid": [1, 1, 1]})
    (tmp_path / "counts.jsonl").write_text("no JSON\n")
    with pytest.raises(ValueError):
        read(tmp_path / "counts.jsonl")
