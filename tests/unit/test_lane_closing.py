"""Closing an object during another thread's native call: the object is destroyed after the call.

The counting driver's slots are Python functions. So a slot closes the object of its own call, as
another thread may while a call runs without the GIL. The driver records the use of a destroyed
handle.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench
from uhal import DeviceBuffer, Event, LaunchConfig, Signature, Stream, launch
from uhal._lane import ModuleHandle, live_counts
from uhal.errors import DeviceWarning, InvalidHandleError

INVALID_HANDLE = 400
PENDING = 600
"""More pending launches than the limit up to which a launch keeps the GIL."""


def launch_behind_many(bench: Bench, stream: Stream) -> None:
    function = bench.function("")
    for _ in range(PENDING):
        function[1, 1, 0, stream]()


def launch_with_more(bench: Bench, stream: Stream) -> None:
    config = LaunchConfig(grid=1, block=1, cooperative=True)
    launch(bench.function(""), stream=stream, config=config)


def copy_rows(bench: Bench, stream: Stream) -> None:
    bench.buffer(64).copy_2d_from(np.ones((4, 8), "f4"), pitch=16, stream=stream)


LARGE = 1 << 18
CALLS: dict[str, tuple[str, Callable[[Bench, Stream], Any]]] = {
    "waiting": ("stream_synchronize", lambda b, s: s.synchronize()),
    "waiting for the device": ("stream_synchronize", lambda b, s: b.context.synchronize()),
    "upload": ("copy_h2d", lambda b, s: b.buffer(LARGE).copy_from(np.ones(LARGE, "f4"), stream=s)),
    "download": ("copy_d2h", lambda b, s: b.buffer().to_numpy(stream=s)),
    "copy": ("copy_d2d", lambda b, s: b.buffer().copy_from_async(b.buffer(), s)),
    "rows": ("copy_h2d", copy_rows),
    "fill": ("memset_32", lambda b, s: b.buffer().set_32(1, stream=s)),
    "callback": ("stream_callback", lambda b, s: s.add_callback(print)),
    "launch": ("launch", launch_behind_many),
    "more than geometry": ("launch_ex", launch_with_more),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_stream_closed_during_a_call_on_it_ends_after_it(bench: Bench, name: str) -> None:
    slot, call = CALLS[name]
    stream = bench.busy_stream()
    handle = stream.handle
    seen: list[str] = []
    calls_left = PENDING if slot == "launch" else 1

    def close(called: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls_left
        if called == slot:
            calls_left -= 1
            if calls_left == 0:
                stream.close()
                assert stream.closed
                with pytest.raises(InvalidHandleError, match="is closed"):
                    stream.query()
        if called in (slot, "stream_destroy"):
            seen.append(called)

    bench.driver.on_call = close
    call(bench, stream)
    bench.driver.on_call = lambda called, arguments: None
    assert seen[-2:] == [slot, "stream_destroy"]
    assert handle not in bench.driver.live["stream"]
    assert stream.closed
    stream.close()
    assert bench.driver.misuse == []
    bench.driver.busy.clear()
    bench.driver.run_callbacks(handle)
    # the lane also drops the stream's records, so nothing can wait for the stream's work any more
    Stream().close()
    assert bench.context.pool_statistics()["blocks_in_use"] == 0


def test_memory_of_a_call_is_reused_only_behind_it(bench: Bench) -> None:
    """The stream is closed before the launch takes a ticket; the end of the stream includes the
    launch."""
    stream = bench.busy_stream()
    function, plain = bench.function("ptr x"), bench.function("")
    for _ in range(PENDING):
        plain[1, 1, 0, stream]()
    buffer = bench.buffer(1000)
    bench.driver.on_call = lambda slot, arguments: stream.close() if slot == "launch" else None
    function[1, 1, 0, stream](buffer)
    bench.driver.on_call = lambda slot, arguments: None
    buffer.close()
    bench.quiet()
    again = bench.buffer(1000)
    function[1, 1](again)
    assert bench.driver.count("stream_wait_event") == 1


def launch_module(bench: Bench, module: ModuleHandle, config: LaunchConfig | None) -> None:
    function = bench.driver.function(bench.context, Signature.parse("", entry="k"), module=module)
    if config is not None:
        launch(function, config=config)
        return
    with bench.busy_stream() as stream:
        for _ in range(PENDING):
            function[1, 1, 0, stream]()


MODULE_CALLS: dict[str, tuple[str, Callable[[Bench, ModuleHandle], Any]]] = {
    "launch": ("launch", lambda b, m: launch_module(b, m, None)),
    "more than geometry": (
        "launch_ex",
        lambda b, m: launch_module(b, m, LaunchConfig(grid=1, block=1, cooperative=True)),
    ),
    "lookup": ("get_function", lambda b, m: m.find_function("k")),
}


@pytest.mark.parametrize("name", MODULE_CALLS)
def test_a_module_closed_during_a_call_on_it_is_unloaded_after_it(bench: Bench, name: str) -> None:
    slot, call = MODULE_CALLS[name]
    module = bench.driver.module(bench.context)
    seen: list[str] = []
    calls_left = PENDING if slot == "launch" else 1

    def close(called: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls_left
        if called == slot:
            calls_left -= 1
            if calls_left == 0:
                module.close()
                assert module.closed
                with pytest.raises(InvalidHandleError, match="module is closed"):
                    module.find_function("k")
        if called in (slot, "module_unload"):
            seen.append(called)

    bench.driver.on_call = close
    call(bench, module)
    bench.driver.on_call = lambda called, arguments: None
    assert seen[-2:] == [slot, "module_unload"]
    module.close()
    assert bench.driver.count("module_unload") == 1
    bench.driver.busy.clear()


def test_an_event_closed_while_somebody_waits_for_it_ends_after_that(bench: Bench) -> None:
    event = bench.busy_stream().record_event()
    handle = event.handle
    bench.quiet()

    def close(slot: str, arguments: tuple[Any, ...]) -> None:
        if slot == "event_synchronize":
            event.close()
            assert event.closed
            with pytest.raises(InvalidHandleError, match="event is closed"):
                event.query()

    bench.driver.on_call = close
    event.synchronize()
    assert bench.driver.slots() == ["event_query", "event_synchronize", "event_destroy"]
    assert handle not in bench.driver.live["event"]
    event.close()


def test_unloading_that_fails_later_is_a_warning(bench: Bench) -> None:
    module = bench.driver.module(bench.context)
    bench.driver.failures["module_unload"] = [INVALID_HANDLE]
    bench.driver.forgive("module", module.handle)
    bench.driver.on_call = lambda slot, arguments: (
        module.close() if slot == "get_function" else None
    )
    with pytest.warns(DeviceWarning, match="unloading a module: module_unload"):
        module.find_function("k")
    assert module.closed


@pytest.mark.parametrize("kind", ["stream", "event"])
def test_an_end_that_fails_later_is_a_warning(bench: Bench, kind: str) -> None:
    stream = bench.busy_stream()
    victim: Stream | Event = stream if kind == "stream" else stream.record_event()
    handle = victim.handle
    bench.driver.failures[f"{kind}_destroy"] = [INVALID_HANDLE]
    bench.driver.forgive(kind, handle)

    def close(slot: str, arguments: tuple[Any, ...]) -> None:
        if slot == f"{kind}_synchronize":
            victim.close()

    bench.driver.on_call = close
    with pytest.warns(DeviceWarning, match=f"closing .*{kind}_destroy"):
        victim.synchronize()
    bench.driver.on_call = lambda slot, arguments: None
    assert victim.closed
    assert DeviceBuffer.zeros(1, "u8").to_numpy().tolist() == [0]


def test_a_closed_device_goes_when_what_its_streams_held_is_done(bench: Bench) -> None:
    """Memory held for a stream can keep its device alive: a wait on another device frees both."""
    context = bench.driver.open_context(1)
    device = context.device
    stream = Stream(device=device)
    bench.driver.busy.add(stream.handle)
    owner = DeviceBuffer.uninitialized(4, "f32", device=device)
    address = owner.as_device_ptr()
    with DeviceBuffer.from_raw(address, 4, "f32", device=device, owner=owner) as raw:
        raw.set_32(1, stream=stream)
    open_contexts = live_counts()["contexts"]
    context.close()
    del context, device, stream, owner, raw
    gc.collect()
    assert live_counts()["contexts"] == open_contexts
    bench.driver.busy.clear()
    bench.context.synchronize()
    gc.collect()
    assert live_counts()["contexts"] == open_contexts - 1
