"""Other people's libraries from PyPI, unchanged, on the simulated CUDA driver.

What they trip over is a bug of the simulator. Each program runs in a process of its own, under a
schedule in which a forgotten wait shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import SOAK
from tests.simulated import third_party

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
LIBRARY = ROOT / "simulators" / "build" / "libcuda.so.1"
IMAGE = ROOT / "ubridge" / "kernels" / "images" / "cuda" / "activation.ptx"

pytestmark = pytest.mark.skipif(
    not LIBRARY.is_file(), reason="the simulated CUDA driver is not built: make simulators"
)
schedules = pytest.mark.parametrize("schedule", ["lazy", "random"])


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Where installed libraries are kept from run to run."""
    cache = request.config.cache
    assert cache is not None
    return cache.mkdir("third_party")


@pytest.fixture(scope="session")
def nvidia(folder: Path) -> Path:
    """cuda.core, cuda.bindings and NVRTC."""
    return third_party.install(folder, third_party.NVIDIA)


def run(program: str, libraries: Path, schedule: str, seed: int, *arguments: str) -> None:
    """Run a program where every library finds the simulated driver; it must say nothing."""
    # NVRTC is looked for in an interpreter's own folders, else where the loader looks.
    folders = (LIBRARY.parent, *libraries.glob("nvidia/*/lib"))
    chosen = f"random:{seed}" if schedule == "random" else schedule
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAMS / program), *arguments, str(seed)],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if "UHAL_" not in name},
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders)),
            "PYTHONPATH": os.pathsep.join((str(libraries), str(ROOT))),
            "UHAL_CUDA_LIBRARY": str(LIBRARY),
            "UHAL_SIM_SCHEDULE": chosen,
        },
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    said = f"UHAL_SIM_SCHEDULE={chosen}, seed {seed}\n{done.stdout}{done.stderr}"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), said


@schedules
def test_cuda_core(nvidia: Path, schedule: str, seed: int) -> None:
    run("through_cuda_core.py", nvidia, schedule, seed, str(IMAGE))


@schedules
def test_cuda_bindings(nvidia: Path, schedule: str, seed: int) -> None:
    run("through_cuda_bindings.py", nvidia, schedule, seed, str(IMAGE))


@schedules
def test_objects_go_both_ways(nvidia: Path, schedule: str, seed: int) -> None:
    run("objects_both_ways.py", nvidia, schedule, seed, str(IMAGE))


def test_a_kernel_compiled_at_run_time(nvidia: Path, seed: int) -> None:
    run("compiled_at_run_time.py", nvidia, "lazy", seed)


@pytest.mark.skipif(not SOAK, reason="compiling PyCUDA takes two minutes: make soak")
@schedules
def test_pycuda(folder: Path, schedule: str, seed: int) -> None:
    libraries = third_party.install_pycuda(folder, LIBRARY)
    run("through_pycuda.py", libraries, schedule, seed, str(IMAGE))
