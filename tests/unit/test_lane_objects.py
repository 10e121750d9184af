"""The lane's objects in Python: identity, text, weak references, and complete construction."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.children import check_child
from tests.counting_bench import Bench, use
from tests.counting_driver import CountingDriver
from uhal import (
    BoundLaunch,
    DeviceBuffer,
    DevicePointer,
    Event,
    EventFlags,
    Function,
    HostBuffer,
    LaunchConfig,
    Stream,
    StreamFlags,
    _lane,
    launch,
)
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NotSupportedError,
)


def one_of_each(bench: Bench) -> dict[str, Any]:
    function = bench.function("f32* x", "kernel")
    return {
        "stream": Stream(),
        "event": Event(),
        "buffer": bench.buffer(3),
        "view": bench.buffer(9)[1:3],
        "pinned": HostBuffer(5, "u8"),
        "function": function,
        "bound": function[(2, 3), 4, 16],
        "pointer": DevicePointer(0xFF),
    }


def test_reprs_say_what_it_is(bench: Bench) -> None:
    things = one_of_each(bench)
    stream = things["stream"]
    assert repr(stream) == f"<Stream {stream.id} on counting:0>"
    assert repr(things["event"]) == "<Event on counting:0>"
    assert repr(things["buffer"]) == "<DeviceBuffer 3 × f32 on counting:0>"
    assert repr(things["view"]) == "<DeviceBuffer 2 × f32 on counting:0>"
    assert repr(things["pinned"]) == "<HostBuffer 5 × u8>"
    assert repr(things["function"]) == "<Function kernel(f32* x) on counting:0>"
    default = Stream.default().id
    assert repr(things["bound"]) == f"<kernel[(2, 3, 1), (4, 1, 1), 16] on stream {default}>"
    assert repr(things["pointer"]) == "DevicePointer(0xff)"
    assert repr(bench.context) == "<Context counting:0>"
    for name in ("stream", "event", "buffer", "pinned"):
        things[name].close()
        assert repr(things[name]).endswith("closed>")


@pytest.mark.parametrize(
    "name", ["stream", "event", "buffer", "view", "pinned", "function", "bound", "pointer"]
)
def test_copies_and_pickles_are_refused(bench: Bench, name: str) -> None:
    thing = one_of_each(bench)[name]
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            act(thing)


def test_weak_references(bench: Bench) -> None:
    things = one_of_each(bench)
    names = ("stream", "event", "buffer", "view", "pinned", "function")
    references = [weakref.ref(things[name]) for name in names]
    assert all(reference() is not None for reference in references)
    things.clear()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(names)


def test_objects_are_initialized_once(bench: Bench) -> None:
    stream, event, function = Stream(), Event(), bench.function("")
    for again in (
        stream.__init__,  # type: ignore[misc]
        event.__init__,  # type: ignore[misc]
        lambda: function.__init__(None, 0, "", None, None),  # type: ignore[misc, arg-type]
    ):
        with pytest.raises((RuntimeError, TypeError)):
            again()
    with pytest.raises(TypeError, match="made by from_numpy"):
        DeviceBuffer()
    with pytest.raises(TypeError, match="made by function"):
        BoundLaunch()


def test_device_pointers_are_addresses(bench: Bench) -> None:
    pointer = DevicePointer(1000)
    assert (pointer + 24, pointer - 1000) == (DevicePointer(1024), DevicePointer(0))
    assert (int(pointer), hex(pointer), pointer.address) == (1000, "0x3e8", 1000)
    assert len({pointer, DevicePointer(1000), DevicePointer(1)}) == 2
    assert pointer != object()
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match="expected 0"):
            DevicePointer(wrong)
    for wrong_type in ("1", 1.0, None, True):
        with pytest.raises(TypeError, match="expected an int"):
            DevicePointer(wrong_type)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected 0"):
        pointer - 1001
    with pytest.raises(TypeError):
        pointer + 1.0  # type: ignore[operator]


# -- streams and events, checked by the driver's calls ---------------------------------------------


def test_a_stream_is_made_as_asked_and_destroyed_once(bench: Bench) -> None:
    bench.quiet()
    with Stream(StreamFlags.NON_BLOCKING, priority=-1) as stream:
        handle = stream.handle
    stream.close()
    del stream
    gc.collect()
    (created,) = [a for slot, a in bench.driver.calls if slot == "stream_create"]
    assert created[1:] == (1, -1)
    assert [a for slot, a in bench.driver.calls if slot == "stream_destroy"] == [(handle,)]


def test_priorities_are_clamped(bench: Bench) -> None:
    bench.quiet()
    found = [Stream(priority=priority).priority for priority in (-9, -2, -1, 0, 9)]
    assert found == [-2, -2, -1, 0, 0]


def test_a_wrapped_stream_is_never_destroyed_and_keeps_its_owner(bench: Bench) -> None:
    class Owner:
        __cuda_stream__ = (0, 0xFEED)

    bench.driver.foreign_streams.add(0xFEED)
    owner = Owner()
    reference = weakref.ref(owner)
    stream = Stream.from_handle(owner)
    del owner
    gc.collect()
    assert stream.handle == 0xFEED
    assert reference() is not None
    bench.quiet()
    stream.close()
    del stream
    gc.collect()
    assert reference() is None
    assert bench.driver.count("stream_destroy") == 0


def test_wrapped_streams_are_equal_by_their_handles(bench: Bench) -> None:
    bench.driver.foreign_streams |= {0xFEED, 0xBEEF}
    one, same, other = (Stream.from_handle(handle) for handle in (0xFEED, 0xFEED, 0xBEEF))
    own = Stream()
    assert one == same and hash(one) == hash(same)
    assert one != other and one != own and own != Stream() and own == own
    assert one != 0xFEED


@pytest.mark.parametrize("kind", [Stream.legacy, Stream.per_thread])
def test_special_streams_a_driver_has_not(bench: Bench, kind: Callable[[], Stream]) -> None:
    with pytest.raises(NotSupportedError, match=r"Stream\.default\(\) is the device's own"):
        kind()


def test_stream_ids_are_never_used_again(bench: Bench) -> None:
    seen = set()
    for _ in range(100):
        with Stream() as stream:
            assert stream.id not in seen
            seen.add(stream.id)


def test_callbacks_run_off_the_drivers_thread_and_need_no_gil_there(bench: Bench) -> None:
    called: list[tuple[int, int]] = []
    done = threading.Event()
    stream = Stream()
    for number in range(5):
        stream.add_callback(lambda n: called.append((n, threading.get_ident())), number)
    stream.add_callback(done.set)
    assert called == []
    driver_thread = threading.Thread(target=bench.driver.run_callbacks, args=(stream.handle,))
    driver_thread.start()
    driver_thread.join()
    assert done.wait(30)
    assert [number for number, _ in called] == [0, 1, 2, 3, 4]
    assert driver_thread.ident not in {thread for _, thread in called}


def test_a_thread_that_cannot_start_silences_no_later_callback() -> None:
    assert check_child(call_back_in_spite_of_a_failed_start) == "called\n"


def call_back_in_spite_of_a_failed_start() -> None:
    start = threading.Thread.start
    driver = CountingDriver()
    context = driver.open_context()
    with context.device, Stream() as stream:

        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        threading.Thread.start = fail  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"add_callback: expected a thread .* not added"):
                stream.add_callback(print, "never")
        assert driver.count("stream_callback") == 0
        threading.Thread.start = start  # type: ignore[method-assign]
        done = threading.Event()
        stream.add_callback(print, "called")
        stream.add_callback(done.set)
        driver.run_callbacks(stream.handle)
        assert done.wait(30)


def test_a_callback_the_driver_refused_is_let_go(bench: Bench) -> None:
    class Argument:
        pass

    argument = Argument()
    reference = weakref.ref(argument)
    stream = Stream()
    bench.driver.failures["stream_callback"] = [400]
    with pytest.raises(InvalidHandleError):
        stream.add_callback(print, argument)
    del argument
    gc.collect()
    assert reference() is None


# -- copies, call by call --------------------------------------------------------------------------


def copies(bench: Bench) -> list[str]:
    asked = ("current", "bind", "stream_query", "event_query", "get_function", "module_unload")
    return [slot for slot in bench.driver.slots(*asked) if slot != "launch"]


def test_times_are_told_between_marks_that_have_them(bench: Bench) -> None:
    silent, pending, start, end = Event(EventFlags.DISABLE_TIMING), Event(), Event(), Event()
    for event in (silent, start, end):
        event.record()
    pending.record(bench.busy_stream())
    for wrong, words in (
        (silent, "event was made with EventFlags.DISABLE_TIMING"),
        (pending, "event is still pending"),
        (Event(), "event was never recorded"),
    ):
        with pytest.raises(ArgumentValueError, match=f"the start {words}"):
            end.elapsed_since(wrong)
        with pytest.raises(ArgumentValueError, match=f"the end {words}"):
            wrong.elapsed_since(start)
    assert bench.driver.count("event_elapsed") == 0
    end.elapsed_since(start)
    assert bench.driver.count("event_elapsed") == 1


def test_an_overlapping_copy_goes_through_a_temporary(bench: Bench) -> None:
    buffer = DeviceBuffer.from_numpy(np.arange(100, dtype="u4"))
    bench.quiet()
    buffer[10:60].copy_from(buffer[:50])
    assert copies(bench) == ["copy_d2d", "copy_d2d"]
    bench.quiet()
    for one, other in ((buffer[50:], buffer[:50]), (buffer[:50], buffer[50:])):
        bench.quiet()
        one.copy_from(other)
        assert copies(bench) == ["copy_d2d"]
    bench.quiet()
    buffer[:].copy_from(buffer)
    assert copies(bench) == []


def test_a_synchronous_copy_waits_for_uses_in_every_stream(bench: Bench) -> None:
    buffer = DeviceBuffer.zeros(100, "u4")
    streams = [bench.busy_stream() for _ in range(2)]
    for stream in streams:
        use(bench, stream, buffer.view("u32"))
    bench.quiet()
    buffer.to_numpy()
    waits = [a for slot, a in bench.driver.calls if slot == "stream_wait_event"]
    assert len(waits) == 2
    assert {wait[0] for wait in waits} == {Stream.default().handle}
    bench.quiet()
    buffer.to_numpy(stream=streams[0])
    assert bench.driver.count("stream_wait_event") == 0


def without_peer() -> CountingDriver:
    return CountingDriver(without=("copy_peer",))


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param(["copy_peer"], id="peer"),
        pytest.param(
            ["copy_d2h", "copy_h2d"], id="host", marks=pytest.mark.bench(driver=without_peer)
        ),
    ],
)
def test_copies_between_devices(bench: Bench, slots: list[str]) -> None:
    foreign_context = bench.driver.open_context(1)
    _lane.push_context(foreign_context)
    foreign = DeviceBuffer.from_numpy(np.arange(50, dtype="u4"))
    _lane.pop_context()
    buffer = DeviceBuffer.zeros(50, "u4")
    Stream.default().synchronize()
    bench.quiet()
    buffer.copy_from(foreign)
    assert [slot for slot in copies(bench) if slot.startswith("copy")] == slots
    assert np.array_equal(buffer.to_numpy(), np.arange(50))
    if slots == ["copy_peer"]:
        (call,) = [a for slot, a in bench.driver.calls if slot == "copy_peer"]
        assert (call[1], call[3]) == (bench.context.token, foreign_context.token)
    del foreign, foreign_context


@pytest.mark.parametrize("pending", [0, 600])
def test_a_pinned_copy_is_held_until_it_is_done(bench: Bench, pending: int) -> None:
    stream = bench.busy_stream()
    nothing = bench.function("")[1, 1, 0, stream]
    for _ in range(pending):
        nothing()
    buffer, pinned = bench.buffer(8), HostBuffer(8, "f32")
    array = pinned.array
    buffer.copy_from_async(pinned, stream)
    pinned.close()
    del pinned, array
    gc.collect()
    assert bench.driver.count("host_free") == 0
    stream.synchronize()
    assert bench.driver.count("host_free") == 1


# -- launches without any --------------------------------------------------------------------------


def test_an_empty_configuration_launches_nothing(bench: Bench) -> None:
    function = bench.function("u32 n")
    empty = LaunchConfig.for_num_elems(0, device=bench.device)
    assert empty.is_empty
    bench.quiet()
    launch(function, config=empty, args=(1,))
    function[empty](1)
    function[empty, Stream.default()](1)
    assert bench.driver.calls == []


def test_functions_may_be_subclassed_and_hashed(bench: Bench) -> None:
    function = bench.function("")
    assert {function: 1}[function] == 1
    assert function != bench.function("")
    assert isinstance(function, Function)
    with pytest.raises(ArgumentTypeError):
        launch(type(function), 1, 1)  # type: ignore[arg-type]


# -- the hot table ---------------------------------------------------------------------------------


def test_a_hot_table_says_what_is_wrong_with_it() -> None:
    prototypes = _lane.slot_prototypes()
    required = {name: 1 for name, (need, _) in prototypes.items() if need == "required"}
    assert {need for need, _ in prototypes.values()} == {"required", "optional"}
    table = _lane.HotTable(required, not_ready=600, out_of_memory=2)
    assert table.slots["launch"] == 1
    assert table.slots["launch_ex"] == 0
    for name in required:
        with pytest.raises(ValueError, match=f"slot '{name}' of the hot table is required"):
            _lane.HotTable({**required, name: 0}, not_ready=600, out_of_memory=2)
    with pytest.raises(ValueError, match="no slot of the hot table is called lunch"):
        _lane.HotTable({**required, "lunch": 1}, not_ready=600, out_of_memory=2)
    with pytest.raises(ValueError, match="at most 16 sticky codes, got 17"):
        _lane.HotTable(required, not_ready=600, out_of_memory=2, sticky=range(17))


def test_a_device_error_is_the_base_of_every_refusal(bench: Bench) -> None:
    buffer = bench.buffer()
    buffer.close()
    with pytest.raises(DeviceError):
        buffer.to_numpy()
