"""The conformance suite under the simulator's other schedules."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest

from build_support import hip_compiler
from tests.conformance.rows import ROWS
from tests.requirements import missing
from tests.sampling import rounds
from tests.simulated.process import ROOT, needs_simulator

pytestmark = needs_simulator

SIMULATED = [row.name for row in ROWS if row.name.endswith("-sim")]
FILES = sorted(path.name for path in (ROOT / "tests" / "conformance").glob("test_*.py"))
SOME = rounds(10, 200)
"""Least number of passed tests per row: a suite that skips all tests would succeed, too."""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("schedule", rounds(["random:{seed}"], ["random:{seed}", "eager"]))
@pytest.mark.parametrize("simulated", SIMULATED)
def test_the_conformance_suite(simulated: str, schedule: str, seed: int) -> None:
    if simulated == "rocm-sim" and hip_compiler.toolchain() is None:
        missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    chosen = schedule.format(seed=seed % 100_000)
    files = random.Random(seed).sample(FILES, rounds(len(FILES) // 4, len(FILES)))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-k", simulated),
            *(f"tests/conformance/{file}" for file in sorted(files)),
        ],
        cwd=ROOT,
        env={**os.environ, "UHAL_SIM_SCHEDULE": chosen},
        capture_output=True,
        encoding="utf-8",
    )
    said = f"UHAL_SIM_SCHEDULE={chosen} {sorted(files)}\n{done.stdout[-5000:]}"
    assert done.returncode == 0, said
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > SOME, said
