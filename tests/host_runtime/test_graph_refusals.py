"""Graphs of the host runtime: refused calls, and the state after each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from tests.host_kernels import has_compiler
from tests.host_runtime.driver import Driver, HostFailure
from tests.host_runtime.graphs import (
    N,
    Numbers,
    affine,
    begin,
    end,
    instantiate,
    numbers,
    recorded,
    status,
)
from tests.requirements import needed

pytestmark = needed(has_compiler(), "kernels are compiled here")


def _pageable_in(driver: Driver, stream: ctypes.c_void_p, buffer: Numbers) -> None:
    driver.write(buffer.address, np.zeros(N, "u4"), stream)


def _pageable_out(driver: Driver, stream: ctypes.c_void_p, buffer: Numbers) -> None:
    driver.read(np.zeros(N, "u4"), buffer.address, stream)


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
        # A stream that joined the capture without work of its own need not be joined back.
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
    """As with CUDA, the work runs. If no stream waits for the work, ending the capture fails."""
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
