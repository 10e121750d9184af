"""A refused allocation is an `OutOfMemoryError` or a `MemoryError`, and nothing else is lost.

A soak refuses every allocation of this project's compiled code, and some of the interpreter's.
Then CPython and numpy may fail themselves: `SystemError` without a reason. Without uhal, too,
CPython 3.11 crashes in loops over `co_lines()`, numpy 2.4 in `dtype({...})` and `row["name"]`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_kernels import has_compiler
from tests.refusals import build_refusals
from tests.requirements import needed
from tests.sampling import SOAK, rounds
from tests.ubridge import failed_allocations
from ubridge.models.making import make_model
from uhal import Device

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    needed(has_compiler(), "the refusals are compiled here"),
    pytest.mark.skipif(sys.platform != "linux", reason="allocations are refused on Linux"),
]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_refusals(tmp_path_factory.mktemp("refusals"))


def run(refusals: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_PRELOAD": str(refusals), "UHAL_HOST_DEVICES": "2"}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=rounds(600, 3600),
    )


def test_operations_after_a_refused_allocation(
    refusals: Path, host: Device, seed: int, tmp_path: Path
) -> None:
    make_model(tmp_path / "model", seed=seed % 2**32)
    names = [operation.__name__ for operation in failed_allocations.OPERATIONS]
    program = ("-m", "tests.ubridge.failed_allocations")
    told = ("native", str(tmp_path), str(seed), str(rounds(4, 100_000)))
    done = run(refusals, tmp_path, *program, *told, *names)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names if SOAK else []:
        if name != "profile":
            told = ("python", str(tmp_path), str(seed), "300")
            done = run(refusals, tmp_path, *program, *told, name)
            assert done.returncode == 0, done.stdout + done.stderr
