"""Kernels with one bug each: the simulated driver's codes and reports."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.requirements import needed
from tests.simulated_driver import LIBRARY, Driver, copy_of_library, refused

PLANTED = Path(__file__).resolve().parent / "planted"
PTX = (PLANTED / "bugs.ptx").read_bytes()

pytestmark = needed(LIBRARY.exists(), "make simulators")


class Bugs(Driver):
    """A driver with the kernels of planted/bugs.cu and a report of its own."""

    def __init__(self, folder: Path, report: Path) -> None:
        super().__init__(copy_of_library(folder))
        self._report = report
        self.open()
        self.module = self.make("cuModuleLoadData", "CUmodule", PTX)

    def report(self) -> str:
        return self._report.read_text()

    def run(self, name: str, *values: Any, **shape: Any) -> None:
        """Launch a kernel by name and wait for it."""
        self.launch(self.function(self.module, name), *values, grid=(1, 1, 1), **shape)
        self.call.cuCtxSynchronize()

    def source_line(self) -> str:
        """Return the instruction that the report shows."""
        found = re.search(r"  PTX       line (\d+) of .*\.ptx\n +(.*)\n", self.report())
        assert found is not None, self.report()
        number, text = int(found[1]), found[2]
        assert PTX.decode().splitlines()[number - 1].strip() == text
        return text


Opener = Callable[..., Bugs]


@pytest.fixture
def bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Opener:
    """Opens a driver; settings are given without UHAL_SIM_."""
    numbers = itertools.count()

    def open_driver(**settings: str) -> Bugs:
        for name in [name for name in os.environ if name.startswith("UHAL_SIM_")]:
            monkeypatch.delenv(name)
        report = tmp_path / "report"
        seed = secrets.randbits(31)
        print(f"UHAL_SIM_SEED={seed}")
        chosen = {
            "REPORT": str(report),
            "SEED": str(seed),
            **settings,
        }
        for name, value in chosen.items():
            monkeypatch.setenv(f"UHAL_SIM_{name}", value)
        return Bugs(tmp_path / str(next(numbers)), report)

    return open_driver


def floats(driver: Driver, values: np.ndarray[Any, Any]) -> ctypes.c_uint64:
    address = driver.allocate(values.size)
    driver.upload(address, values)
    return ctypes.c_uint64(address)


def lost(driver: Driver, name: str) -> None:
    """Check that every later call returns the fault."""
    for call in (lambda: driver.allocate(4), lambda: driver.call.cuCtxSynchronize()):
        with refused(name):
            call()


def test_a_missing_barrier_shows(bugs: Opener, rng: np.random.Generator) -> None:
    x = rng.standard_normal(256).astype(np.float32)
    driver = bugs()
    source, target = floats(driver, x), floats(driver, x)
    driver.run("with_barrier", source, target, block=(256, 1, 1))
    np.testing.assert_array_equal(driver.download(target.value, 256), x[::-1])
    driver.run("missing_barrier", source, target, block=(256, 1, 1))
    assert not np.array_equal(driver.download(target.value, 256), x[::-1])


def test_shared_memory_does_not_show_the_launch_before(
    bugs: Opener, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(256).astype(np.float32)
    driver = bugs()
    source, target = floats(driver, x), floats(driver, x)
    driver.run("with_barrier", source, target, block=(256, 1, 1))
    driver.run("uninitialized", target, block=(64, 1, 1))
    tile = driver.download(target.value, 64)
    np.testing.assert_array_equal(tile[:32], np.ones(32, np.float32))
    np.testing.assert_array_equal(tile[32:].view(np.uint32), 0xFFFFFFFF)


def test_a_missing_barrier_is_named_in_strict_mode(bugs: Opener) -> None:
    driver = bugs(CHECK="strict")
    source = floats(driver, np.ones(256, np.float32))
    with refused("CUDA_ERROR_LAUNCH_FAILED", "kernel missing_barrier"):
        driver.run("missing_barrier", source, source, block=(256, 1, 1))
    assert driver.source_line().startswith(("ld.shared", "st.shared"))
    lost(driver, "CUDA_ERROR_LAUNCH_FAILED")


def test_a_store_one_element_past_the_end(bugs: Opener, rng: np.random.Generator) -> None:
    driver = bugs()
    count = int(rng.integers(33, 300))
    target = floats(driver, np.zeros(count, np.float32))
    end = target.value + 4 * count
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS", "kernel store_past_end"):
        driver.run("store_past_end", target, block=(count, 1, 1))
    report = driver.report()
    assert "kernel    store_past_end, grid (1, 1, 1)" in report
    assert f"thread ({count - 1}, 0, 0)" in report and "block (0, 0, 0)" in report
    assert hex(end) in report
    assert f"0 bytes past the end of allocation of {4 * count} bytes" in report
    assert driver.source_line().startswith("st.global.u32")
    lost(driver, "CUDA_ERROR_ILLEGAL_ADDRESS")


def test_a_misaligned_vector_load(bugs: Opener, rng: np.random.Generator) -> None:
    x = rng.standard_normal(16).astype(np.float32)
    driver = bugs()
    source, target = floats(driver, x), floats(driver, np.zeros(16, np.float32))
    driver.run("vector_load", source, target, ctypes.c_int32(4), block=(3, 1, 1))
    np.testing.assert_array_equal(driver.download(target.value, 12), x[4:])
    with refused("CUDA_ERROR_MISALIGNED_ADDRESS", "kernel vector_load"):
        driver.run("vector_load", source, target, ctypes.c_int32(2), block=(3, 1, 1))
    assert driver.source_line().startswith("ld.global.v4")
    lost(driver, "CUDA_ERROR_MISALIGNED_ADDRESS")


def test_memory_that_was_freed(bugs: Opener) -> None:
    driver = bugs()
    kept = floats(driver, np.ones(64, np.float32))
    gone = floats(driver, np.ones(64, np.float32))
    driver.call.cuCtxSynchronize()
    driver.call.cuMemFree_v2(gone.value)
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS", "kernel copy"):
        driver.run("copy", gone, kept)
    assert "of freed allocation of 256 bytes" in driver.report()
    assert driver.source_line().startswith("ld.global")


READERS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry readers() {{
    .reg .pred %p; .reg .b32 %r<4>;
    .shared .align 4 .b8 cell[4];
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p, %r0, 0;
    @%p bra written;
    st.shared.u32 [cell], %r0;
written:
    bar.sync 0;
    {steps}
    ret;
}}
"""
STEP = """
    setp.ne.u32 %p, %r0, {thread};
    @%p bra behind_{step};
    {access}
behind_{step}:
"""
ACCESSES = {"r": "ld.shared.u32 %r1, [cell];", "w": "st.shared.u32 [cell], 7;"}


@pytest.mark.parametrize(
    ("steps", "races"),
    [
        # numbers are threads: from 0 in the first warp, from 32 in the second; | is a warp barrier
        ("0r 1w", True),
        ("0r 0w", False),
        ("0r | 1w", False),
        ("0r 32r | 1w", True),
        ("32r 0r | 1w", True),
        ("0r 1r 32r | 2w", True),
        ("0r | 1r 2w", True),
        ("0r | 1r 2r 2w", True),
        ("0r 1r | 2r 3r 2w", True),
        ("0r 1r | 2r 2w", False),
        ("0r 1r 2r 3r | 4w", False),
    ],
)
def test_a_race_with_any_reader_is_found(bugs: Opener, steps: str, races: bool) -> None:
    body = "".join(
        "bar.warp.sync 0xFFFFFFFF;"
        if step == "|"
        else STEP.format(thread=step[:-1], step=number, access=ACCESSES[step[-1]])
        for number, step in enumerate(steps.split())
    )
    driver = bugs(CHECK="strict")
    image = READERS.format(steps=body).encode()
    readers = driver.function(driver.make("cuModuleLoadData", "CUmodule", image), "readers")
    outcome = refused("CUDA_ERROR_LAUNCH_FAILED", "kernel readers")
    with outcome if races else contextlib.nullcontext():
        driver.launch(readers, grid=(1, 1, 1), block=(64, 1, 1))
        driver.call.cuCtxSynchronize()
    if races:
        assert "race on shared memory" in driver.report()


def test_a_race_on_shared_memory(bugs: Opener) -> None:
    driver = bugs(CHECK="strict")
    target = floats(driver, np.zeros(1, np.float32))
    with refused("CUDA_ERROR_LAUNCH_FAILED", "kernel shared_race"):
        driver.run("shared_race", target)
    assert "race on shared memory" in driver.report()
    assert "shared" in driver.source_line()


def test_shared_memory_that_nobody_wrote(bugs: Opener) -> None:
    driver = bugs(CHECK="strict")
    target = floats(driver, np.zeros(64, np.float32))
    with refused("CUDA_ERROR_LAUNCH_FAILED", "kernel uninitialized"):
        driver.run("uninitialized", target)
    assert "read of uninitialized shared memory" in driver.report()
    assert driver.source_line().startswith("ld.shared")


def test_a_kernel_that_never_ends(bugs: Opener) -> None:
    driver = bugs(LAUNCH_SECONDS="1")
    flag = floats(driver, np.zeros(1, np.float32))
    with refused("CUDA_ERROR_LAUNCH_TIMEOUT", "kernel endless_loop"):
        driver.run("endless_loop", flag, flag, block=(1, 1, 1))
    assert "endless loop?" in driver.report()
    lost(driver, "CUDA_ERROR_LAUNCH_TIMEOUT")


def test_a_barrier_that_only_a_part_of_a_warp_comes_to(bugs: Opener) -> None:
    driver = bugs()
    target = floats(driver, np.zeros(64, np.float32))
    with refused("CUDA_ERROR_LAUNCH_FAILED", "kernel divergent_barrier"):
        driver.run("divergent_barrier", target)
    assert "divergent barrier" in driver.report()


def test_threads_that_wait_for_ever(bugs: Opener) -> None:
    driver = bugs()
    target = floats(driver, np.zeros(64, np.float32))
    with refused("CUDA_ERROR_LAUNCH_TIMEOUT", "kernel deadlock"):
        driver.run("deadlock", target, block=(32, 1, 1))
    assert "deadlock" in driver.report()


def test_a_trap(bugs: Opener) -> None:
    driver = bugs()
    target = floats(driver, np.zeros(64, np.float32))
    with refused("CUDA_ERROR_LAUNCH_FAILED", "thread (5, 0, 0) trapped"):
        driver.run("stops", target)
    assert driver.source_line() == "trap;"


def test_a_constant_is_not_written_by_kernels(bugs: Opener) -> None:
    driver = bugs()
    target = floats(driver, np.zeros(4, np.float32))
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS", "kernel writes_constant"):
        driver.run("writes_constant", target, block=(1, 1, 1))
    assert "variable factors" in driver.report()


def test_without_checks_the_page_still_tells(bugs: Opener) -> None:
    driver = bugs(CHECK="0")
    target = floats(driver, np.zeros(64, np.float32))
    far = ctypes.c_uint64(target.value + (1 << 30))
    with refused("CUDA_ERROR_ILLEGAL_ADDRESS", hex(far.value)):
        driver.run("copy", target, far, block=(1, 1, 1))


def test_settings_that_mean_nothing(bugs: Opener, tmp_path: Path) -> None:
    for name, value in (("CHECK", "2"), ("SEED", "x"), ("REPORT", str(tmp_path))):
        with refused("CUDA_ERROR_UNKNOWN", f"UHAL_SIM_{name}={value}: expected"):
            bugs(**{name: value})


IN_ANOTHER_PROCESS = """
import ctypes, os, sys
import numpy as np
from pathlib import Path
from tests.simulated.test_ptx_faults import Bugs, floats
driver = Bugs(Path(sys.argv[1]), Path(sys.argv[1]) / "report")
if sys.argv[2] == "prints":
    driver.launch(driver.function(driver.module, "prints"), ctypes.c_uint32(2), grid=(2, 1, 1),
                  block=(2, 1, 1))
    os.write(1, b"launched\\n")
    driver.call.cuCtxSynchronize()
    os.write(1, b"synchronized\\n")
else:
    x = np.array([1, 9], np.uint32).view(np.float32)
    driver.run("asserts", floats(driver, x), floats(driver, x), block=(2, 1, 1))
"""


def in_another_process(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(folder), what],
        cwd=PLANTED.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_printed_comes_with_the_wait(tmp_path: Path) -> None:
    done = in_another_process(tmp_path / "1", "prints")
    first, *lines, last = done.stdout.splitlines()
    assert (first, last) == ("launched", "synchronized"), done
    expected = [
        f"thread {thread} of block {block}: text {1.5 * count:.2f} c %"
        for block in range(2)
        for thread in range(2)
        for count in range(2)
    ]
    assert sorted(lines) == sorted(expected)


def test_a_failed_assertion(tmp_path: Path) -> None:
    done = in_another_process(tmp_path / "1", "asserts")
    assert "CUDA_ERROR_ASSERT" in done.stderr
    assert "thread (1, 0, 0): bugs.cu:" in done.stderr
    assert "assertion `x[threadIdx.x] < 7` failed" in done.stderr
