"""Devices of the conformance suite, and the tests that a real device skips."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from build_support import hip_compiler
from tests.conformance.rows import ROWS, DeviceRow, prepared_rows, real_device, rows_with
from uhal_conformance.images import IMAGES, KERNELS


def skipped(row: DeviceRow, test: str) -> bool:
    return any(fnmatch.fnmatch(test, pattern) for pattern in row.skipped)


def names(*devices: str) -> list[str]:
    return [row.name for row in rows_with(devices)]


def test_a_real_device_takes_the_place_of_the_simulated_one() -> None:
    assert names() == [row.name for row in ROWS]
    others = [name for name in names() if name != "rocm-sim"]
    assert len(others) == len(ROWS) - 1
    assert names("rocm:1", "rocm") == [*others, "rocm:1", "rocm"]
    with pytest.raises(ValueError, match="--device npu: no row"):
        names("npu")


@pytest.mark.parametrize("named", ["webgpu", "webgpu:0", "webgpu:1", "opencl:0", "cuda:0"])
def test_a_named_device_is_not_prepared(named: str) -> None:
    backend = named.partition(":")[0]
    left = {row.name for row in ROWS if row.prepare is not None and row.backend != backend}
    assert set(prepared_rows([named])) == left and "host" not in left


@pytest.mark.parametrize("name", ["opencl:0", "webgpu:0"])
def test_without_clang_the_shipped_images_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(hip_compiler, "toolchain", lambda: None)
    basic = KERNELS / "basic.cu"
    assert real_device(name).compile(basic, tmp_path) == IMAGES / "opencl" / "basic.spv"


@pytest.mark.parametrize("backend", ["cuda", "rocm", "tops"])
def test_gaps_of_schedules_are_the_simulators(backend: str) -> None:
    real = real_device(f"{backend}:1")
    assert (real.name, real.ordinal, real.environment, real.prepare) == (
        *(f"{backend}:1", 1),
        *({}, None),
    )
    (simulated,) = (row for row in ROWS if row.backend == backend)
    for test in (
        "test_callbacks_run_in_order_when_the_stream_gets_there",
        "test_what_a_callback_held_is_let_go",
    ):
        assert skipped(simulated, f"{test}[{simulated.name}]")
        assert not skipped(real, f"{test}[{backend}:1]")
    # A test that the backend itself cannot pass is still skipped.
    assert skipped(real, f"test_numpy_reads_device_memory_in_place[{backend}:1]")


def test_a_gap_of_a_backend_names_no_row() -> None:
    test = "test_what_is_no_image_is_refused[{}-wrong class]"
    assert all(skipped(real_device(name), test.format(name)) for name in ("cuda", "cuda:1"))
    assert not skipped(real_device("rocm"), test.format("rocm"))
    # Two cases of this test fail only on simulated fences, so a real device runs it.
    held = "test_a_buffer_closed_by_one_thread_while_others_launch_on_it[rocm]"
    assert not skipped(real_device("rocm"), held)
