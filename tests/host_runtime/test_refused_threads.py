"""Threads that the system refuses: the work is still done, and the threads start later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_kernels import has_compiler
from tests.refusals import build_refusals
from tests.requirements import needed

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    needed(has_compiler(), "the refusals are compiled here"),
    pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc"),
]

PROGRAM = """
import ctypes, os, pathlib, time
import numpy as np
import ubridge
from uhal import Api

def workers():
    names = [task.joinpath("comm") for task in pathlib.Path("/proc/self/task").iterdir()]
    return [name.read_text().strip() for name in names].count("uhal-worker")

Api.quick_init(0, "host")
hook = ctypes.CDLL(os.environ["LD_PRELOAD"])
rng = np.random.default_rng(int(os.environ["SEED"]))
values = rng.standard_normal((3, 256, 256))
def product():
    x = ubridge.asarray(values)
    np.testing.assert_allclose((x @ x).to_numpy(), values @ values, 1e-9, 1e-9)

hook.refuse_threads(1 << 30)
for _ in range(3):
    product()
assert workers() == 0
hook.refuse_threads(0)
# An attempt that failed is repeated a little later.
for _ in range(1000):
    product()
    if workers() == 3:
        break
    time.sleep(0.01)
assert workers() == 3
"""


def test_workers_that_were_refused_are_started_later(seed: int, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "LD_PRELOAD": str(build_refusals(tmp_path)),
        "UHAL_HOST_THREADS": "4",
        "SEED": str(seed),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
