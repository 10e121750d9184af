"""Streams and events of the host runtime."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from tests.host_kernels import has_compiler
from tests.host_runtime.driver import HEADER, HOST_FUNCTION, Driver, HostFailure
from tests.host_runtime.kernels import u32, u64
from tests.requirements import needed

pytestmark = needed(has_compiler(), "kernels are compiled here")


def test_query_and_synchronize(driver: Driver) -> None:
    query = driver.api.unchecked("uhalHostStreamQuery")
    not_ready = HEADER.constants["UHAL_HOST_ERROR_NOT_READY"]
    with driver.stream() as stream:
        assert query(stream) == 0
        with driver.held(stream):
            assert query(stream) == not_ready
        assert query(stream) == 0


def test_a_wait_that_its_caller_ends_is_not_ready(driver: Driver) -> None:
    """A wait that its caller ends returns "not ready"; a wait that continues ends with the work."""
    not_ready = HEADER.constants["UHAL_HOST_ERROR_NOT_READY"]
    go_on = HEADER.ctype("uhal_go_on")
    answers: list[int] = []
    asked = go_on(lambda _: answers.pop() if answers else 1)
    with driver.stream() as stream, driver.event() as event:
        for handle, kind in ((stream, "Stream"), (event, "Event")):
            wait = driver.api.unchecked(f"uhalHost{kind}SynchronizeWhile")
            with driver.held(stream):
                driver.api.uhalHostEventRecord(event, stream)
                answers[:] = [0, 1]
                assert wait(handle, asked, None) == not_ready
                assert answers == []
            assert wait(handle, asked, None) == 0


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
            # The held function is itself an element of the queue.
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
    """Each of 300 streams waits for the next, and the last is held: far more streams than
    runners."""
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
            # Destroy the events while other streams still wait for them.
            for event in events:
                api.uhalHostEventDestroy(event)
        got = np.empty(1, np.uint32)
        driver.read(got, x, streams[0])
    for stream in streams:
        api.uhalHostStreamDestroy(stream)
    assert got[0] == expected


def test_blocked_host_functions_do_not_stop_other_streams(driver: Driver) -> None:
    """More host functions block than there are runners; a later stream's function releases them."""
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
        # An event that was never recorded counts as complete, but has no time.
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
            # Record the event again while the first record is pending: the last record counts.
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


def test_a_wait_that_is_still_queued_is_for_the_record_it_saw(driver: Driver) -> None:
    """The first record is complete before the second; the waiter has not yet checked it."""
    api = driver.api
    gate, passed = threading.Event(), threading.Event()
    hold, tell = HOST_FUNCTION(lambda _: gate.wait(60)), HOST_FUNCTION(lambda _: passed.set())
    with (
        driver.stream() as first,
        driver.stream() as waiting,
        driver.stream() as later,
        driver.event() as event,
        driver.held(later),
    ):
        api.uhalHostLaunchHostFunc(waiting, hold, None)
        with driver.held(first):
            api.uhalHostEventRecord(event, first)
            api.uhalHostStreamWaitEvent(waiting, event, 0)
            api.uhalHostLaunchHostFunc(waiting, tell, None)
        api.uhalHostEventRecord(event, later)
        assert api.unchecked("uhalHostEventQuery")(event) != 0
        assert not passed.is_set()
        gate.set()
        # shorter than the longest time that `held` waits
        assert passed.wait(20)


def test_a_record_that_waits_for_room_is_not_seen_yet(
    driver: Driver, module: ctypes.c_void_p
) -> None:
    """Without this order a wait could enter the queue before the awaited record."""
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
