"""The host runtime: a small CUDA driver on CPU threads, called as any driver is."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.children import run_child
from tests.host_kernels import build, has_compiler
from tests.requirements import needed
from tests.unit.host_driver import HEADER, HOST_FUNCTION, ROOT, Driver, HostFailure
from uhal import Api

pytestmark = needed(has_compiler(), "kernels are compiled here")

KERNELS = """
#include <uhal/kernel.h>
KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) { y[i] = a * x[i] + y[i]; }
}
KERNEL(affine, (u64 n, u32 factor, u32 addend, u32 *x)) {
    GRID_STRIDE(i, n) { x[i] = x[i] * factor + addend; }
}
KERNEL(empty, ()) {}
KERNEL(coordinates, (u32 *out)) {
    THREADS(t) {
        const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        const u32 at = block * blockDim.x * blockDim.y * blockDim.z + t;
        out[at] = block * 1000 + THREAD_X(t) + 10 * THREAD_Y(t) + 100 * THREAD_Z(t);
    }
}
KERNEL_BOUNDED(row_sums, 256, (u32 columns, const f32 *x, f32 *out)) {
    DYNAMIC_SHARED(f32, partial);
    REGISTER(f32, sum, 256);
    THREADS(t) { sum(t) = 0; }
    for (u32 first = 0; first < columns; first += blockDim.x) {
        THREADS(t) {
            if (first + t < columns) sum(t) += x[u64(blockIdx.x) * columns + first + t];
        }
    }
    THREADS(t) { partial[t] = sum(t); }
    BARRIER();
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        THREADS(t) { if (t < half) partial[t] += partial[t + half]; }
        BARRIER();
    }
    THREADS(t) { if (t == 0) out[blockIdx.x] = partial[0]; }
}
KERNEL(where_is_shared, (u64 *out)) {
    DYNAMIC_SHARED(u8, scratch);
    for (u32 i = 0; i < this->dynamic_shared_bytes; ++i) scratch[i] = u8(i);
    out[blockIdx.x] = u64(reinterpret_cast<uintptr_t>(scratch));
}
struct Pair { u16 first; f64 second; u8 third; };
KERNEL(aggregate, (u8 before, Pair pair, i16 after, f64 *out)) {
    out[0] = before + pair.first + pair.second + pair.third + after;
}
KERNEL(count_blocks, (u32 spins, u32 *out)) {
    volatile u32 work = 0;
    for (u32 i = 0; i < spins; ++i) work = work + 1;
    out[blockIdx.x] += 1;
}
DEVICE_GLOBAL(u32, counter, 4);
KERNEL(count, ()) { counter[0] += 1; }
KERNEL(throws, (u32 code)) { if (code != 0) throw std::runtime_error("no such row"); }
"""


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


@pytest.fixture(scope="module")
def image() -> bytes:
    return build(KERNELS)


@pytest.fixture
def module(driver: Driver, image: bytes) -> Iterator[ctypes.c_void_p]:
    driver.use()
    before = driver.live()
    with driver.module(image) as loaded:
        yield loaded
    assert driver.live() == before


def u32(value: int) -> ctypes.c_uint32:
    return ctypes.c_uint32(value)


def u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def run_script(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, where a device may be lost."""
    prelude = (
        "import ctypes, os, sys, threading\n"
        "import numpy as np\n"
        "from tests.unit.host_driver import *\n"
        "from tests.host_kernels import build\n"
        "from tests.unit.test_host_runtime import KERNELS, u32, u64\n"
        "driver = Driver()\n"
        "module = driver.load(build(KERNELS))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", prelude + script],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


# -- launches --------------------------------------------------------------------------------------


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
        for _ in range(3):  # queued the first time, inline later
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
    """Affine maps do not commute, so any other order shows; queued and inline ones mix."""
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
        "from tests.unit.test_host_runtime import keep_order\n"
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


# -- streams and events ----------------------------------------------------------------------------


def test_query_and_synchronize(driver: Driver) -> None:
    query = driver.api.unchecked("uhalHostStreamQuery")
    not_ready = HEADER.constants["UHAL_HOST_ERROR_NOT_READY"]
    with driver.stream() as stream:
        assert query(stream) == 0
        with driver.held(stream):
            assert query(stream) == not_ready
        assert query(stream) == 0


def test_a_full_queue_makes_the_caller_wait(driver: Driver, module: ctypes.c_void_p) -> None:
    affine = driver.function(module, "affine")
    depth, extra, n = 1024, 300, 4
    queued = 0
    with driver.stream() as stream, driver.memory(4 * n) as x:
        driver.write(x, np.zeros(n, np.uint32), stream)

        def work() -> None:
            nonlocal queued
            for _ in range(depth + extra):
                values = (u64(n), u32(1), u32(1), u64(x))
                driver.launch(affine, (1, 1, 1), (1, 1, 1), stream, *values)
                queued += 1

        worker = threading.Thread(target=work)
        with driver.held(stream):
            worker.start()
            worker.join(0.5)
            assert worker.is_alive()
            # The held function is a task of the queue itself.
            assert queued == depth - 1
        worker.join()
        got = np.empty(n, np.uint32)
        driver.read(got, x, stream)
    assert (got == depth + extra).all()


def test_host_functions_run_in_order_and_off_the_calling_thread(driver: Driver) -> None:
    seen: list[tuple[int, int]] = []

    def note(number: int | None) -> None:
        seen.append((number or 0, threading.get_ident()))

    callback = HOST_FUNCTION(note)
    with driver.stream() as stream:
        for number in range(200):
            driver.api.uhalHostLaunchHostFunc(stream, callback, number)
        driver.api.uhalHostStreamSynchronize(stream)
    assert [number for number, _ in seen] == list(range(200))
    assert threading.get_ident() not in {thread for _, thread in seen}


def test_destroying_a_stream_leaves_its_work(driver: Driver) -> None:
    gate = threading.Event()
    done = threading.Event()
    wait = HOST_FUNCTION(lambda _: gate.wait(60))
    finish = HOST_FUNCTION(lambda _: done.set())
    with driver.stream() as stream:
        driver.api.uhalHostLaunchHostFunc(stream, wait, None)
        driver.api.uhalHostLaunchHostFunc(stream, finish, None)
    assert not done.is_set()
    gate.set()
    assert done.wait(60)


def test_many_streams_wait_for_each_other(driver: Driver, module: ctypes.c_void_p) -> None:
    """Each of 300 streams waits for the one after it, the last is held: far more than runners."""
    affine = driver.function(module, "affine")
    count = 300
    api = driver.api
    streams, events = [], []
    for _ in range(count):
        stream, event = ctypes.c_void_p(), ctypes.c_void_p()
        api.uhalHostStreamCreateWithPriority(stream, 0, 0)
        api.uhalHostEventCreate(event, 2)
        streams.append(stream)
        events.append(event)
    with driver.memory(4) as x:
        driver.write(x, np.zeros(1, np.uint32), streams[0])
        api.uhalHostStreamSynchronize(streams[0])
        expected = 0
        with driver.held(streams[-1]):
            for index in reversed(range(count)):
                if index + 1 < count:
                    api.uhalHostStreamWaitEvent(streams[index], events[index + 1], 0)
                values = (u64(1), u32(3), u32(index), u64(x))
                driver.launch(affine, (1, 1, 1), (1, 1, 1), streams[index], *values)
                api.uhalHostEventRecord(events[index], streams[index])
                expected = (expected * 3 + index) % (1 << 32)
            # Destroyed while others still wait for them.
            for event in events:
                api.uhalHostEventDestroy(event)
        got = np.empty(1, np.uint32)
        driver.read(got, x, streams[0])
    for stream in streams:
        api.uhalHostStreamDestroy(stream)
    assert got[0] == expected


def test_blocked_host_functions_do_not_stop_other_streams(driver: Driver) -> None:
    """More host functions block than there are runners, on what a later stream does."""
    gate = threading.Event()
    wait = HOST_FUNCTION(lambda _: gate.wait(60))
    open_gate = HOST_FUNCTION(lambda _: gate.set())
    api = driver.api
    streams = []
    for _ in range(12):
        stream = ctypes.c_void_p()
        api.uhalHostStreamCreateWithPriority(stream, 0, 0)
        streams.append(stream)
        api.uhalHostLaunchHostFunc(stream, wait, None)
    api.uhalHostLaunchHostFunc(streams[-1], wait, None)
    with driver.stream() as last:
        api.uhalHostLaunchHostFunc(last, open_gate, None)
        api.uhalHostStreamSynchronize(last)
    for stream in streams:
        api.uhalHostStreamSynchronize(stream)
        api.uhalHostStreamDestroy(stream)
    assert gate.is_set()


def test_priorities_are_accepted_and_clamped(driver: Driver) -> None:
    for priority in (-100, -1, 0, 5):
        with driver.stream(priority) as stream:
            driver.api.uhalHostStreamSynchronize(stream)


def test_event_life(driver: Driver, module: ctypes.c_void_p) -> None:
    api = driver.api
    query = api.unchecked("uhalHostEventQuery")
    not_ready = HEADER.constants["UHAL_HOST_ERROR_NOT_READY"]
    elapsed = ctypes.c_float(-1)
    with driver.stream() as stream, driver.event() as start, driver.event() as end:
        # Never recorded counts as complete, but has no time.
        assert query(start) == 0
        api.uhalHostEventSynchronize(start)
        api.uhalHostStreamWaitEvent(stream, start, 0)
        with pytest.raises(HostFailure, match="INVALID_HANDLE"):
            api.uhalHostEventElapsedTime(elapsed, start, end)
        api.uhalHostEventRecord(start, stream)
        assert query(start) == 0
        with driver.held(stream):
            api.uhalHostEventRecord(end, stream)
            assert query(end) == not_ready
            with pytest.raises(HostFailure, match="NOT_READY"):
                api.uhalHostEventElapsedTime(elapsed, start, end)
            # Recorded again while the first record is pending: the last one counts.
            api.uhalHostEventRecord(end, stream)
        api.uhalHostEventSynchronize(end)
        assert query(end) == 0
        api.uhalHostEventElapsedTime(elapsed, start, end)
        assert elapsed.value > 0
        forward = elapsed.value
        api.uhalHostEventElapsedTime(elapsed, end, start)
        assert elapsed.value == -forward
    with driver.stream() as stream, driver.event(2) as untimed:
        api.uhalHostEventRecord(untimed, stream)
        with pytest.raises(HostFailure, match="INVALID_HANDLE"):
            api.uhalHostEventElapsedTime(elapsed, untimed, untimed)
    with pytest.raises(HostFailure, match="NOT_SUPPORTED"), driver.event(6):
        pass


def test_a_wait_is_for_the_record_it_saw(driver: Driver) -> None:
    api = driver.api
    with (
        driver.stream() as first,
        driver.stream() as second,
        driver.stream() as third,
        driver.event() as event,
        driver.held(third),
    ):
        with driver.held(first):
            api.uhalHostEventRecord(event, first)
            api.uhalHostStreamWaitEvent(second, event, 0)
            api.uhalHostEventRecord(event, third)
        # The second stream waits for the first only.
        api.uhalHostStreamSynchronize(second)
        assert api.unchecked("uhalHostEventQuery")(event) != 0


def test_a_record_that_waits_for_room_is_not_seen_yet(
    driver: Driver, module: ctypes.c_void_p
) -> None:
    """Were it, a wait could get into the queue before the record it is for."""
    api = driver.api
    empty = driver.function(module, "empty")
    with driver.stream() as full, driver.stream() as other, driver.event() as event:
        recorder = threading.Thread(target=api.uhalHostEventRecord, args=(event, full))
        with driver.held(full):
            for _ in range(1023):
                driver.launch(empty, (1, 1, 1), (1, 1, 1), full)
            recorder.start()
            recorder.join(0.2)
            assert recorder.is_alive()
            api.uhalHostStreamWaitEvent(other, event, 0)
            api.uhalHostStreamSynchronize(other)
        recorder.join()


# -- memory ----------------------------------------------------------------------------------------


def test_allocations(driver: Driver) -> None:
    for nbytes in (1, 255, 257, 1 << 20, 9 << 20):
        with driver.memory(nbytes) as address:
            assert address % 256 == 0
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.api.uhalHostMemGetInfo(free, total)
    assert 0 < free.value <= total.value
    for nbytes, name in (
        (0, "INVALID_VALUE"),
        (total.value * 2, "OUT_OF_MEMORY"),
        (1 << 62, "OUT_OF_MEMORY"),
        ((1 << 64) - 1, "OUT_OF_MEMORY"),
    ):
        with pytest.raises(HostFailure, match=name), driver.memory(nbytes):
            pass
    with pytest.raises(HostFailure, match="INVALID_VALUE"):
        driver.api.uhalHostMemFree(12345)


def test_untouched_memory_counts(driver: Driver) -> None:
    """Allocations that would each fit are refused when together they do not."""
    total, free = ctypes.c_size_t(), ctypes.c_size_t()
    driver.api.uhalHostMemGetInfo(free, total)
    taken: list[int] = []
    address = ctypes.c_uint64()
    try:
        with pytest.raises(HostFailure, match="OUT_OF_MEMORY"):
            for _ in range(100):
                driver.api.uhalHostMemAlloc(address, total.value // 10)
                taken.append(address.value)
        assert len(taken) <= 10
    finally:
        for each in taken:
            driver.api.uhalHostMemFree(each)


def test_pageable_sources_may_be_reused_at_once(driver: Driver) -> None:
    for nbytes in (1, 200, 64 << 10):
        with driver.stream() as stream, driver.memory(nbytes) as address:
            source = np.full(nbytes, 1, np.uint8)
            with driver.held(stream):
                driver.write(address, source, stream)
                source[:] = 2
            got = np.zeros(nbytes, np.uint8)
            driver.read(got, address, stream)
            assert (got == 1).all()


def test_a_large_pageable_copy_waits_for_the_stream(driver: Driver) -> None:
    nbytes = (64 << 10) + 1
    with driver.stream() as stream, driver.memory(nbytes) as address:
        source = np.full(nbytes, 1, np.uint8)
        worker = threading.Thread(target=driver.write, args=(address, source, stream))
        with driver.held(stream):
            worker.start()
            worker.join(0.2)
            assert worker.is_alive()
        worker.join()
        source[:] = 2
        got = np.zeros(nbytes, np.uint8)
        driver.read(got, address, stream)
        assert (got == 1).all()


def test_pinned_copies_are_queued(driver: Driver) -> None:
    nbytes = 1000
    with (
        driver.stream() as stream,
        driver.memory(nbytes) as address,
        driver.pinned(nbytes) as source,
        driver.pinned(nbytes) as target,
    ):
        source[:] = 1
        target[:] = 0
        with driver.held(stream):
            driver.write(address, source, stream)
            driver.read(target, address, stream)
            source[:] = 2  # read at execution
            assert not target.any()
        assert (target == 2).all()


def test_registered_ranges(driver: Driver) -> None:
    api = driver.api
    array = np.zeros(10_000, np.uint8)
    start = array.ctypes.data
    pinned = ctypes.c_int()

    def is_pinned(offset: int, nbytes: int) -> bool:
        api.uhalHostMemHostIsPinned(pinned, start + offset, nbytes)
        return bool(pinned.value)

    assert not is_pinned(0, 1)
    api.uhalHostMemHostRegister(start + 100, 1000, 0)
    assert is_pinned(100, 1000) and is_pinned(1099, 1)
    assert not is_pinned(99, 2) and not is_pinned(100, 1001) and not is_pinned(1100, 1)
    with pytest.raises(HostFailure, match="ALREADY_REGISTERED"):
        api.uhalHostMemHostRegister(start, 101, 0)
    with pytest.raises(HostFailure, match="ALREADY_REGISTERED"):
        api.uhalHostMemHostRegister(start + 1099, 5, 0)
    api.uhalHostMemHostUnregister(start + 100)
    with pytest.raises(HostFailure, match="NOT_REGISTERED"):
        api.uhalHostMemHostUnregister(start + 100)
    assert not is_pinned(100, 1)


def test_device_copies_may_overlap(driver: Driver, seed: int) -> None:
    n = 100_000
    data = np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)
    with driver.stream() as stream, driver.memory(n) as address:
        for source, target, nbytes in ((0, 7, n - 7), (7, 0, n - 7), (0, 0, n), (5, 90_000, 10)):
            driver.write(address, data, stream)
            driver.api.uhalHostMemcpyDtoDAsync(address + target, address + source, nbytes, stream)
            got = np.empty(n, np.uint8)
            driver.read(got, address, stream)
            expected = data.copy()
            expected[target : target + nbytes] = data[source : source + nbytes]
            np.testing.assert_array_equal(got, expected)


def test_memsets(driver: Driver) -> None:
    # One element more than is set, of the widest type.
    with driver.stream() as stream, driver.memory(4 * 100_001) as address:
        for dtype, call in (
            (np.uint8, driver.api.uhalHostMemsetD8Async),
            (np.uint16, driver.api.uhalHostMemsetD16Async),
            (np.uint32, driver.api.uhalHostMemsetD32Async),
        ):
            for count in (0, 1, 3, 17, 100_000):
                value = int(np.iinfo(dtype).max // 3 + 5)
                got = np.zeros(count + 1, dtype)
                driver.write(address, got, stream)
                call(address, value, count, stream)
                driver.read(got, address, stream)
                assert (got[:count] == value).all() and got[count] == 0


def test_stream_ordered_memory(driver: Driver) -> None:
    before = driver.live()["allocation"]
    address = ctypes.c_uint64()
    with driver.stream() as stream:
        driver.api.uhalHostMemAllocAsync(address, 4096, stream)
        with driver.held(stream):
            driver.api.uhalHostMemsetD8Async(address.value, 1, 4096, stream)
            driver.api.uhalHostMemFreeAsync(address.value, stream)
            assert driver.live()["allocation"] == before + 1
    assert driver.live()["allocation"] == before


# -- modules ---------------------------------------------------------------------------------------


def test_modules_do_not_know_each_other(driver: Driver, image: bytes) -> None:
    """The same bytes twice are two modules, each with its own variables."""
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    counts = []
    with driver.module(image) as first, driver.module(image) as second, driver.stream() as stream:
        for module, times in ((first, 3), (second, 5)):
            for _ in range(times):
                driver.launch(driver.function(module, "count"), (1, 1, 1), (1, 1, 1), stream)
        for module in (first, second):
            driver.api.uhalHostModuleGetGlobal(address, size, module, b"counter")
            got = np.empty(4, np.uint32)
            assert size.value == got.nbytes
            driver.read(got, address.value, stream)
            counts.append(got[0])
        with pytest.raises(HostFailure, match="NOT_FOUND"):
            driver.api.uhalHostModuleGetGlobal(address, size, first, b"nothing")
        with pytest.raises(HostFailure, match="NOT_FOUND"):
            driver.function(first, "nothing")
    assert counts == [3, 5]


def test_changed_bytes_are_loaded_afresh(driver: Driver) -> None:
    source = "#include <uhal/kernel.h>\nKERNEL(answer, (u32 *out)) {{ out[0] = {}; }}\n"
    images = [build(source.format(answer)) for answer in (41, 42)]
    with driver.stream() as stream, driver.memory(4) as out:
        for number in range(60):
            with driver.module(images[number % 2]) as module:
                answer = driver.function(module, "answer")
                driver.launch(answer, (1, 1, 1), (1, 1, 1), stream, u64(out))
                got = np.empty(1, np.uint32)
                driver.read(got, out, stream)
            assert got[0] == 41 + number % 2


def test_a_module_outlives_its_handle_while_launches_wait(driver: Driver, image: bytes) -> None:
    module = driver.load(image)
    affine = driver.function(module, "affine")
    with driver.stream() as stream, driver.memory(4) as x:
        driver.write(x, np.zeros(1, np.uint32), stream)
        with driver.held(stream):
            for _ in range(20):
                values = (u64(1), u32(1), u32(1), u64(x))
                driver.launch(affine, (1, 1, 1), (1, 1, 1), stream, *values)
            driver.api.uhalHostModuleUnload(module)
        got = np.empty(1, np.uint32)
        driver.read(got, x, stream)
    assert got[0] == 20


def test_images_that_are_none(driver: Driver) -> None:
    before = driver.live()
    other = 'extern "C" __attribute__((visibility("default"))) int nothing() { return 1; }'
    twice = build("#include <uhal/kernel.h>\nKERNEL(again, ()) {}\n")
    old = twice.replace(
        b"UHModule" + (1).to_bytes(4, "little"), b"UHModule" + (7).to_bytes(4, "little")
    )
    newer = twice.replace(
        b"UHModule" + (1).to_bytes(4, "little") + (1).to_bytes(4, "little"),
        b"UHModule" + (1).to_bytes(4, "little") + (9).to_bytes(4, "little"),
    )
    cases = [
        (b"not a library", "SHARED_OBJECT_INIT_FAILED"),
        (build(other), "INVALID_IMAGE"),
        (old, "INVALID_IMAGE"),
    ]
    if newer != twice:
        cases.append((newer, "NO_BINARY_FOR_CPU"))
    for image, name in cases:
        with pytest.raises(HostFailure, match=name):
            driver.load(image)
        assert driver.api.uhalHostLastErrorText()
    assert driver.live() == before


def test_descriptors(driver: Driver, module: ctypes.c_void_p) -> None:
    info = HEADER.ctype("uhalHostKernelInfo")()
    count = ctypes.c_uint()
    driver.api.uhalHostModuleGetKernelCount(count, module)
    found = {}
    for index in range(count.value):
        driver.api.uhalHostModuleGetKernel(info, index, module)
        parameters = [
            (each.size, each.alignment, each.flags, chr(each.dtype) if each.dtype else "")
            for each in info.parameters[: info.parameter_count]
        ]
        found[info.entry.decode()] = (info.parameter_text.decode(), parameters)
    assert list(found)[:2] == ["saxpy", "affine"]
    assert found["saxpy"] == (
        "(u64 n, f32 a, const f32 *x, f32 *y)",
        [(8, 8, 0, "Q"), (4, 4, 0, "f"), (8, 8, 3, "f"), (8, 8, 1, "f")],
    )
    assert found["aggregate"][1][1] == (24, 8, 0, "")
    with pytest.raises(HostFailure, match="INVALID_VALUE"):
        driver.api.uhalHostModuleGetKernel(info, count.value, module)


# -- faults, processes -----------------------------------------------------------------------------


def test_a_throwing_kernel_loses_its_device_only() -> None:
    done = run_script(
        """
stream = ctypes.c_void_p()
driver.api.uhalHostStreamCreateWithPriority(stream, 0, 0)
event = ctypes.c_void_p()
driver.api.uhalHostEventCreate(event, 0)
throws = driver.function(module, "throws")
address = ctypes.c_uint64()
driver.api.uhalHostMemAlloc(address, 64)
for code in (0, 0, int(os.environ["CODE"])):
    driver.launch(throws, (8, 1, 1), (1, 1, 1), stream, u32(code))
    if code == 0:
        driver.api.uhalHostStreamSynchronize(stream)
ran = []
finish = HOST_FUNCTION(lambda _: ran.append(1))
def answer(call, *arguments):
    try:
        getattr(driver.api, call)(*arguments)
    except HostFailure as error:
        return error.code
    return 0
assert answer("uhalHostStreamSynchronize", stream) == 719
assert b"throws: no such row" in driver.api.uhalHostLastErrorText()
assert answer("uhalHostStreamSynchronize", stream) == 719
assert answer("uhalHostStreamQuery", stream) == 719
assert answer("uhalHostMemAlloc", address, 64) == 719
assert answer("uhalHostEventRecord", event, stream) == 719
assert answer("uhalHostCtxSynchronize") == 719
assert answer("uhalHostMemFree", address.value) == 0
assert answer("uhalHostEventDestroy", event) == 0
assert answer("uhalHostStreamDestroy", stream) == 0
driver.use(1)
with driver.stream() as stream, driver.memory(4) as x:
    driver.write(x, np.zeros(1, np.uint32), stream)
    affine = driver.function(module, "affine")
    driver.launch(affine, (1, 1, 1), (1, 1, 1), stream, u64(1), u32(1), u32(5), u64(x))
    got = np.empty(1, np.uint32)
    driver.read(got, x, stream)
    assert got[0] == 5
""",
        UHAL_HOST_DEVICES="2",
        CODE="1",
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_child_starts_afresh() -> None:
    done = run_script(
        """
affine = driver.function(module, "affine")
def work():
    with driver.module(build(KERNELS)) as fresh, driver.stream() as stream, driver.memory(400) as x:
        driver.write(x, np.zeros(100, np.uint32), stream)
        function = driver.function(fresh, "affine")
        for _ in range(50):
            values = (u64(100), u32(1), u32(1), u64(x))
            driver.launch(function, (64, 1, 1), (1, 1, 1), stream, *values)
        got = np.empty(100, np.uint32)
        driver.read(got, x, stream)
        assert (got == 50).all()
work()
with driver.stream() as busy, driver.held(busy):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert driver.api.unchecked("uhalHostMemAlloc")(ctypes.c_uint64(), 8) == 201
            driver.use()
            assert not any(driver.live().values())
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
work()
"""
    )
    assert done.returncode == 0, done.stderr


def test_the_process_may_end_with_work_pending() -> None:
    done = run_script(
        """
stream = ctypes.c_void_p()
driver.api.uhalHostStreamCreateWithPriority(stream, 0, 0)
spin = driver.function(module, "count_blocks")
address = ctypes.c_uint64()
driver.api.uhalHostMemAlloc(address, 4 * 4096)
for _ in range(100):
    driver.launch(spin, (4096, 1, 1), (1, 1, 1), stream, u32(10_000_000), u64(address.value))
print("end")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_thread_counts(threads: str) -> None:
    done = run_script(
        """
properties = HEADER.ctype("uhalHostDeviceProperties")()
driver.api.uhalHostDeviceGetProperties(properties, 0)
assert properties.processors == int(os.environ["UHAL_HOST_THREADS"])
spin = driver.function(module, "count_blocks")
with (
    driver.stream() as first, driver.stream() as second,
    driver.memory(4000) as x, driver.memory(4000) as y,
):
    for stream, address in ((first, x), (second, y)):
        driver.write(address, np.zeros(1000, np.uint32), stream)
    for _ in range(20):
        for stream, address in ((first, x), (second, y)):
            driver.launch(spin, (1000, 1, 1), (1, 1, 1), stream, u32(500), u64(address))
    for stream, address in ((first, x), (second, y)):
        got = np.empty(1000, np.uint32)
        driver.read(got, address, stream)
        assert (got == 20).all(), got
""",
        UHAL_HOST_THREADS=threads,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variable", ["UHAL_HOST_THREADS", "UHAL_HOST_DEVICES"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "3.5", "99999999999999999999"])
def test_a_bad_environment_is_said(variable: str, value: str) -> None:
    done = run_script("", **{variable: value})
    assert done.returncode != 0
    assert "INVALID_VALUE" in done.stderr
    # The user is told what the variable may be, and not to build anything.
    told = run_child(open_the_host, environment={variable: value}).stderr
    assert f"{variable}: expected a number from 1 to " in told
    assert f"got '{value}'; unset it for one " in told
    assert "build" not in told.partition("NoDeviceError")[2]


def open_the_host() -> None:
    Api.quick_init(backend="host")


def test_leaks_nothing_in_random_use(driver: Driver, image: bytes, seed: int) -> None:
    """Objects in random orders, some destroyed with work pending: the counts come back to zero."""
    rng = random.Random(seed)
    before = driver.live()
    for _ in range(30):
        module = driver.load(image)
        affine = driver.function(module, "affine")
        closers = [lambda module=module: driver.api.uhalHostModuleUnload(module)]
        streams = []
        address = ctypes.c_uint64()
        driver.api.uhalHostMemAlloc(address, 4096)
        for _ in range(rng.randrange(1, 4)):
            stream = ctypes.c_void_p()
            driver.api.uhalHostStreamCreateWithPriority(stream, 0, rng.choice((0, -1)))
            streams.append(stream)
            closers.append(lambda stream=stream: driver.api.uhalHostStreamDestroy(stream))
        for _ in range(rng.randrange(3)):
            event = ctypes.c_void_p()
            driver.api.uhalHostEventCreate(event, 0)
            driver.api.uhalHostEventRecord(event, rng.choice(streams))
            driver.api.uhalHostStreamWaitEvent(rng.choice(streams), event, 0)
            closers.append(lambda event=event: driver.api.uhalHostEventDestroy(event))
        for stream in streams:
            values = (u64(1024), u32(1), u32(1), u64(address.value))
            driver.launch(affine, (16, 1, 1), (64, 1, 1), stream, *values)
        rng.shuffle(closers)
        for close in closers:
            close()
        driver.api.uhalHostMemFree(address.value)
    assert driver.live() == before


def test_the_library_needs_no_path(tmp_path: Path) -> None:
    """Images are loaded from memory: nothing is left in the temporary folder."""
    done = run_script("assert os.listdir(os.environ['TMPDIR']) == []", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
