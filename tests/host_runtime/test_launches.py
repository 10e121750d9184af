"""Launches on the host runtime, a small CUDA-like driver on CPU threads."""

from __future__ import annotations

import ctypes
import os
import random
import threading

import numpy as np
import pytest

from tests.host_kernels import has_compiler
from tests.host_runtime.driver import HOST_FUNCTION, Driver, HostFailure
from tests.host_runtime.kernels import run_script, u32, u64
from tests.requirements import needed

pytestmark = needed(has_compiler(), "kernels are compiled here")


def test_saxpy_is_right_at_any_size_and_grid(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    saxpy = driver.function(module, "saxpy")
    for n in (1, 63, 64, 65, 1000, 4097, 100_003):
        for grid in (1, 3, 64):
            x, y = rng.normal(size=(2, n)).astype(np.float32)
            a = np.float32(rng.normal())
            with (
                driver.stream() as stream,
                driver.memory(4 * n) as at_x,
                driver.memory(4 * n) as at_y,
            ):
                driver.write(at_x, x, stream)
                driver.write(at_y, y, stream)
                got = np.full(n, np.nan, np.float32)
                values = (u64(n), ctypes.c_float(a), u64(at_x), u64(at_y))
                driver.launch(saxpy, (grid, 1, 1), (256, 1, 1), stream, *values)
                driver.read(got, at_y, stream)
            np.testing.assert_allclose(got, a * x.astype(np.float64) + y, rtol=1e-6, atol=1e-6)


def test_every_block_and_work_item_runs_once(driver: Driver, module: ctypes.c_void_p) -> None:
    grid, block = (3, 4, 2), (4, 3, 5)
    items = 3 * 4 * 2 * 4 * 3 * 5
    with driver.stream() as stream, driver.memory(4 * items) as out:
        for _ in range(3):  # the first launch is queued, later launches run inline
            got = np.zeros(items, np.uint32)
            driver.write(out, got, stream)
            coordinates = driver.function(module, "coordinates")
            driver.launch(coordinates, grid, block, stream, u64(out))
            driver.read(got, out, stream)
            t = np.arange(items) % 60
            expected = np.arange(items) // 60 * 1000
            expected += t % 4 + 10 * (t // 4 % 3) + 100 * (t // 12)
            np.testing.assert_array_equal(got, expected)


def test_parameters_are_copied_at_the_call(driver: Driver, module: ctypes.c_void_p) -> None:
    n = 256
    affine = driver.function(module, "affine")
    with driver.stream() as stream, driver.memory(4 * n) as x:
        driver.write(x, np.zeros(n, np.uint32), stream)
        addend = u32(7)
        with driver.held(stream):
            driver.launch(affine, (1, 1, 1), (64, 1, 1), stream, u64(n), u32(1), addend, u64(x))
            addend.value = 1_000_000
        got = np.empty(n, np.uint32)
        driver.read(got, x, stream)
    assert (got == 7).all()


def keep_order(driver: Driver, module: ctypes.c_void_p, seed: int) -> None:
    """Affine maps do not commute: a wrong order of queued and inline launches changes the
    result."""
    rng = random.Random(seed)
    affine = driver.function(module, "affine")
    callback = HOST_FUNCTION(lambda _: None)
    for n in (8, 50_000):
        with driver.stream() as stream, driver.memory(4 * n) as x:
            driver.write(x, np.zeros(n, np.uint32), stream)
            expected = 0
            for _ in range(600):
                factor, addend = rng.randrange(1 << 32), rng.randrange(1 << 32)
                values = (u64(n), u32(factor), u32(addend), u64(x))
                driver.launch(affine, (4, 1, 1), (64, 1, 1), stream, *values)
                expected = (expected * factor + addend) % (1 << 32)
                if rng.random() < 0.05:
                    driver.api.uhalHostLaunchHostFunc(stream, callback, None)
                if rng.random() < 0.02:
                    driver.api.uhalHostStreamSynchronize(stream)
            got = np.empty(n, np.uint32)
            driver.read(got, x, stream)
            np.testing.assert_array_equal(got, expected)


def test_work_runs_in_order(driver: Driver, module: ctypes.c_void_p, seed: int) -> None:
    keep_order(driver, module, seed)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads keep to no processor")
def test_work_runs_in_order_on_a_lone_processor(seed: int) -> None:
    script = (
        "from tests.host_runtime.test_launches import keep_order\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        f"keep_order(driver, module, {seed})\n"
    )
    result = run_script(script)
    assert (result.returncode, result.stderr) == (0, "")


def test_eight_threads_launch_on_shared_and_own_streams(
    driver: Driver, module: ctypes.c_void_p
) -> None:
    affine = driver.function(module, "affine")
    n, rounds, threads = 2000, 300, 8
    problems: list[BaseException] = []
    with driver.stream() as shared, driver.memory(4 * n) as common:
        driver.write(common, np.zeros(n, np.uint32), shared)

        def work() -> None:
            try:
                driver.use()
                with driver.stream() as own, driver.memory(4 * n) as x:
                    driver.write(x, np.zeros(n, np.uint32), own)
                    for number in range(rounds):
                        add = (u64(n), u32(1), u32(number), u64(x))
                        driver.launch(affine, (2, 1, 1), (64, 1, 1), own, *add)
                        one = (u64(n), u32(1), u32(1), u64(common))
                        driver.launch(affine, (2, 1, 1), (64, 1, 1), shared, *one)
                    got = np.empty(n, np.uint32)
                    driver.read(got, x, own)
                    assert (got == rounds * (rounds - 1) // 2).all()
            except BaseException as error:
                problems.append(error)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not problems, problems[0]
        got = np.empty(n, np.uint32)
        driver.read(got, common, shared)
    assert (got == rounds * threads).all()


def test_a_launch_that_turns_out_long_is_finished_elsewhere(
    driver: Driver, module: ctypes.c_void_p
) -> None:
    count_blocks = driver.function(module, "count_blocks")
    blocks = 500
    with driver.stream() as stream, driver.memory(4 * blocks) as out:
        driver.write(out, np.zeros(blocks, np.uint32), stream)
        for spins in (0, 0, 0, 20_000, 0, 20_000):
            values = (u32(spins), u64(out))
            driver.launch(count_blocks, (blocks, 1, 1), (1, 1, 1), stream, *values)
            driver.api.uhalHostStreamSynchronize(stream)
        got = np.empty(blocks, np.uint32)
        driver.read(got, out, stream)
    assert (got == 6).all()


def test_shared_memory_and_barriers(driver: Driver, module: ctypes.c_void_p, seed: int) -> None:
    rows, columns = 40, 1000
    x = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    row_sums = driver.function(module, "row_sums")
    with driver.stream() as stream, driver.memory(x.nbytes) as at_x, driver.memory(4 * rows) as out:
        driver.write(at_x, x, stream)
        got = np.full(rows, np.nan, np.float32)
        values = (u32(columns), u64(at_x), u64(out))
        driver.launch(row_sums, (rows, 1, 1), (256, 1, 1), stream, *values, shared=1024)
        driver.read(got, out, stream)
    np.testing.assert_allclose(got, x.sum(axis=1, dtype=np.float64), rtol=1e-4, atol=1e-4)


def test_dynamic_shared_memory_is_aligned(driver: Driver, module: ctypes.c_void_p) -> None:
    where = driver.function(module, "where_is_shared")
    with driver.stream() as stream, driver.memory(8 * 64) as out:
        for shared in (0, 1, 49152):
            got = np.full(64, 1, np.uint64)
            driver.launch(where, (64, 1, 1), (1, 1, 1), stream, u64(out), shared=shared)
            driver.read(got, out, stream)
            assert not (got % 64).any()
            assert (got != 0).all() == (shared != 0)


def test_aggregates_pass_by_value(driver: Driver, module: ctypes.c_void_p) -> None:
    class Pair(ctypes.Structure):
        _fields_ = (
            ("first", ctypes.c_uint16),
            ("second", ctypes.c_double),
            ("third", ctypes.c_uint8),
        )

    aggregate = driver.function(module, "aggregate")
    with driver.stream() as stream, driver.memory(8) as out:
        values = (ctypes.c_uint8(1), Pair(20, 0.5, 3), ctypes.c_int16(-4), u64(out))
        driver.launch(aggregate, (1, 1, 1), (1, 1, 1), stream, *values)
        got = np.empty(1)
        driver.read(got, out, stream)
    assert got[0] == 20.5


@pytest.mark.parametrize(
    ("grid", "block", "shared", "name"),
    [
        ((0, 1, 1), (1, 1, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (0, 1, 1), 0, "INVALID_VALUE"),
        ((1, 65536, 1), (1, 1, 1), 0, "INVALID_VALUE"),
        ((1, 1, 65536), (1, 1, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1025, 1, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1, 1, 65), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1024, 2, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1 << 31, 2, 1), 0, "INVALID_VALUE"),
        ((1, 1, 1), (1, 1, 1), 49153, "INVALID_VALUE"),
        ((1, 1, 1), (257, 1, 1), 1028, "LAUNCH_OUT_OF_RESOURCES"),
    ],
)
def test_geometry_is_refused_as_a_gpu_would(
    driver: Driver,
    module: ctypes.c_void_p,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    name: str,
) -> None:
    row_sums = driver.function(module, "row_sums")
    values = (u32(0), u64(0), u64(0))
    with driver.stream() as stream, pytest.raises(HostFailure) as caught:
        driver.launch(row_sums, grid, block, stream, *values, shared=shared)
    assert caught.value.name == name
