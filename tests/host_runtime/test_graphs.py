"""Graphs of the host runtime: recording, changes and launches."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest

from tests.host_kernels import has_compiler
from tests.host_runtime.driver import HEADER, HOST_FUNCTION, Driver, HostFailure
from tests.host_runtime.graphs import (
    N,
    affine,
    begin,
    change_affine,
    end,
    instantiate,
    kernels_of,
    numbers,
    recorded,
    status,
)
from tests.host_runtime.kernels import run_script, u32, u64
from tests.requirements import needed
from tests.sampling import rounds

pytestmark = needed(has_compiler(), "kernels are compiled here")


# -- recording -------------------------------------------------------------------------------------


def test_random_work_of_several_streams_is_replayed_in_order(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    for case in range(rounds(20, 500)):
        replay_random_work(driver, module, seed + case)


def replay_random_work(driver: Driver, module: ctypes.c_void_p, seed: int) -> None:
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    api = driver.api
    with ExitStack() as stack:
        streams = [stack.enter_context(driver.stream()) for _ in range(3)]
        buffers = [stack.enter_context(numbers(driver, rng)) for _ in range(3)]
        events = [stack.enter_context(driver.event()) for _ in range(2)]
        model: list[Callable[[], None]] = []

        def follow(later: ctypes.c_void_p, earlier: ctypes.c_void_p) -> None:
            event = choose.choice(events)
            api.uhalHostEventRecord(event, earlier)
            api.uhalHostStreamWaitEvent(later, event, 0)

        def step(stream: ctypes.c_void_p) -> None:
            to, source = choose.sample(buffers, 2)
            kind = choose.randrange(4)
            value = choose.randrange(2**32)
            if kind == 0:
                api.uhalHostMemcpyDtoDAsync(to.address, source.address, 4 * N, stream)
                model.append(lambda: to.expected.__setitem__(slice(None), source.expected))
            elif kind == 1:
                api.uhalHostMemsetD32Async(to.address, value, N, stream)
                model.append(lambda: to.expected.fill(value))
            else:
                affine(driver, module, stream, to, value, value // 3)
                model.append(
                    lambda: to.expected.__setitem__(
                        slice(None), to.expected * np.uint32(value) + np.uint32(value // 3)
                    )
                )

        def record() -> None:
            # The work moves from stream to stream, so that a wrong order changes the result.
            used = [streams[0]]
            for _ in range(choose.randrange(40)):
                if choose.random() < 0.5:
                    used.append(choose.choice(streams))
                    follow(used[-1], used[-2])
                step(used[-1])
            if used[-1] is not streams[0]:
                follow(streams[0], used[-1])

        with recorded(driver, streams[0], record) as (executable, _):
            for buffer in buffers:
                buffer.check()
            assert all(status(driver, stream) == 0 for stream in streams)
            for _ in range(3):
                api.uhalHostGraphLaunch(executable, choose.choice(streams))
                for apply in model:
                    apply()
            for stream in streams:
                api.uhalHostStreamSynchronize(stream)
            for buffer in buffers:
                buffer.check()


def test_host_functions_and_calls_run_in_the_order_of_the_graph(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    """Each item reads the result of the item before, and later work waits."""
    rng = np.random.default_rng(seed)
    api = driver.api
    seen: list[int] = []
    status = ctypes.c_int()
    called = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 8)
    with driver.stream() as stream, numbers(driver, rng) as buffer:
        first = ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_uint32))

        def add(*arguments: int) -> int:
            first[0] += arguments[0]
            return arguments[1]

        note = HOST_FUNCTION(lambda data: seen.append(first[0] + (data or 0)))
        function = called(add)
        call = HEADER.ctype("uhalHostCall")()
        call.function = ctypes.cast(function, ctypes.c_void_p).value
        call.status = ctypes.addressof(status)
        call.arguments[0] = 5

        def record() -> None:
            api.uhalHostMemsetD32Async(buffer.address, 7, N, stream)
            api.uhalHostLaunchCall(stream, call)
            api.uhalHostLaunchHostFunc(stream, note, 1000)
            affine(driver, module, stream, buffer, 3, 1)
            api.uhalHostLaunchHostFunc(stream, note, 2000)

        with recorded(driver, stream, record) as (executable, kernels):
            assert len(kernels) == 1 and seen == []
            for _ in range(3):
                api.uhalHostGraphLaunch(executable, stream)
            api.uhalHostStreamSynchronize(stream)
            assert seen == [1012, 2037] * 3
        # The first result other than 0 stays, and ends the calls with this status.
        call.arguments[:2] = [0, -9]
        for code in (-9, -9):
            api.uhalHostLaunchCall(stream, call)
            api.uhalHostStreamSynchronize(stream)
            assert status.value == code
            call.arguments[:2] = [100, 3]
        assert first[0] == 37
        buffer.expected = np.full(N, 22, "u4")
        buffer.expected[0] = 37
        buffer.check()


def test_a_graph_counts_its_host_functions(driver: Driver, module: ctypes.c_void_p) -> None:
    steps, functions = ctypes.c_size_t(), ctypes.c_size_t()
    note = HOST_FUNCTION(lambda _: None)
    with driver.stream() as stream, driver.memory(4 * N) as address:
        for expected in ((1, 0), (2, 1)):
            begin(driver, stream)
            driver.api.uhalHostMemsetD32Async(address, 7, N, stream)
            if expected[1]:
                driver.api.uhalHostLaunchHostFunc(stream, note, None)
            graph = end(driver, stream)
            driver.api.uhalHostGraphGetCounts(graph, steps, functions)
            assert (steps.value, functions.value) == expected
            driver.api.uhalHostGraphDestroy(graph)


def test_pinned_memory_is_read_when_the_graph_runs(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    api = driver.api
    with (
        driver.stream() as stream,
        driver.pinned(4 * N) as source,
        driver.pinned(4 * N) as result,
        driver.memory(4 * N) as between,
    ):

        def record() -> None:
            api.uhalHostMemcpyHtoDAsync(between, source.ctypes.data, 4 * N, stream)
            api.uhalHostMemcpyDtoHAsync(result.ctypes.data, between, 4 * N, stream)

        with recorded(driver, stream, record) as (executable, kernels):
            assert kernels == []
            for _ in range(3):
                source[:] = rng.integers(0, 256, 4 * N, "u1")
                result[:] = 0xA5
                api.uhalHostGraphLaunch(executable, stream)
                api.uhalHostStreamSynchronize(stream)
                assert np.array_equal(result, source)


def test_a_large_kernel_is_spread_over_the_pool(driver: Driver, module: ctypes.c_void_p) -> None:
    blocks = 2000
    with driver.stream() as stream, driver.memory(4 * blocks) as out:
        function = driver.function(module, "count_blocks")
        values = (u32(2000), u64(out))

        def record() -> None:
            driver.api.uhalHostMemsetD8Async(out, 0, 4 * blocks, stream)
            driver.launch(function, (blocks, 1, 1), (1, 1, 1), stream, *values)

        with recorded(driver, stream, record) as (executable, _):
            for _ in range(3):
                driver.api.uhalHostGraphLaunch(executable, stream)
            got = np.zeros(blocks, "u4")
            driver.read(got, out, stream)
            driver.api.uhalHostStreamSynchronize(stream)
            assert (got == 1).all()


def test_an_empty_graph_runs(driver: Driver) -> None:
    with driver.stream() as stream, recorded(driver, stream, lambda: None) as (executable, kernels):
        assert kernels == []
        driver.api.uhalHostGraphLaunch(executable, stream)
        driver.api.uhalHostStreamSynchronize(stream)


# -- changes ---------------------------------------------------------------------------------------


def test_launches_keep_what_they_were_made_with(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    factors = [(choose.randrange(2**32), choose.randrange(2**32)) for _ in range(4)]
    with driver.stream() as stream, numbers(driver, rng) as buffer:

        def record() -> None:
            for factor, addend in factors:
                affine(driver, module, stream, buffer, factor, addend)

        with recorded(driver, stream, record) as (executable, kernels):
            assert len(set(kernels)) == len(factors) and 0 not in kernels
            for _ in range(rounds(20, 500)):
                pending = choose.random() < 0.5
                with driver.held(stream) if pending else ExitStack():
                    for _ in range(choose.randrange(6)):
                        for index in choose.sample(range(len(factors)), choose.randrange(4)):
                            factors[index] = (choose.randrange(2**32), choose.randrange(2**32))
                            node = kernels[index]
                            change = (buffer, *factors[index])
                            change_affine(driver, module, executable, node, *change)
                        driver.api.uhalHostGraphLaunch(executable, stream)
                        for factor, addend in factors:
                            buffer.expected = buffer.expected * np.uint32(factor)
                            buffer.expected += np.uint32(addend)
                driver.api.uhalHostStreamSynchronize(stream)
                buffer.check()


def test_another_kernel_takes_the_place_of_one(
    driver: Driver, module: ctypes.c_void_p, image: bytes, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    before = driver.live()["module"]
    with driver.stream() as stream, numbers(driver, rng) as buffer:
        empty = driver.function(module, "empty")

        def record() -> None:
            driver.launch(empty, (1, 1, 1), (1, 1, 1), stream)

        with recorded(driver, stream, record) as (executable, (node,)):
            driver.api.uhalHostGraphLaunch(executable, stream)
            with driver.module(image) as other:
                change_affine(driver, other, executable, node, buffer, 3, 5)
            assert driver.live()["module"] == before
            driver.api.uhalHostGraphLaunch(executable, stream)
            driver.api.uhalHostStreamSynchronize(stream)
            buffer.expected = buffer.expected * np.uint32(3) + np.uint32(5)
            buffer.check()


def test_a_change_is_refused_as_a_launch_would_be(driver: Driver, module: ctypes.c_void_p) -> None:
    with driver.stream() as stream:
        function = driver.function(module, "empty")

        def record() -> None:
            driver.launch(function, (1, 1, 1), (1, 1, 1), stream)

        with recorded(driver, stream, record) as (executable, (node,)):
            for geometry in ((0, 1, 1, 1, 1, 1), (1, 65536, 1, 1, 1, 1), (1, 1, 1, 1025, 1, 1)):
                with pytest.raises(HostFailure) as refusal:
                    driver.api.uhalHostGraphExecKernelNodeSetParams(
                        executable, node, function, *geometry, 0, None
                    )
                assert refusal.value.name == "INVALID_VALUE"
            driver.api.uhalHostGraphLaunch(executable, stream)
            driver.api.uhalHostStreamSynchronize(stream)


# -- launches, threads, ends -----------------------------------------------------------------------


def test_launches_of_one_graph_never_overlap(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times = rounds(100, 2000)
    with ExitStack() as stack:
        streams = [stack.enter_context(driver.stream()) for _ in range(3)]
        buffer = stack.enter_context(numbers(driver, rng))

        def record() -> None:
            for factor in (3, 5, 7):
                affine(driver, module, streams[0], buffer, factor, 1)

        executable, _ = stack.enter_context(recorded(driver, streams[0], record))

        def launch(stream: ctypes.c_void_p) -> None:
            driver.use()
            for _ in range(times):
                driver.api.uhalHostGraphLaunch(executable, stream)
            driver.api.uhalHostStreamSynchronize(stream)

        threads = [threading.Thread(target=launch, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(times * len(streams)):
            for factor in (3, 5, 7):
                buffer.expected = buffer.expected * np.uint32(factor) + np.uint32(1)
        buffer.check()


def test_two_threads_launch_and_change_two_graphs(
    driver: Driver, module: ctypes.c_void_p, seed: int
) -> None:
    failures: list[BaseException] = []

    def work(own: int) -> None:
        try:
            driver.use()
            rng, choose = np.random.default_rng(own), random.Random(own)
            with driver.stream() as stream, numbers(driver, rng) as buffer:
                record = lambda: affine(driver, module, stream, buffer, 3, 1)  # noqa: E731
                with recorded(driver, stream, record) as (executable, (node,)):
                    for _ in range(rounds(200, 5000)):
                        factor = choose.randrange(2**32)
                        change_affine(driver, module, executable, node, buffer, factor, 1)
                        driver.api.uhalHostGraphLaunch(executable, stream)
                        buffer.expected = buffer.expected * np.uint32(factor) + np.uint32(1)
                    driver.api.uhalHostStreamSynchronize(stream)
                    buffer.check()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed + own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_everything_may_be_destroyed_while_a_launch_waits(
    driver: Driver, image: bytes, seed: int
) -> None:
    before = driver.live()
    gate = threading.Event()
    callback = HOST_FUNCTION(lambda _: gate.wait(60))
    with numbers(driver, np.random.default_rng(seed)) as buffer, driver.stream() as second:
        stream = ctypes.c_void_p()
        driver.api.uhalHostStreamCreateWithPriority(stream, 0, 0)
        module = driver.load(image)
        begin(driver, stream)
        affine(driver, module, stream, buffer, 3, 1)
        graph = end(driver, stream)
        executable = instantiate(driver, graph)
        driver.api.uhalHostLaunchHostFunc(stream, callback, None)
        driver.api.uhalHostGraphLaunch(executable, stream)
        # The second stream waits for the graph's first launch.
        driver.api.uhalHostGraphLaunch(executable, second)
        (node,) = kernels_of(driver, graph)
        change_affine(driver, module, executable, node, buffer, 5, 7)
        driver.api.uhalHostGraphLaunch(executable, second)
        driver.api.uhalHostGraphExecDestroy(executable)
        driver.api.uhalHostGraphDestroy(graph)
        driver.api.uhalHostModuleUnload(module)
        driver.api.uhalHostStreamDestroy(stream)
        gate.set()
        driver.api.uhalHostStreamSynchronize(second)
        for factor, addend in ((3, 1), (3, 1), (5, 7)):
            buffer.expected = buffer.expected * np.uint32(factor) + np.uint32(addend)
        buffer.check()
    assert driver.live() == before


def test_a_fault_in_a_graph_loses_the_device() -> None:
    done = run_script(
        """
from tests.host_runtime.test_graphs import begin, end, instantiate
throws = driver.function(module, "throws")
empty = driver.function(module, "empty")
stream = ctypes.c_void_p()
driver.api.uhalHostStreamCreateWithPriority(stream, 0, 0)
begin(driver, stream)
for code in (0, 1, 0):
    driver.launch(throws, (1, 1, 1), (1, 1, 1), stream, u32(code))
graph = end(driver, stream)
executable = instantiate(driver, graph)
driver.api.uhalHostGraphLaunch(executable, stream)
codes = []
for call in (
    lambda: driver.api.uhalHostStreamSynchronize(stream),
    lambda: driver.api.uhalHostGraphLaunch(executable, stream),
    lambda: begin(driver, stream),
    lambda: instantiate(driver, graph),
):
    try:
        call()
    except HostFailure as failure:
        codes.append((failure.name, driver.api.uhalHostLastErrorText().decode()))
assert codes == [("LAUNCH_FAILED", "kernel throws: no such row")] * 4, codes
driver.api.uhalHostGraphExecDestroy(executable)
driver.api.uhalHostGraphDestroy(graph)
driver.api.uhalHostStreamDestroy(stream)
live = driver.live()
assert live["graph"] == live["graph_exec"] == live["stream"] == 0, live
""",
        UHAL_HOST_DEVICES="1",
    )
    assert done.returncode == 0, done.stderr
