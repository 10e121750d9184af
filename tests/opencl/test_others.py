"""Other OpenCL runtimes, and devices that only a layer imitates; all in a soak."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.opencl.others import Runtime, intel_2022, pocl_3, pocl_7
from tests.sampling import SOAK
from uhal_conformance.kept_folders import kept_folder

pytestmark = pytest.mark.skipif(not SOAK, reason="packages of 250 MB and an hour: in a soak")

HOURS = 3600.0
CONFORMANCE = ("tests/conformance",)
EVERYTHING = ("tests/conformance", "tests/ubridge")
BUT_2022 = "not log_softmax"
"""On Intel's runtime of 2022, kernels cannot have as much private memory as log_softmax needs."""
NO_MESSAGES = "not kernels_print and not kept_is_counted and not assertion_names"
"""Without host memory that devices can write, kernels cannot send messages; a warning says so when
their module is loaded."""
BUT_RACE = "not make_and_close_everything"
"""In one of a hundred runs of this test, an assertion of PoCL 7.1 about overlapping addresses ends
the process. Probably PoCL removes a freed address from its table too late."""
NO_RECORDS = "not tells_where and not whoever_waits and not told_once and not bad_id"
"""Without host memory that devices can write, an index out of bounds is not reported either."""


@pytest.fixture(scope="session")
def debian(request: pytest.FixtureRequest) -> Path:
    """Folder of packages, kept between runs."""
    return kept_folder(request.config, "debian")


def passes(runtime: Runtime, tests: tuple[str, ...], but: str, folder: Path, **more: str) -> None:
    """Run a sample of these tests on an OpenCL runtime; check that most of them ran."""
    done = runtime.run(
        *("-m", "pytest", "-q", "-p", "no:xdist", "-o", f"cache_dir={folder / 'cache'}"),
        *("-W", "ignore:PRINTF and ASSERT of this module will not be heard"),
        *(*tests, "-k", f"opencl and {but}" if but else "opencl"),
        timeout=HOURS,
        **{"UHAL_TEST_SOAK": "0", **more},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    told = re.search(r"(\d+) passed", done.stdout)
    assert told is not None and int(told[1]) > 300, done.stdout[-2000:]


# -- refused ---------------------------------------------------------------------------------------


def test_pocl_3_is_refused_by_what_it_lacks(debian: Path) -> None:
    """Run in a separate process, because the runtime loads another LLVM."""
    code = "from tests.opencl.test_backend import say_record; say_record()"
    done = pocl_3(debian).run("-c", code)
    assert done.returncode == 0, done.stderr
    verdict, _, reason, advice = done.stdout.split("\n")[:4]
    assert verdict == "refused"
    assert "PoCL 3.1" in reason
    assert "takes no SPIR-V (CL_DEVICE_IL_VERSION is empty)" in reason
    assert "pip install intel-opencl-rt" in advice


# -- others' runtimes ------------------------------------------------------------------------------


def test_everything_on_pocl_7(debian: Path, tmp_path: Path) -> None:
    passes(pocl_7(debian), EVERYTHING, BUT_RACE, tmp_path)


@pytest.mark.parametrize("memory", ["svm-fine", "svm-coarse", "buffer-address"])
def test_every_kind_of_memory_on_pocl_7(debian: Path, tmp_path: Path, memory: str) -> None:
    but = BUT_RACE if memory == "svm-fine" else f"{BUT_RACE} and {NO_MESSAGES}"
    passes(pocl_7(debian), CONFORMANCE, but, tmp_path, UHAL_OPENCL_MEMORY=memory)


@pytest.mark.parametrize("memory", ["local", "global"])
def test_pocl_7_repeats_loads_behind_barriers(debian: Path, memory: str) -> None:
    """The bug exists in OpenCL C, where uhal has no workaround; if this test fails, delete
    `loads.py`."""
    script = str(Path(__file__).parent / "repeated_load.py")
    done = pocl_7(debian).run(script, memory, UHAL_OPENCL_CACHE="off")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_everything_on_intels_of_2022(debian: Path, tmp_path: Path) -> None:
    passes(intel_2022(debian), EVERYTHING, BUT_2022, tmp_path)


@pytest.mark.parametrize(
    ("command", "takes_times"),
    [("fill", True), ("marker", False), ("barrier", False)],
)
def test_intels_of_2022_takes_no_time_of_markers(
    debian: Path, command: str, takes_times: bool
) -> None:
    """Markers have no times even without uhal, so uhal's events fill a few bytes instead."""
    done = intel_2022(debian).run(str(Path(__file__).parent / "marker_times.py"), command)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) != 0) is takes_times


# -- devices that nobody here has ------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["svm-fine", "svm-coarse", "buffer-address"])
def test_conformance_with_every_kind_of_memory(
    layer: Callable[..., Mapping[str, str]], tmp_path: Path, memory: str
) -> None:
    """Run on a device with only this kind of memory, without f16, and with only SPIR-V 1.0."""
    environment = layer(memory=memory, UHAL_LAYER_IL="SPIR-V_1.0 ")
    hidden = f"{environment['UHAL_LAYER_HIDES']} cl_khr_fp16"
    here = Runtime([sys.executable], {**environment, "UHAL_LAYER_HIDES": hidden})
    operations = ("tests/ubridge/test_network_test.py", "tests/ubridge/test_every_op.py")
    but = NO_RECORDS if memory == "svm-fine" else f"{NO_RECORDS} and {NO_MESSAGES}"
    passes(here, (*CONFORMANCE, *operations), but, tmp_path)
