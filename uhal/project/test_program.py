"""Tests of the kernels, on the CPU and on a simulated GPU: `make test`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from program import BUILD, IMAGES, run
from uhal import Device

HERE = Path(__file__).parent


def test_on_the_host() -> None:
    assert run(Device(0, "host")) < 1e-5


@pytest.mark.parametrize("backend", ["cuda"])
def test_on_a_simulated_gpu(backend: str) -> None:
    """Run in another process: a process loads either the simulated driver or the machine's."""
    if not (BUILD / IMAGES[backend]).exists():
        pytest.skip(f"build/{IMAGES[backend]} was not built: is its compiler installed?")
    command = [sys.executable, "-m", "uhal", "sim", "run", "program.py", backend]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
