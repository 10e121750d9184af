"""Other people's own tests, on the simulated driver, under `python -m uhal sim run`.

The authors of these tests do not know the simulator. `tests/data/suites` lists the tests that pass,
and the reasons why the other tests cannot. Most run in `make soak` only.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.sampling import SOAK, rounds
from tests.simulated import suites, third_party
from tests.simulated.process import LIBRARY, ROOT, needs_simulator

pytestmark = needs_simulator
SIM_RUN = [sys.executable, "-m", "uhal", "sim", "run"]

NUMBA_CUDA = suites.read("numba_cuda")
# numba-cuda's repository has this file beside its tests, but its wheel does not.
NUMBA_CUDA_SETTINGS = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--dump-failed-filechecks", action="store_true")

@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = request.config.getoption("dump_failed_filechecks")
"""


def check_numba_cuda(files: list[str], request: pytest.FixtureRequest, folder: Path) -> None:
    packages = third_party.cache_of(request.config)
    python = third_party.make_environment(packages, third_party.NVIDIA)
    (folder / "conftest.py").write_text(NUMBA_CUDA_SETTINGS)
    for file in files:
        # Import the module by its own name: child processes of its tests must find pickled
        # functions.
        module = file.removesuffix(".py").replace("/", ".")
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(f"from numba.cuda.tests.{module} import *\n")
    command = [*SIM_RUN, str(python), "-m", "pytest"]
    report = str(folder / "report")
    suites.check(NUMBA_CUDA, files, command, folder, UHAL_SIM_REPORT=report)


def test_numba_cuda_in_short(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> None:
    short = NUMBA_CUDA.short
    drawn = random.Random(seed).sample(short, rounds(-(-len(short) // 6), len(short)))
    check_numba_cuda(sorted(drawn), request, tmp_path)


@pytest.mark.skipif(not SOAK, reason="the whole suite takes half an hour: make soak")
@pytest.mark.parametrize("file", NUMBA_CUDA.passing)
def test_numba_cuda(request: pytest.FixtureRequest, tmp_path: Path, file: str) -> None:
    check_numba_cuda([file], request, tmp_path)


PYCUDA = suites.read("pycuda")


@pytest.mark.skipif(not SOAK, reason="compiling PyCUDA takes two minutes: make soak")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="PyCUDA compiles its kernels with nvcc")
@pytest.mark.parametrize("file", PYCUDA.passing)
def test_pycuda(request: pytest.FixtureRequest, tmp_path: Path, file: str) -> None:
    packages = third_party.cache_of(request.config)
    site = third_party.install_pycuda(packages, LIBRARY)
    shutil.copy(third_party.unpack_tests_of_pycuda(packages) / file, tmp_path)
    suites.check(
        PYCUDA,
        [file],
        [*SIM_RUN, sys.executable, "-m", "pytest"],
        tmp_path,
        PYTHONPATH=os.pathsep.join((str(site), str(ROOT))),
        PYCUDA_CACHE_DIR=str(tmp_path),
        UHAL_SIM_REPORT=str(tmp_path / "report"),
    )
