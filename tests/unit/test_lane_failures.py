"""Each native call fails once with an ordinary code: the error is right, and nothing leaks."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench, use
from uhal import DeviceBuffer, Event, Function, HostBuffer, Stream, _lane
from uhal.errors import DeviceWarning, InvalidHandleError

INVALID_HANDLE = 400


def current_context() -> _lane.Context:
    context = _lane.current_context()
    assert context is not None
    return context


class Props:
    """Arguments of the calls, created before any call fails."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.busy = bench.busy_stream()
        self.stream = Stream()
        self.buffer = DeviceBuffer.from_numpy(np.arange(8, dtype="f4"))
        self.other = DeviceBuffer.zeros(8, "f32")
        self.native = DeviceBuffer.uninitialized_async(8, "f32", self.stream, native=True)
        self.pinned = HostBuffer(8, "f32")
        self.event = self.stream.record_event()
        self.start = self.stream.record_event()
        self.pending = self.busy.record_event()
        self.kernel = bench.function("f32* x")
        self.bound = self.kernel[1, 1]
        self.module = _lane.ModuleHandle(bench.context, bench.driver._fresh("module"))
        foreign = bench.driver.open_context(1)
        _lane.push_context(foreign)
        self.foreign = DeviceBuffer.zeros(8, "f32")
        _lane.pop_context()
        # a block whose last work is still pending in `busy`
        freed = bench.buffer(100_000)
        use(bench, self.busy, freed)
        freed.close()
        self.reused = bench.buffer(100_000)
        self.cached = bench.buffer(1 << 20)
        self.cached.close()

    def make_busy(self) -> None:
        self.bench.driver.busy.add(self.busy.handle)

    def function(self) -> Function:
        attributes = self.bench.driver.function_attributes(0, "k")
        return Function(self.module, 1, "k", self.kernel.signature, attributes)


@dataclass(frozen=True)
class Site:
    """One call of a slot."""

    slot: str
    name: str
    act: Callable[[Props], Any]


def sites() -> list[Site]:
    rows: list[tuple[str, str, Callable[[Props], Any]]] = [
        ("current", "launch", lambda p: p.kernel[1, 1](p.buffer)),
        ("current", "stream", lambda p: Stream()),
        ("current", "from_numpy", lambda p: DeviceBuffer.from_numpy(np.zeros(3))),
        ("current", "set_8", lambda p: p.buffer.set_8(1)),
        ("current", "enter", lambda p: p.bench.context.enter().__enter__()),
        ("launch", "launch", lambda p: p.kernel[1, 1](p.buffer)),
        ("launch", "bound", lambda p: p.bound(p.buffer)),
        ("launch", "untyped", lambda p: p.bench.function(None)[1, 1](p.buffer)),
        ("prepare_function", "function", lambda p: p.function()),
        ("alloc", "segment", lambda p: p.bench.buffer(1 << 22)),
        ("free", "empty_cache", lambda p: p.bench.device.empty_cache()),
        ("alloc_async", "native", lambda p: _native(p)),
        ("free_async", "native", lambda p: p.native.close()),
        ("host_alloc", "pinned", lambda p: HostBuffer(8, "f32")),
        ("copy_h2d", "from_numpy", lambda p: DeviceBuffer.from_numpy(np.zeros(3))),
        ("copy_h2d", "copy_from", lambda p: p.buffer.copy_from(np.zeros(8, "f4"))),
        ("copy_h2d", "large", lambda p: DeviceBuffer.from_numpy(np.zeros(100_000))),
        ("copy_h2d", "pinned", lambda p: p.buffer.copy_from_async(p.pinned, p.stream)),
        ("copy_d2h", "to_numpy", lambda p: p.buffer.to_numpy()),
        ("copy_d2h", "pinned", lambda p: p.buffer.copy_to_async(p.pinned, p.stream)),
        ("copy_d2d", "copy_from", lambda p: p.buffer.copy_from(p.other)),
        ("copy_d2d", "overlap", lambda p: p.buffer[1:].copy_from(p.buffer[:-1])),
        ("copy_peer", "copy_from", lambda p: p.buffer.copy_from(p.foreign)),
        ("memset_8", "set_8", lambda p: p.buffer.set_8(1)),
        ("memset_8", "zeros", lambda p: DeviceBuffer.zeros(8, "f32")),
        ("memset_16", "set_16", lambda p: p.buffer.set_16(1)),
        ("memset_32", "set_32", lambda p: p.buffer.set_32(1)),
        ("stream_create", "stream", lambda p: Stream()),
        ("stream_create", "context", lambda p: p.bench.driver.open_context()),
        ("stream_synchronize", "stream", lambda p: p.busy.synchronize()),
        ("stream_synchronize", "device", lambda p: p.bench.device.synchronize()),
        ("stream_synchronize", "to_numpy", lambda p: p.buffer.to_numpy(stream=p.busy)),
        ("stream_query", "query", lambda p: p.busy.query()),
        ("stream_query", "synchronize", lambda p: p.busy.synchronize()),
        ("stream_query", "device", lambda p: p.bench.device.synchronize()),
        ("stream_query", "reuse", lambda p: p.kernel[1, 1](p.reused)),
        ("stream_wait_event", "wait_event", lambda p: p.stream.wait_event(p.pending)),
        ("stream_wait_event", "reuse", lambda p: p.kernel[1, 1](p.reused)),
        ("stream_callback", "callback", lambda p: p.stream.add_callback(print)),
        ("event_create", "event", lambda p: Event()),
        ("event_create", "reuse", lambda p: p.kernel[1, 1](p.reused)),
        ("event_create", "record_event", lambda p: p.stream.record_event()),
        ("event_record", "record", lambda p: p.event.record(p.stream)),
        ("event_record", "record_event", lambda p: p.stream.record_event()),
        ("event_record", "reuse", lambda p: p.kernel[1, 1](p.reused)),
        ("event_synchronize", "synchronize", lambda p: p.pending.synchronize()),
        ("event_query", "query", lambda p: p.pending.query()),
        ("event_query", "synchronize", lambda p: p.event.synchronize()),
        ("event_query", "elapsed", lambda p: p.event.elapsed_since(p.start)),
        ("event_elapsed", "elapsed", lambda p: p.event.elapsed_since(p.start)),
        ("get_function", "find", lambda p: p.module.find_function("k")),
    ]
    return [Site(*row) for row in rows]


def _native(p: Props) -> DeviceBuffer:
    return DeviceBuffer.uninitialized_async(8, "f32", p.stream, native=True)


@pytest.mark.parametrize("site", sites(), ids=lambda site: f"{site.slot}-{site.name}")
def test_an_ordinary_failure_is_told_once_and_leaves_nothing(bench: Bench, site: Site) -> None:
    props = Props(bench)
    gc.collect()
    before = _lane.live_counts()
    driver = bench.driver
    driver.failures[site.slot] = [INVALID_HANDLE]
    with pytest.raises(InvalidHandleError) as caught:
        site.act(props)
    error = caught.value
    assert driver.failures == {site.slot: []}, "the slot was not called"
    call = {"launch": "countLaunchKernel"}.get(site.slot, site.slot)
    assert (error.call, error.code, error.name) == (call, INVALID_HANDLE, "INVALID_HANDLE")
    assert str(error) == f"{call}: INVALID_HANDLE (400): as the test asked."
    assert bench.context.lost is None
    del caught, error
    gc.collect()
    after = _lane.live_counts()
    if (site.slot, site.name) == ("free_async", "native"):
        # the buffer is closed, although the driver kept its memory
        before["buffers"] -= 1
        driver.live["allocation"].discard(driver.calls[-1][1][0])
        driver.forgive()
    if site.slot == "free":
        driver.forgive()
    assert after == before
    props.make_busy()
    if site.slot != "free_async":
        site.act(props)


@pytest.mark.parametrize(
    ("slot", "kind", "make"),
    [
        ("stream_destroy", "stream", Stream),
        ("event_destroy", "event", Event),
        (
            "module_unload",
            "module",
            lambda: _lane.ModuleHandle(current_context(), 0),
        ),
    ],
)
def test_a_close_that_fails_says_so_and_has_closed(
    bench: Bench, slot: str, kind: str, make: Callable[[], Any]
) -> None:
    thing = make()
    bench.driver.failures[slot] = [INVALID_HANDLE]
    before = _lane.live_counts()[f"{kind}s"]
    with pytest.raises(InvalidHandleError, match=slot):
        thing.close()
    assert thing.closed
    assert _lane.live_counts()[f"{kind}s"] == before - 1
    thing.close()
    bench.driver.forgive()


@pytest.mark.parametrize(
    ("slot", "make"),
    [
        ("event_record", lambda bench: bench.busy_stream().record_event().close()),
        ("module_unload", lambda bench: bench.function("")),
        ("free_async", lambda bench: _native_on_default()),
    ],
)
def test_a_destructor_warns_and_never_raises(
    bench: Bench, slot: str, make: Callable[[Bench], Any]
) -> None:
    with pytest.warns(DeviceWarning, match="INVALID_HANDLE"):
        if slot == "event_record":
            stream = bench.busy_stream()
            stream.record_event().close()
            bench.driver.failures[slot] = [INVALID_HANDLE]
            del stream
        else:
            thing = make(bench)
            bench.driver.failures[slot] = [INVALID_HANDLE]
            del thing
        gc.collect()
    assert bench.driver.failures[slot] == []
    bench.driver.forgive()


def _native_on_default() -> DeviceBuffer:
    return DeviceBuffer.uninitialized_async(8, "f32", Stream.default(), native=True)


def test_a_warning_made_an_error_does_not_escape_a_destructor(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    function = bench.function("")
    bench.driver.failures["module_unload"] = [INVALID_HANDLE]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del function
        gc.collect()
    assert capsys.readouterr().err == ""
    bench.driver.forgive()


# -- whose device is current -----------------------------------------------------------------------

SOMEBODY_ELSES = 0xAAAA
ACTS: dict[str, Callable[[Props], Any]] = {
    f"{site.slot}-{site.name}": site.act
    for site in sites()
    if site.name not in ("enter", "context", "find") and site.slot not in ("free_async",)
}


@pytest.mark.parametrize("act", ACTS)
def test_the_callers_current_device_is_restored(bench: Bench, act: str) -> None:
    props = Props(bench)
    bench.driver.current = SOMEBODY_ELSES
    ACTS[act](props)
    assert bench.driver.current == SOMEBODY_ELSES


@pytest.mark.parametrize("act", [act for act in ACTS if not act.startswith("current-")])
def test_the_callers_current_device_is_restored_after_a_failure(bench: Bench, act: str) -> None:
    slot = act.partition("-")[0]
    props = Props(bench)
    bench.driver.failures[slot] = [INVALID_HANDLE]
    bench.driver.current = SOMEBODY_ELSES
    with pytest.raises(InvalidHandleError):
        ACTS[act](props)
    assert bench.driver.current == SOMEBODY_ELSES
    bench.driver.forgive()


def test_a_device_that_is_current_already_is_not_bound_again(bench: Bench) -> None:
    props = Props(bench)
    bench.driver.current = bench.context.token
    bench.quiet()
    props.bound(props.buffer)
    assert bench.driver.slots("none") == ["current", "launch"]


def test_a_bind_that_fails_is_told(bench: Bench) -> None:
    props = Props(bench)
    bench.driver.current = SOMEBODY_ELSES
    bench.driver.failures["bind"] = [INVALID_HANDLE]
    bench.quiet()
    with pytest.raises(InvalidHandleError, match="bind: INVALID_HANDLE"):
        props.bound(props.buffer)
    assert bench.driver.count("launch") == 0
    assert bench.driver.current == SOMEBODY_ELSES
    props.bound(props.buffer)
