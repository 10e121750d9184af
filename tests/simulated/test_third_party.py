"""Other people's libraries from PyPI, unchanged, on the simulated CUDA driver.

A failure of a library is a bug of the simulator. Each program runs in its own process, under a
schedule that reveals missing waits.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sampling import SOAK
from tests.shipped_ptx import write_shipped_ptx
from tests.simulated import third_party
from tests.simulated.process import (
    LIBRARY,
    PROGRAMS,
    ROOT,
    needs_simulator,
    run_freely,
    run_program,
    run_python,
)
from uhal.ptx import ready

pytestmark = needs_simulator
schedules = pytest.mark.parametrize("schedule", ["lazy", "random"])


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Folder of installed libraries, kept between runs."""
    return third_party.cache_of(request.config)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_shipped_ptx(tmp_path_factory.mktemp("image"), "activation"))


@pytest.fixture(scope="session")
def nvidia(folder: Path) -> Path:
    """cuda.core, cuda.bindings, NVRTC, nvJitLink and numba-cuda."""
    return third_party.install(folder, third_party.NVIDIA)


def run(program: str, libraries: Path, schedule: str, seed: int, *arguments: str) -> None:
    """Run a program with the installed libraries; it must print nothing."""
    # Libraries look for NVRTC in the interpreter's own folders, then in the loader's.
    folders = (LIBRARY.parent, *libraries.glob("nvidia/*/lib"))
    out = run_program(
        program,
        *arguments,
        str(seed),
        LD_LIBRARY_PATH=os.pathsep.join(map(str, folders)),
        PYTHONPATH=os.pathsep.join((str(libraries), str(ROOT))),
        UHAL_SIM_SCHEDULE=f"random:{seed}" if schedule == "random" else schedule,
    )
    assert out == ""


@pytest.mark.drawn(1)
@schedules
def test_cuda_core(nvidia: Path, schedule: str, seed: int, image: str) -> None:
    run("through_cuda_core.py", nvidia, schedule, seed, image)


@pytest.mark.drawn(1)
@schedules
def test_cuda_bindings(nvidia: Path, schedule: str, seed: int, image: str) -> None:
    run("through_cuda_bindings.py", nvidia, schedule, seed, image)


@pytest.mark.drawn(1)
@schedules
def test_graphs_of_cuda_bindings(nvidia: Path, schedule: str, seed: int, image: str) -> None:
    run("graphs_through_cuda_bindings.py", nvidia, schedule, seed, image)


@pytest.mark.drawn(1)
@schedules
def test_streams_of_cuda_bindings(nvidia: Path, schedule: str, seed: int, image: str) -> None:
    run("streams_through_cuda_bindings.py", nvidia, schedule, seed, image)


@pytest.mark.drawn(1)
@schedules
def test_objects_go_both_ways(nvidia: Path, schedule: str, seed: int, image: str) -> None:
    run("objects_both_ways.py", nvidia, schedule, seed, image)


def test_kernels_written_in_python(nvidia: Path, tmp_path: Path, seed: int) -> None:
    for name in ready.__all__:
        (tmp_path / f"{name}.ptx").write_text(getattr(ready, name)().ptx)
    run("python_kernels.py", nvidia, "lazy", seed, str(tmp_path))


@pytest.fixture(scope="session")
def python(nvidia: Path, folder: Path) -> str:
    """Return an interpreter whose own folders contain the libraries."""
    return str(third_party.make_environment(folder, third_party.NVIDIA))


def test_cubins_run_under_sim_run(python: str, seed: int) -> None:
    program = str(PROGRAMS / "compiled_to_cubin.py")
    out = run_python("-m", "uhal", "sim", "run", python, "-W", "error", program, str(seed))
    assert out == ""


def test_a_cubin_outside_of_sim_run_says_what_to_do(nvidia: Path, seed: int) -> None:
    folders = (LIBRARY.parent, *nvidia.glob("nvidia/*/lib"))
    done = run_freely(
        str(PROGRAMS / "compiled_to_cubin.py"),
        str(seed),
        LD_LIBRARY_PATH=os.pathsep.join(map(str, folders)),
        PYTHONPATH=os.pathsep.join((str(nvidia), str(ROOT))),
    )
    assert done.returncode == 1
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("uhal simulator:")]
    assert "run the program by `python -m uhal sim run`" in said
    assert "CUDA_ERROR_NOT_SUPPORTED" in done.stderr


def test_a_kernel_compiled_at_run_time(nvidia: Path, seed: int) -> None:
    run("compiled_at_run_time.py", nvidia, "lazy", seed)


@pytest.mark.skipif(not SOAK, reason="compiling PyCUDA takes two minutes: make soak")
@schedules
def test_pycuda(folder: Path, schedule: str, seed: int, image: str) -> None:
    libraries = third_party.install_pycuda(folder, LIBRARY)
    run("through_pycuda.py", libraries, schedule, seed, image)
