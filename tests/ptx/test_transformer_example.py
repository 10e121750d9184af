"""The transformer of Python kernels captures 430 launches and replays them by one call."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import needed
from tests.sampling import SOAK
from tests.simulated_driver import LIBRARY

ROOT = Path(__file__).resolve().parents[2]


@needed(LIBRARY.exists(), "make simulators")
@pytest.mark.skipif(not SOAK, reason="its operations' own kernels are translated, too: make soak")
def test_the_example_replays_what_it_captured(tmp_path: Path, seed: int) -> None:
    program = ROOT / "examples" / "transformer_in_python.py"
    done = subprocess.run(
        [sys.executable, "-m", "uhal", "sim", "run", str(program), "--seed", str(seed)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r": 430 operations captured, one replay$", done.stdout, re.MULTILINE)
    assert "\n429 of them by kernels written in Python\n" in done.stdout
