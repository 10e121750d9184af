"""The benchmark that counts ubridge's kernels: its workloads, its limits, and one run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import gpu_counts, gpu_works
from tests.requirements import needed
from tests.simulated_driver import LIBRARY, ROOT


def test_every_peer_was_recorded() -> None:
    peers = json.loads(gpu_counts.PEERS.read_text())
    works = list(gpu_works.works())
    known = {f"{row['peer']} {row['work']}" for row in peers}
    known |= {f"ubridge {one.name}" for one in works}
    names = [one.name for one in works]
    assert len(set(names)) == len(names)
    assert {peer for one in works for peer in one.peers} <= known


@pytest.mark.parametrize(
    ("value", "least", "most", "wanted"),
    [
        (0.9, 0.9, None, True),
        (0.89, 0.9, None, False),
        (8.0, None, 8, True),
        (8.1, None, 8, False),
        (None, None, 8, True),
    ],
)
def test_a_gate(value: float | None, least: float | None, most: float | None, wanted: bool) -> None:
    assert gpu_counts.holds({"is": value, "least": least, "at_most": most}) is wanted


@needed(LIBRARY.exists(), "make simulators")
def test_a_work_is_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_counts", "--only", "^argmax", "--json"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    found = json.loads(done.stdout)
    (work,) = found["works"]
    assert work["numbers"]["launches"] == len(work["kernels"])
    # Each element is read at least once, and a sector of 32 bytes contains 8 elements.
    assert work["numbers"]["sectors"] >= 64 * 4096 / 8
    assert work["numbers"]["instructions"] > 1
    rows = found["gates"]
    assert [row["what"] for row in rows] == ["argmax 64x4096: bank factor"]
    assert done.returncode == (0 if all(row["holds"] for row in rows) else 1)
