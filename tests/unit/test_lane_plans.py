"""The driver's calls for a capture and a replay, and its refusals."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.counting_driver import CountingDriver
from uhal import _lane, launch
from uhal.contract import CaptureStatus, ExecutableGraph
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    CaptureError,
    DeviceError,
    InvalidHandleError,
    OutOfMemoryError,
    from_code,
)
from uhal.signature import Signature

SIGNATURE = Signature.parse("u32 n, u64 pos, f32* x")
BOOKS = ("current", "bind", "stream_query", "event_record", "event_query", "event_create")


class GraphDriver(CountingDriver):
    """A counting driver with graphs: it counts the launches of a capture."""

    dlpack_device_type = 2

    def __init__(self) -> None:
        super().__init__()
        self.graphs: set[int] = set()
        self.fail_at = ""
        self.captures = True
        self._begun = 0

    def _step(self, name: str) -> None:
        self.calls.append((name, ()))
        if self.fail_at == name:
            raise from_code(self, name, 1)

    def begin_capture(self, stream: int) -> bool:
        self._step("begin_capture")
        self._begun = self.count("launch")
        return self.captures

    def capture_status(self, stream: int) -> CaptureStatus:
        return "none"

    def end_capture(self, stream: int) -> int:
        self._step("end_capture")
        self.graphs.add(0x77)
        return 0x77

    def instantiate_graph(self, graph: int) -> ExecutableGraph:
        self._step("instantiate_graph")
        self.graphs.add(0x88)
        return ExecutableGraph(0x88, tuple(range(1, self.count("launch") - self._begun + 1)))

    def destroy_graph(self, graph: int) -> None:
        self._step("destroy_graph")
        self.graphs.remove(graph)

    def destroy_executable_graph(self, executable: int) -> None:
        self._step("destroy_executable_graph")
        self.graphs.remove(executable)


class Bench:
    """A stream, a kernel and memory of a driver that captures."""

    def __init__(self) -> None:
        self.driver = GraphDriver()
        self.context = self.driver.open_context()
        self.device = self.context.device
        self.stream = _lane.Stream(device=self.device)
        self.kernel = self.driver.function(self.context, SIGNATURE, "rope")
        self.x = _lane.DeviceBuffer.uninitialized(64, "f32", device=self.device)

    def launch(self, n: object = 1, pos: object = 2) -> None:
        launch(self.kernel, 1, 1, (n, pos, self.x), stream=self.stream)

    def slots_called(self) -> list[str]:
        called = self.driver.slots(*BOOKS)
        self.driver.calls.clear()
        return called


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    before = _lane.live_counts()
    yield bench
    gc.collect()
    after = _lane.live_counts()
    assert after == before
    assert not bench.driver.graphs
    assert not bench.driver.misuse


def test_a_replay_is_one_call_and_one_for_each_changed_launch(bench: Bench) -> None:
    with bench.stream.capture() as plan:
        pos = plan.slot("pos", 3)
        for _ in range(4):
            bench.launch()
        bench.launch(pos=pos)
        bench.launch(n=pos, pos=pos)
    bench.slots_called()
    plan.replay()
    assert bench.slots_called() == ["graph_launch"]
    plan.replay(pos=3)
    assert bench.slots_called() == ["graph_launch"]
    plan.replay(pos=4)
    assert bench.slots_called() == ["graph_update_kernel"] * 2 + ["graph_launch"]
    for wrong, error in ((-1, ArgumentRangeError), (2**32, ArgumentRangeError)):
        with pytest.raises(error, match=r"plan 'test_lane_plans.py:\d+', slot 'pos': rope, arg"):
            plan.replay(pos=wrong)
    assert bench.slots_called() == []
    plan.replay()
    assert bench.slots_called() == ["graph_launch"]
    plan.close()


def test_a_refused_change_is_made_by_the_next_replay(bench: Bench) -> None:
    with bench.stream.capture() as plan:
        pos = plan.slot("pos", 3)
        bench.launch(pos=pos)
        bench.launch(pos=pos)
    bench.slots_called()
    bench.driver.failures["graph_update_kernel"] = [0, 1]
    with pytest.raises(DeviceError, match="graph_update_kernel"):
        plan.replay(pos=4)
    assert bench.slots_called() == ["graph_update_kernel"] * 2
    plan.replay()
    assert bench.slots_called() == ["graph_update_kernel", "graph_launch"]
    bench.driver.failures["graph_launch"] = [2]
    with pytest.raises(OutOfMemoryError, match="graph_launch"):
        plan.replay()
    plan.close()


def test_a_replay_without_a_graph_is_a_series(bench: Bench) -> None:
    """A driver that batches learns where a series begins and ends, also if a launch fails."""
    bench.driver.captures = False
    with bench.stream.capture() as plan:
        for _ in range(3):
            bench.launch()
    bench.slots_called()
    plan.replay()
    series = [call for call in bench.driver.calls if call[0] == "stream_series"]
    handle = bench.stream.handle
    assert series == [("stream_series", (handle, 1)), ("stream_series", (handle, 0))]
    assert bench.slots_called() == ["stream_series", *["launch"] * 3, "stream_series"]
    bench.driver.failures["launch"] = [0, 1]
    with pytest.raises(ArgumentValueError, match="countLaunchKernel"):
        plan.replay()
    assert bench.slots_called() == ["stream_series", *["launch"] * 2, "stream_series"]
    bench.driver.failures["stream_series"] = [2]
    with pytest.raises(OutOfMemoryError):
        plan.replay()
    assert bench.slots_called() == ["stream_series"] * 2
    plan.close()


@pytest.mark.parametrize("step", ["begin_capture", "end_capture", "instantiate_graph"])
def test_a_driver_that_refuses_a_step_leaves_the_stream_usable(bench: Bench, step: str) -> None:
    bench.driver.fail_at = step
    with pytest.raises(DeviceError, match=f"^{step}: "), bench.stream.capture() as plan:
        bench.launch()
    bench.driver.fail_at = ""
    bench.slots_called()
    bench.launch()
    bench.stream.synchronize()
    assert bench.slots_called() == ["launch"]
    if step != "begin_capture":
        assert plan.closed


def test_a_failing_launch_does_not_count(bench: Bench) -> None:
    with bench.stream.capture() as plan:
        bench.launch()
        bench.driver.failures["launch"] = [1]
        with pytest.raises(DeviceError):
            bench.launch()
    assert plan.kernels == ("rope",)
    plan.close()


def test_launches_unknown_to_uhal_and_slots_do_not_go_together(bench: Bench) -> None:
    expected = "list the 1 kernel that uhal launched into plan 'p', got 0"
    with pytest.raises(CaptureError, match=expected):
        with bench.stream.capture("p") as plan:
            bench.launch(pos=plan.slot("pos", 1))
            # another library launched on the same stream
            bench.driver.calls.extend([("launch", ())] * 2)


def test_a_closed_buffer_is_given_back_with_the_plan(bench: Bench) -> None:
    in_use = bench.context.pool_statistics()["blocks_in_use"]
    y = _lane.DeviceBuffer.uninitialized(64, "f32", device=bench.device)
    with bench.stream.capture() as plan:
        launch(bench.kernel, 1, 1, (1, 2, y), stream=bench.stream)
    y.close()
    assert bench.context.pool_statistics()["blocks_in_use"] == in_use + 1
    plan.replay()
    bench.driver.busy.add(bench.stream.handle)
    plan.close()
    # closing the plan waited for the replay
    assert not bench.driver.busy
    assert bench.context.pool_statistics()["blocks_in_use"] == in_use


def test_a_copy_between_devices_is_refused(bench: Bench) -> None:
    other = bench.driver.open_context(1)
    far = _lane.DeviceBuffer.uninitialized(64, "f32", device=other.device)
    with bench.stream.capture() as plan:
        bench.slots_called()
        with pytest.raises(CaptureError, match=r"^a copy between devices: stream"):
            bench.x.copy_from_async(far, bench.stream)
        assert bench.slots_called() == []
    plan.close()


def test_what_another_device_does_meanwhile_is_its_own(bench: Bench) -> None:
    other = bench.driver.open_context(1)
    with bench.stream.capture() as plan:
        with _lane.DeviceBuffer.zeros(64, "f32", device=other.device) as far:
            far.to_numpy()
        other.synchronize()
        with pytest.raises(CaptureError, match=r"^Device\.synchronize: stream"):
            bench.context.synchronize()
        assert bench.context.empty_cache() == 0
    plan.close()


@pytest.mark.parametrize(("order", "joined"), [((0, 1), True), ((1, 0), True), ((0, 0), False)])
def test_a_capture_waits_for_events_in_any_order(
    bench: Bench, order: tuple[int, ...], joined: bool
) -> None:
    side = _lane.Stream(device=bench.device)
    begun, *events = (_lane.Event(device=bench.device) for _ in range(3))
    refused = pytest.raises(CaptureError, match="join") if not joined else nullcontext()
    with refused, bench.stream.capture() as plan:
        begun.record(bench.stream)
        side.wait_event(begun)
        for event in events:
            launch(bench.kernel, 1, 1, (1, 2, bench.x), stream=side)
            event.record(side)
        for which in order:
            bench.stream.wait_event(events[which])
    assert plan.closed is not joined
    plan.close()


def test_a_capture_reuses_memory_only_in_streams_that_come_after_its_use(bench: Bench) -> None:
    side = _lane.Stream(device=bench.device)
    begun, done = (_lane.Event(device=bench.device) for _ in range(2))

    def temporary(stream: _lane.Stream) -> int:
        bench.driver.calls.clear()
        with _lane.DeviceBuffer.uninitialized_async(64, "f32", stream) as buffer:
            buffer.set_32(0, stream=stream)
        (address,) = (a[0] for slot, a in bench.driver.calls if slot == "memset_32")
        return int(address)

    with bench.stream.capture() as plan:
        begun.record(bench.stream)
        side.wait_event(begun)
        first = temporary(side)
        assert temporary(side) == first
        second = temporary(bench.stream)
        assert second != first
        done.record(side)
        bench.stream.wait_event(done)
        held = _lane.DeviceBuffer.uninitialized_async(64, "f32", bench.stream)
        assert temporary(bench.stream) == first
        held.close()
    plan.close()


def test_a_slot_that_is_written_takes_no_read_only_memory(bench: Bench) -> None:
    reading = bench.driver.function(bench.context, Signature.parse("const f32* x"), "read")
    facts = {"shape": (64,), "typestr": "<f4", "version": 3}
    array = SimpleNamespace(
        __cuda_array_interface__={"data": (bench.x.as_device_ptr().address, True), **facts}
    )
    frozen = _lane.DeviceBuffer.from_cuda_array_interface(array, device=bench.device)
    for kernel, given in ((reading, ()), (bench.kernel, (1, 2))):
        with bench.stream.capture() as plan:
            launch(kernel, 1, 1, (*given, plan.slot("x", bench.x)), stream=bench.stream)
        bench.slots_called()
        if kernel is reading:
            plan.replay(x=frozen)
            assert bench.slots_called()[-1] == "graph_launch"
        else:
            with pytest.raises(ArgumentTypeError, match="expected a writable DeviceBuffer"):
                plan.replay(x=frozen)
            assert bench.slots_called() == []
        plan.close()


@pytest.mark.parametrize("names", [("low", "high"), ("high", "low")])
def test_slots_may_lie_next_to_each_other(bench: Bench, names: tuple[str, str]) -> None:
    parts = {"low": bench.x[:32], "high": bench.x[32:]}
    with bench.stream.capture() as plan:
        for name in names:
            plan.slot(name, parts[name])
        for clash in (bench.x[31:32], bench.x[32:33], bench.x[31:33]):
            with pytest.raises(ArgumentValueError, match="its memory overlaps that of slot"):
                plan.slot("clash", clash)
        # the last elements of a slot's buffer and the first elements of the next
        for part in (*parts.values(), bench.x[30:32], bench.x[32:34]):
            launch(bench.kernel, 1, 1, (1, 2, part), stream=bench.stream)
    bench.slots_called()
    with _lane.DeviceBuffer.uninitialized(32, "f32", device=bench.device) as other:
        for name in names:
            plan.replay(**{name: other})
            assert bench.slots_called() == ["graph_update_kernel"] * 2 + ["graph_launch"]
        plan.close()


def test_a_slot_takes_no_memory_of_another_device(bench: Bench) -> None:
    other = bench.driver.open_context(1)
    far = _lane.DeviceBuffer.uninitialized(64, "f32", device=other.device)
    with bench.stream.capture() as plan:
        with pytest.raises(ArgumentValueError, match=r"expected memory of Device\(0, "):
            plan.slot("far", far)
        launch(bench.kernel, 1, 1, (1, 2, plan.slot("x", bench.x)), stream=bench.stream)
    bench.slots_called()
    with pytest.raises(InvalidHandleError, match=r"on Device\(0, .* on Device\(1, "):
        plan.replay(x=far)
    assert bench.slots_called() == []
    plan.replay()
    assert bench.slots_called() == ["graph_launch"]
    plan.close()
