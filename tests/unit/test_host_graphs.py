"""Graphs of the host runtime, driven through its header: what is recorded, changed and refused."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from tests.host_kernels import build, has_compiler
from tests.requirements import needed
from tests.sampling import rounds
from tests.unit.host_driver import HEADER, HOST_FUNCTION, Driver, HostFailure
from tests.unit.test_host_runtime import KERNELS, run_script, u32, u64

pytestmark = needed(has_compiler(), "kernels are compiled here")

RELAXED = HEADER.constants["UHAL_HOST_STREAM_CAPTURE_MODE_RELAXED"]
N = 500
"""Elements of a buffer: some blocks, the last of them not full."""


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


class Numbers:
    """A buffer of u32 on the device, and what it must hold."""

    def __init__(self, driver: Driver, address: int, rng: np.random.Generator) -> None:
        self._driver = driver
        self.address = address
        self.expected = rng.integers(0, 2**32, N, "u4")
        with driver.stream() as stream:
            driver.write(address, self.expected, stream)
            driver.api.uhalHostStreamSynchronize(stream)

    def check(self) -> None:
        got = np.full(N, 0xA5A5A5A5, "u4")
        with self._driver.stream() as stream:
            self._driver.read(got, self.address, stream)
            self._driver.api.uhalHostStreamSynchronize(stream)
        assert np.array_equal(got, self.expected)


@contextmanager
def numbers(driver: Driver, rng: np.random.Generator) -> Iterator[Numbers]:
    with driver.memory(4 * N) as address:
        yield Numbers(driver, address, rng)


def begin(driver: Driver, stream: ctypes.c_void_p) -> None:
    driver.api.uhalHostStreamBeginCapture(stream, RELAXED)


def end(driver: Driver, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    driver.api.uhalHostStreamEndCapture(stream, graph)
    return graph


def status(driver: Driver, stream: ctypes.c_void_p) -> int:
    told = ctypes.c_int()
    driver.api.uhalHostStreamIsCapturing(stream, told)
    return told.value


def instantiate(driver: Driver, graph: ctypes.c_void_p) -> ctypes.c_void_p:
    executable = ctypes.c_void_p()
    driver.api.uhalHostGraphInstantiate(executable, graph)
    return executable


def kernels_of(driver: Driver, graph: ctypes.c_void_p) -> list[int]:
    count = ctypes.c_size_t()
    driver.api.uhalHostGraphGetKernels(graph, None, count)
    nodes = (ctypes.c_void_p * count.value)()
    driver.api.uhalHostGraphGetKernels(graph, nodes, count)
    return [node or 0 for node in nodes]


@contextmanager
def recorded(
    driver: Driver, stream: ctypes.c_void_p, record: Callable[[], object]
) -> Iterator[tuple[ctypes.c_void_p, list[int]]]:
    """An executable graph of what `record` does with the stream, and its kernels."""
    begin(driver, stream)
    record()
    graph = end(driver, stream)
    executable = instantiate(driver, graph)
    try:
        yield executable, kernels_of(driver, graph)
    finally:
        driver.api.uhalHostGraphExecDestroy(executable)
        driver.api.uhalHostGraphDestroy(graph)


def affine(
    driver: Driver,
    module: ctypes.c_void_p,
    stream: ctypes.c_void_p,
    buffer: Numbers,
    factor: int,
    addend: int,
) -> None:
    function = driver.function(module, "affine")
    values = (u64(N), u32(factor), u32(addend), u64(buffer.address))
    driver.launch(function, (3, 1, 1), (64, 1, 1), stream, *values)


def change_affine(
    driver: Driver,
    module: ctypes.c_void_p,
    executable: ctypes.c_void_p,
    node: int,
    buffer: Numbers,
    factor: int,
    addend: int,
) -> None:
    values = (u64(N), u32(factor), u32(addend), u64(buffer.address))
    pointers = (ctypes.c_void_p * 4)(*map(ctypes.addressof, values))
    function = driver.function(module, "affine")
    driver.api.uhalHostGraphExecKernelNodeSetParams(
        executable, node, function, 3, 1, 1, 64, 1, 1, 0, pointers
    )


# -- what is recorded ------------------------------------------------------------------------------


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
            # The work goes from stream to stream: any order but the one of the calls would show.
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
        # On another stream, where it waits for the first.
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
from tests.unit.test_host_graphs import begin, end, instantiate
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


# -- what is refused -------------------------------------------------------------------------------


def _pageable_in(driver: Driver, stream: ctypes.c_void_p, buffer: Numbers) -> None:
    driver.write(buffer.address, np.zeros(N, "u4"), stream)


def _pageable_out(driver: Driver, stream: ctypes.c_void_p, buffer: Numbers) -> None:
    driver.read(np.zeros(N, "u4"), buffer.address, stream)


def _host_function(driver: Driver, stream: ctypes.c_void_p, _: Numbers) -> None:
    driver.api.uhalHostLaunchHostFunc(stream, HOST_FUNCTION(lambda _: None), None)


def _wait_outside(driver: Driver, stream: ctypes.c_void_p, _: Numbers) -> None:
    with driver.stream() as other, driver.event() as event:
        driver.api.uhalHostEventRecord(event, other)
        driver.api.uhalHostStreamWaitEvent(stream, event, 0)


def _graph(driver: Driver, stream: ctypes.c_void_p, _: Numbers) -> None:
    with driver.stream() as other, recorded(driver, other, lambda: None) as (executable, _kernels):
        driver.api.uhalHostGraphLaunch(executable, stream)


def _merge(driver: Driver, stream: ctypes.c_void_p, _: Numbers) -> None:
    with driver.stream() as other, driver.event() as event:
        begin(driver, other)
        driver.api.uhalHostEventRecord(event, other)
        try:
            driver.api.uhalHostStreamWaitEvent(stream, event, 0)
        finally:
            assert status(driver, other) == 2


def _ended_event(driver: Driver, stream: ctypes.c_void_p, _: Numbers) -> None:
    with driver.stream() as other, driver.event() as event:
        begin(driver, other)
        driver.api.uhalHostEventRecord(event, other)
        driver.api.uhalHostGraphDestroy(end(driver, other))
        driver.api.uhalHostStreamWaitEvent(stream, event, 0)


def _unmatched(driver: Driver, stream: ctypes.c_void_p, _: Numbers) -> None:
    with driver.stream() as other, driver.event() as event:
        driver.api.uhalHostEventRecord(event, stream)
        driver.api.uhalHostStreamWaitEvent(other, event, 0)
        end(driver, other)


MISTAKES: dict[str, tuple[Callable[[Driver, ctypes.c_void_p, Numbers], object], str, str]] = {
    "synchronize": (
        lambda driver, stream, _: driver.api.uhalHostStreamSynchronize(stream),
        "STREAM_CAPTURE_UNSUPPORTED",
        "waiting for the host on a stream that captures",
    ),
    "query": (
        lambda driver, stream, _: driver.api.uhalHostStreamQuery(stream),
        "STREAM_CAPTURE_UNSUPPORTED",
        "asking whether work is done on a stream that captures",
    ),
    "pageable source": (
        _pageable_in,
        "STREAM_CAPTURE_UNSUPPORTED",
        "a copy from pageable memory on a stream that captures",
    ),
    "pageable destination": (
        _pageable_out,
        "STREAM_CAPTURE_UNSUPPORTED",
        "a copy to pageable memory on a stream that captures",
    ),
    "host function": (
        _host_function,
        "STREAM_CAPTURE_UNSUPPORTED",
        "a host function on a stream that captures",
    ),
    "allocation": (
        lambda driver, stream, _: driver.api.uhalHostMemAllocAsync(ctypes.c_uint64(), 64, stream),
        "STREAM_CAPTURE_UNSUPPORTED",
        "an allocation on a stream that captures",
    ),
    "freeing": (
        lambda driver, stream, buffer: driver.api.uhalHostMemFreeAsync(buffer.address, stream),
        "STREAM_CAPTURE_UNSUPPORTED",
        "freeing memory on a stream that captures",
    ),
    "graph": (
        _graph,
        "STREAM_CAPTURE_UNSUPPORTED",
        "the launch of a graph on a stream that captures",
    ),
    "wait for work outside": (
        _wait_outside,
        "STREAM_CAPTURE_ISOLATION",
        "a wait for an event that was recorded outside of the capture",
    ),
    "wait for an ended capture": (
        _ended_event,
        "CAPTURED_EVENT",
        "a wait for an event that was recorded in a capture now over",
    ),
    "two captures": (_merge, "STREAM_CAPTURE_MERGE", "a wait for an event of another capture"),
    "end elsewhere": (
        _unmatched,
        "STREAM_CAPTURE_UNMATCHED",
        "it was to be ended on a stream it did not begin on",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_spoils_the_capture_and_nothing_else(
    driver: Driver, module: ctypes.c_void_p, mistake: str, seed: int
) -> None:
    make, name, words = MISTAKES[mistake]
    with driver.stream() as stream, numbers(driver, np.random.default_rng(seed)) as buffer:
        begin(driver, stream)
        affine(driver, module, stream, buffer, 3, 1)
        assert status(driver, stream) == 1
        with pytest.raises(HostFailure) as refusal:
            make(driver, stream, buffer)
        assert refusal.value.name == name
        assert status(driver, stream) == 2
        with pytest.raises(HostFailure) as refusal:
            affine(driver, module, stream, buffer, 5, 1)
        assert refusal.value.name == "STREAM_CAPTURE_INVALIDATED"
        with pytest.raises(HostFailure) as refusal:
            end(driver, stream)
        assert refusal.value.name == "STREAM_CAPTURE_INVALIDATED"
        said = driver.api.uhalHostLastErrorText().decode()
        assert said == f"the capture was spoilt: {words}"
        assert status(driver, stream) == 0
        buffer.check()
        affine(driver, module, stream, buffer, 7, 1)
        driver.api.uhalHostStreamSynchronize(stream)
        buffer.expected = buffer.expected * np.uint32(7) + np.uint32(1)
        buffer.check()


def test_a_stream_must_be_joined_again(driver: Driver, module: ctypes.c_void_p, seed: int) -> None:
    rng = np.random.default_rng(seed)
    api = driver.api
    with (
        driver.stream() as stream,
        driver.stream() as other,
        driver.event() as event,
        numbers(driver, rng) as buffer,
    ):
        begin(driver, stream)
        api.uhalHostEventRecord(event, stream)
        api.uhalHostStreamWaitEvent(other, event, 0)
        assert status(driver, other) == 1
        affine(driver, module, other, buffer, 3, 1)
        api.uhalHostEventRecord(event, other)
        api.uhalHostStreamWaitEvent(stream, event, 0)
        affine(driver, module, other, buffer, 5, 1)
        with pytest.raises(HostFailure) as refusal:
            end(driver, stream)
        assert refusal.value.name == "STREAM_CAPTURE_UNJOINED"
        assert status(driver, other) == status(driver, stream) == 0
        buffer.check()
        # One that has joined without work of its own needs nothing.
        begin(driver, stream)
        api.uhalHostEventRecord(event, stream)
        api.uhalHostStreamWaitEvent(other, event, 0)
        api.uhalHostGraphDestroy(end(driver, stream))


def test_captures_begin_and_end_once(driver: Driver) -> None:
    with driver.stream() as stream:
        with pytest.raises(HostFailure) as refusal:
            end(driver, stream)
        assert refusal.value.name == "ILLEGAL_STATE"
        begin(driver, stream)
        with pytest.raises(HostFailure) as refusal:
            begin(driver, stream)
        assert refusal.value.name == "ILLEGAL_STATE"
        assert status(driver, stream) == 1
        driver.api.uhalHostGraphDestroy(end(driver, stream))
        with pytest.raises(HostFailure) as refusal:
            driver.api.uhalHostStreamBeginCapture(stream, 0)
        assert refusal.value.name == "INVALID_VALUE"


def test_a_captured_event_has_no_time(driver: Driver) -> None:
    api = driver.api
    with driver.stream() as stream, driver.event() as event, driver.event() as plain:
        api.uhalHostEventRecord(plain, stream)
        begin(driver, stream)
        api.uhalHostEventRecord(event, stream)
        for call in (
            lambda: api.uhalHostEventQuery(event),
            lambda: api.uhalHostEventSynchronize(event),
            lambda: api.uhalHostEventElapsedTime(ctypes.c_float(), plain, event),
        ):
            with pytest.raises(HostFailure) as refusal:
                call()
            assert refusal.value.name == "CAPTURED_EVENT"
        assert status(driver, stream) == 1
        api.uhalHostGraphDestroy(end(driver, stream))
        api.uhalHostEventRecord(event, stream)
        api.uhalHostEventSynchronize(event)


@pytest.mark.parametrize("first", [True, False], ids=["the one it began on", "one that joined"])
def test_a_capturing_stream_may_be_destroyed(driver: Driver, first: bool) -> None:
    before = driver.live()
    api = driver.api
    streams = [ctypes.c_void_p(), ctypes.c_void_p()]
    with driver.event() as event:
        for stream in streams:
            api.uhalHostStreamCreateWithPriority(stream, 0, 0)
        begin(driver, streams[0])
        api.uhalHostEventRecord(event, streams[0])
        api.uhalHostStreamWaitEvent(streams[1], event, 0)
        gone, left = streams if first else streams[::-1]
        api.uhalHostStreamDestroy(gone)
        assert status(driver, left) == (0 if first else 1)
        if not first:
            driver.api.uhalHostGraphDestroy(end(driver, left))
        api.uhalHostStreamSynchronize(left)
        api.uhalHostStreamDestroy(left)
    assert driver.live() == before


@pytest.mark.parametrize("joined", [True, False], ids=["waited for", "not waited for"])
def test_what_a_destroyed_stream_recorded_stays(
    driver: Driver, module: ctypes.c_void_p, seed: int, joined: bool
) -> None:
    """As with CUDA: it runs, and is missed at the end where nobody waits for it."""
    api = driver.api
    other = ctypes.c_void_p()
    api.uhalHostStreamCreateWithPriority(other, 0, 0)
    with (
        driver.stream() as stream,
        driver.event() as event,
        numbers(driver, np.random.default_rng(seed)) as buffer,
    ):
        begin(driver, stream)
        api.uhalHostEventRecord(event, stream)
        api.uhalHostStreamWaitEvent(other, event, 0)
        affine(driver, module, other, buffer, 3, 1)
        if joined:
            api.uhalHostEventRecord(event, other)
            api.uhalHostStreamWaitEvent(stream, event, 0)
        api.uhalHostStreamDestroy(other)
        assert status(driver, stream) == 1
        if not joined:
            with pytest.raises(HostFailure) as refusal:
                end(driver, stream)
            assert refusal.value.name == "STREAM_CAPTURE_UNJOINED"
            return
        affine(driver, module, stream, buffer, 5, 2)
        graph = end(driver, stream)
        ready = instantiate(driver, graph)
        api.uhalHostGraphLaunch(ready, stream)
        api.uhalHostStreamSynchronize(stream)
        for multiply, add in ((3, 1), (5, 2)):
            buffer.expected = buffer.expected * np.uint32(multiply) + np.uint32(add)
        buffer.check()
        api.uhalHostGraphExecDestroy(ready)
        api.uhalHostGraphDestroy(graph)
