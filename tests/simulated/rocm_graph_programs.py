"""Programs with graphs in HSA queues, each in its own process, because some lose their device."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from tests.simulated.rocm_programs import Bench, fail, simulated
from tests.slots import U32, U64, KernelCall, Slots, launch_graph, update_kernel
from uhal import DeviceBuffer, Event, Function, Module, Plan, Stream, diagnostics
from uhal.contract import ExecutableGraph
from uhal.errors import DeviceError
from uhal.registry import backend as opened_backend

BACKEND = "rocm"


@contextmanager
def recorded(stream: Stream, record: Callable[[], object]) -> Iterator[ExecutableGraph]:
    """Yield an executable graph of the work that `record` enqueues on the stream."""
    verbs = opened_backend(BACKEND)
    verbs.begin_capture(stream.handle)
    record()
    graph = verbs.end_capture(stream.handle)
    executable = verbs.instantiate_graph(graph)
    verbs.destroy_graph(graph)
    try:
        yield executable
    finally:
        verbs.destroy_executable_graph(executable.handle)


def replay(executable: ExecutableGraph, stream: Stream) -> None:
    launch_graph(opened_backend(BACKEND), executable.handle, stream.handle)


def step_call(step: Function, x: DeviceBuffer, multiply: int, add: int) -> KernelCall:
    values = (
        np.uint64(x.size),
        np.uint32(multiply),
        np.uint32(add),
        np.uint64(int(x.as_device_ptr())),
    )
    return KernelCall(step.handle, (1, 1, 1), (64, 1, 1), 0, [value.tobytes() for value in values])


def more_than_a_queue(image: str, seed: int, launches: int, times: int) -> None:
    """A graph with more packets than the queue is submitted in rounds."""
    bench = Bench(image, seed)
    values = bench.values(2)
    x = DeviceBuffer.from_numpy(values)
    with Stream() as stream:
        run = bench.step[1, 2, 0, stream]
        run(2, 1, 0, x)
        stream.synchronize()

        slots = Slots(opened_backend(BACKEND))
        address = int(x.as_device_ptr())

        def record() -> None:
            for number in range(launches):
                values = (U64(2), U32(3), U32(number), U64(address))
                slots.launch(bench.step.handle, (1, 1, 1), (2, 1, 1), stream.handle, *values)

        with recorded(stream, record) as executable:
            assert executable.kernels is not None and len(executable.kernels) == launches
            for _ in range(times):
                replay(executable, stream)
            stream.synchronize()
        one, factor, total = np.uint32(3), np.uint32(1), np.uint32(0)
        with np.errstate(over="ignore"):
            for number in range(launches):
                factor, total = factor * one, total * one + np.uint32(number)
        for _ in range(times):
            values = values * factor + total
        assert np.array_equal(x.to_numpy(), values)


def pending_launches_keep_their_values(image: str, seed: int, rounds: int) -> None:
    """Launch on several streams, with changes between launches and one wait per round."""
    bench = Bench(image, seed)
    choose = random.Random(seed)
    values = bench.values(100)
    x = DeviceBuffer.from_numpy(values)
    verbs = opened_backend(BACKEND)
    streams = [Stream() for _ in range(3)]
    factors = [(3, number) for number in range(6)]
    for stream in streams:
        bench.step[1, 64, 0, stream](100, 1, 0, x)
        stream.synchronize()

    def record() -> None:
        for multiply, add in factors:
            bench.step[1, 64, 0, streams[0]](100, multiply, add, x)

    with recorded(streams[0], record) as executable:
        assert executable.kernels is not None
        for _ in range(rounds):
            for _ in range(choose.randrange(1, 8)):
                for index in choose.sample(range(len(factors)), choose.randrange(4)):
                    factors[index] = (choose.randrange(2**32), choose.randrange(2**32))
                    call = step_call(bench.step, x, *factors[index])
                    update_kernel(verbs, executable.handle, executable.kernels[index], call)
                replay(executable, choose.choice(streams))
                for multiply, add in factors:
                    values = values * np.uint32(multiply) + np.uint32(add)
            for stream in streams:
                stream.synchronize()
            assert np.array_equal(x.to_numpy(), values)
    bench.device.synchronize()


def destroyed_while_pending(image: str, seed: int) -> None:
    """A launched graph runs to its end; its resources are freed afterwards."""
    bench = Bench(image, seed)
    values = bench.values(100)
    x = DeviceBuffer.from_numpy(values)
    stream, other = Stream(), Stream()
    for one in (stream, other):
        bench.step[1, 64, 0, one](100, 1, 0, x)
        one.synchronize()
    bench.device.synchronize()
    before = simulated().uhal_sim_live(b"allocation")

    def record() -> None:
        bench.step[1, 64, 0, stream](100, 3, 5, x)

    with recorded(stream, record) as executable:
        assert simulated().uhal_sim_live(b"allocation") == before + 1
        replay(executable, stream)
        replay(executable, other)
    live = diagnostics()["native"][BACKEND]
    assert live["graphs"] == live["executable graphs"] == 0
    bench.device.synchronize()
    for _ in range(2):
        values = values * np.uint32(3) + np.uint32(5)
    assert np.array_equal(x.to_numpy(), values)
    stream.close()
    other.close()
    bench.device.synchronize()
    gc.collect()
    assert simulated().uhal_sim_live(b"allocation") == before


def two_threads_two_graphs(image: str, seed: int, launches: int) -> None:
    """Each thread launches and changes a graph of its own; they may share a queue."""
    bench = Bench(image, seed)
    verbs = opened_backend(BACKEND)
    failures: list[BaseException] = []
    # Both threads finish their captures before either launches, so that no packet is missed.
    ready = threading.Barrier(2)

    def work(own: int) -> None:
        try:
            rng = np.random.default_rng([seed, own])
            with bench.device, Stream() as stream:
                values = rng.integers(0, 2**32, 64, "u4")
                x = DeviceBuffer.from_numpy(values)
                bench.step[1, 64, 0, stream](64, 1, 0, x)
                stream.synchronize()
                record = lambda: bench.step[1, 64, 0, stream](64, 3, 1, x)  # noqa: E731
                with recorded(stream, record) as executable:
                    assert executable.kernels is not None
                    (node,) = executable.kernels
                    ready.wait()
                    for turn in range(launches):
                        call = step_call(bench.step, x, 2 * turn + 1, turn)
                        update_kernel(verbs, executable.handle, node, call)
                        replay(executable, stream)
                        values = values * np.uint32(2 * turn + 1) + np.uint32(turn)
                    stream.synchronize()
                assert np.array_equal(x.to_numpy(), values)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def as_many_streams_as_a_capture_takes(image: str, most: int) -> None:
    """Capturing on one stream too many raises an error, and the next capture works."""
    bench = Bench(image, 0)
    x = DeviceBuffer.zeros(most + 1, "u32")
    first, *others = (Stream() for _ in range(most + 1))

    def captured(joining: list[Stream]) -> Plan:
        begun, done = Event(), Event()
        with first.capture() as plan:
            begun.record(first)
            for number, other in enumerate(joining):
                other.wait_event(begun)
                bench.step[1, 64, 0, other](1, 0, 7, x[number : number + 1])
                done.record(other)
                first.wait_event(done)
        return plan

    try:
        captured(others)
    except DeviceError as error:
        assert "one stream too many" in str(error), error
    else:
        raise AssertionError("one stream more was taken")
    with captured(others[:-1]) as plan:
        plan.replay()
        assert x.to_numpy(stream=first).tolist() == [7] * (most - 1) + [0, 0]


def told_which_queue(image: str) -> None:
    """A kernel with the hidden queue argument gets the queue of the graph's launch."""
    bench = Bench(image, 0)
    kernel = Module.from_file(image).get_function("where", "u32* out")
    out = DeviceBuffer.from_numpy(np.zeros(3, "u4"))
    streams = [Stream() for _ in range(3)]
    for stream in streams:
        kernel[1, 1, 0, stream](out)
        stream.synchronize()

    def record() -> None:
        for blocks in (1, 2, 5):
            kernel[(blocks, 3), 64, 0, streams[0]](out)

    # The simulated device compares the hidden argument with the queue.
    with recorded(streams[0], record) as executable:
        for stream in (*streams, *streams):
            replay(executable, stream)
        for stream in streams:
            stream.synchronize()
    bench.device.synchronize()
    assert out.to_numpy().tolist() == [5, 3, 64]


def progress(handle: int) -> tuple[int, int]:
    slot = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *3 * [ctypes.POINTER(ctypes.c_uint64)])(
        opened_backend(BACKEND).hot_table.slots["stream_progress"]
    )
    completed, begun, index = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    assert slot(handle, completed, begun, index) == 0
    assert index.value == 2**64 - 1
    return completed.value, begun.value


def lose_in_a_graph(image: str, seed: int, packet: int) -> None:
    """A graph counts as one launch; the error names the graph running when the queue stopped."""
    bench = Bench(image, seed)
    x = DeviceBuffer.from_numpy(bench.values(100))
    with Stream() as stream:
        run = bench.step[1, 64, 0, stream]
        run(100, 1, 0, x)
        stream.synchronize()
        handle = stream.handle
        assert progress(handle) == (1, 1)

        def record() -> None:
            for _ in range(3):
                run(100, 3, 5, x)

        with recorded(stream, record) as executable:
            assert progress(handle) == (1, 1)
            replay(executable, stream)
            stream.synchronize()
            assert progress(handle) == (2, 2)
            fail("packet", packet, "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION")

            try:
                # Any call after the first may raise the fault.
                for _ in range(3):
                    replay(executable, stream)
                stream.synchronize()
            except DeviceError as error:
                assert error.name == "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION"
            else:
                raise AssertionError("the loss was not reported")
            # `replay` bypasses uhal, so uhal finds the fault only now
            with contextlib.suppress(DeviceError):
                stream.synchronize()
            done = 2 + (packet - 1) // 3
            assert progress(handle) == (done, done + 1), (packet, progress(handle))


def survive_failures(image: str, seed: int, calls: int) -> None:
    """Let each call fail at each of its first `calls` times: nothing is lost and nothing leaks."""
    bench = Bench(image, seed)
    values = bench.values(100)
    x = DeviceBuffer.from_numpy(values)
    refused = 0
    with Stream() as stream:
        bench.step[1, 64, 0, stream](100, 1, 0, x)
        stream.synchronize()
        bench.device.synchronize()
        for call in ("hsa_amd_memory_pool_allocate", "hsa_amd_agents_allow_access"):
            for nth in range(1, calls + 1):
                fail(call, nth, "HSA_STATUS_ERROR_OUT_OF_RESOURCES")
                try:
                    record = lambda: bench.step[1, 64, 0, stream](100, 3, 5, x)  # noqa: E731
                    with recorded(stream, record) as executable:
                        assert executable.kernels is not None
                        for turn in range(4):
                            replay(executable, stream)
                            values = values * np.uint32(3) + np.uint32(turn if turn else 5)
                            update_kernel(
                                opened_backend(BACKEND),
                                executable.handle,
                                executable.kernels[0],
                                step_call(bench.step, x, 3, turn + 1),
                            )
                except MemoryError:
                    refused += 1
                simulated().uhal_sim_fail(call.encode(), 1, 0)
                stream.synchronize()
                assert np.array_equal(x.to_numpy(), values), (call, nth)
                live = diagnostics()["native"][BACKEND]
                # The program still owns the graph that could not be instantiated.
                assert live["executable graphs"] == 0, live
    assert refused, "nothing was refused"
