"""Traced graphs repeat the block's computation on the current memory."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from ubridge import ComputeGraph, DeviceTensor, execute_graph, trace
from ubridge.device import recording
from uhal import Device, DeviceBuffer, LaunchSequence, Passed, Plan, Stream, diagnostics
from uhal.errors import ArgumentValueError, DeviceError, NotFoundError
from uhal.frameworks import address_for

DEVICES = ("host", "cuda-sim")

Function = Callable[[DeviceTensor], DeviceTensor]


def chain(x: DeviceTensor) -> DeviceTensor:
    for step in range(1, 6):
        x = ub.tanh(x * 2 + step) - x
    return x


def strided(x: DeviceTensor) -> DeviceTensor:
    turned = ub.softmax(x.T[::2], axis=0) + x[0, 1]
    return ub.cat([turned, turned.expand_dims(0).squeeze(0)], axis=1)[:, 1:-1]


def in_place(x: DeviceTensor) -> DeviceTensor:
    total = ub.zeros(x.shape)
    total += x
    total[1:] = 7
    ub.index_add(total, [0, 2], x[:2], 0)
    total[:, ::2] = x[:, ::2]
    return total.sum(0)


def casts(x: DeviceTensor) -> DeviceTensor:
    positive = ub.where(x > 0, x, 0.5)
    return (positive.astype("f8") / 3).astype("f4") @ ub.ones((x.shape[1], 2))


def reductions(x: DeviceTensor) -> DeviceTensor:
    return ub.mean(x, 1) + x.max(1) - x[:, 0] * ub.argmin(x, 1)


FUNCTIONS = (chain, strided, in_place, casts, reductions)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_run_computes_the_same_of_other_numbers(
    function: Function, device: Device, rng: np.random.Generator
) -> None:
    x = ub.asarray(rng.standard_normal((5, 8)).astype("f4"))
    with trace() as graph:
        result = function(x)
    np.testing.assert_array_equal(result.to_numpy(), function(x).to_numpy())
    for _ in range(rounds(3, 50)):
        x.copy_from(ub.asarray(rng.standard_normal((5, 8)).astype("f4")))
        result.buffer.set_8(0xFF)
        assert execute_graph(graph).n_launches == graph.n_ops
        # The same kernels on the same numbers give the same bits.
        np.testing.assert_array_equal(result.to_numpy(), function(x).to_numpy())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_file_is_the_same_graph(
    function: Function, device: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    x = ub.asarray(rng.standard_normal((5, 8)).astype("f4"))
    with trace() as graph:
        graph.name(x, "x")
        result = function(x)
    graph.save(tmp_path / "graph.json")
    leaves = graph.leaves
    assert "x" in leaves
    other = ub.asarray(rng.standard_normal((5, 8)).astype("f4"))
    again = ComputeGraph.load(tmp_path / "graph.json", {**leaves, "x": other})
    execute_graph(again)
    assert again.n_ops == graph.n_ops
    assert again.memory.peak_bytes == graph.memory.peak_bytes
    (last,) = (
        node.index
        for node, old in zip(again.nodes, graph.nodes, strict=True)
        if graph.storages.values[old.index].storage == graph.storages.view_of(result.buffer).storage
        and graph.storages.latest[graph.storages.view_of(result.buffer).storage] == old.index
    )
    view = again.storages.values[last]
    flat = again.storages.resolve(view).to_numpy()
    x.copy_from(other)
    execute_graph(graph)
    old = graph.storages.resolve(graph.storages.values[last]).to_numpy()
    np.testing.assert_array_equal(flat, old)


def test_what_is_not_held_is_planned(device: Device, rng: np.random.Generator) -> None:
    x = ub.asarray(rng.standard_normal(1000).astype("f4"))
    with trace() as graph:
        middle = ub.exp(x)
        y = chain(middle)
    del middle
    assert graph.n_ops == 21
    # `middle` existed when the block ended, so it keeps its memory, as `y` does.
    assert graph.memory.unplanned_bytes == 19 * 4096
    assert graph.memory.peak_bytes <= 3 * 4096
    assert y.shape == (1000,)


def test_a_trace_holds_no_results(host: Device) -> None:
    before = diagnostics()["live"]["buffers"]
    x = ub.ones(10)
    with trace() as graph:
        y = chain(x)
        assert diagnostics()["live"]["buffers"] - before <= 4
    execute_graph(graph)
    del graph, x, y
    gc.collect()
    assert diagnostics()["live"]["buffers"] <= before + 2


def test_slots_of_a_trace(device: Device, rng: np.random.Generator) -> None:
    table = rng.standard_normal((7, 3)).astype("f4")
    x = ub.asarray(table)
    with trace() as graph:
        row = graph.scalar("row", 4, low=0, high=6)
        y = ub.take(x, row) * 2
    np.testing.assert_array_equal(y.to_numpy(), table[[4]] * 2)
    for given in rng.integers(0, 7, 3):
        execute_graph(graph, row=int(given))
        np.testing.assert_array_equal(y.to_numpy(), table[[given]] * 2)


def test_a_part_of_a_leaf_is_not_named(host: Device) -> None:
    x = ub.ones((4, 3))
    with trace() as graph:
        y = x[1:] * 2
        with pytest.raises(ArgumentValueError, match="name 'x': expected a tensor over all of its"):
            graph.name(x[1:], "x")
        graph.name(x, "x")
        with pytest.raises(ArgumentValueError, match="expected another one"):
            graph.name(y, "stream")
    assert "x" in graph.leaves


def test_other_threads_are_not_recorded(host: Device) -> None:
    x = ub.ones(10)
    done = []

    def work() -> None:
        for _ in range(5):
            DeviceBuffer.zeros(10, "f32", device=host).copy_from(ub.exp(x).buffer)
            done.append(True)

    with trace() as graph:
        y = x + 1
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(done) == 5
    assert graph.n_ops == 1
    assert y.to_numpy().sum() == 20


def test_an_error_in_the_block_ends_the_trace(host: Device) -> None:
    x = ub.ones((2, 3))
    with pytest.raises(ArgumentValueError), trace():
        ub.matmul(x, x)
    with trace() as graph, pytest.raises(DeviceError, match="being traced already"), trace():
        pass
    assert graph.n_ops == 0
    with trace() as graph:
        y = x + 1
    assert graph.n_ops == 1
    assert y.to_numpy().sum() == 12


def test_text_and_dot(host: Device) -> None:
    x = ub.ones((2, 3))
    with trace() as graph:
        graph.name(x, "input")
        y = graph.name(ub.exp(ub.silu(x) @ x.T), "scores")
    assert y.shape == (2, 2)
    lines = str(graph).splitlines()
    assert lines[0] == "graph of 3 operations; results take 512 bytes, 512 without reuse"
    assert lines[1].startswith("%0 = leaf 'input'()  (2, 3) f32  memory ")
    assert lines[2].startswith("%1 = Silu(%0)  (2, 3) f32  arena[")
    assert lines[3].startswith("%2 = MulMat(%0, %1)") or lines[3].startswith("%2 = MulMat(%1, %0)")
    assert lines[4].startswith("%3 = Exp 'scores'(%2)  (2, 2) f32  memory ")
    dot = graph.to_dot()
    assert dot.startswith("digraph {\n") and dot.endswith("}\n")
    assert dot.count("->") == 4
    assert "n3 [label=\"Exp 'scores'\\n(2, 2) f32\", shape=ellipse, peripheries=2];" in dot


@pytest.mark.parametrize(
    "text, error, message",
    [
        ("[]", ArgumentValueError, "expected a file of the format 'ubridge graph'"),
        ('{"format": "ubridge graph", "version": 9}', ArgumentValueError, "version 3, got 9"),
        (
            '{"format": "ubridge graph", "version": 1}',
            ArgumentValueError,
            "version 3, got 1; save it anew",
        ),
        ('{"format": "ubridge graph", "version": 3}', ArgumentValueError, "not a graph as save"),
    ],
)
def test_other_files_are_refused(
    host: Device, tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        ComputeGraph.load(path, {})


def test_leaves_of_a_file_are_checked(host: Device, tmp_path: Path) -> None:
    x = ub.ones((2, 3))
    with trace() as graph:
        graph.name(x, "x")
        y = ub.exp(x)
    graph.save(tmp_path / "graph.json")
    with pytest.raises(NotFoundError, match="the graph reads x: give them as leaves"):
        ComputeGraph.load(tmp_path / "graph.json", {})
    with pytest.raises(ArgumentValueError, match="x: expected memory of at least 24 bytes, got 20"):
        ComputeGraph.load(tmp_path / "graph.json", {"x": ub.ones(5)})
    assert y.shape == (2, 3)


def relu_into(x: DeviceBuffer, out: DeviceBuffer) -> None:
    """Launch a kernel outside of any operation; any kernel with a signature works."""
    kernel = ub.load_module("unary", device=x.device).get_function("urelu_f32")
    kernel[1, 32](x.size, 1, None, x, out)


def relu_sequence(size: int, device: Device) -> LaunchSequence:
    kernel = ub.load_module("unary", device=device).get_function("urelu_f32")
    given = (Passed.operand(1), 1, None, Passed.operand(0), Passed.result())
    return LaunchSequence([(kernel[1, 32], given)], size, "f32")


def own_sequence(x: DeviceTensor) -> DeviceTensor:
    sequence = relu_sequence(x.size, x.device)
    return DeviceTensor(sequence(None, None, (x + 1).buffer, x.size)) + 0


def own_launch(x: DeviceTensor) -> DeviceTensor:
    made = DeviceBuffer.uninitialized(x.size, "f32", device=x.device)
    relu_into((x + 1).buffer, made)
    return DeviceTensor(made) * 2


def own_fill(x: DeviceTensor) -> DeviceTensor:
    whole = (x + 1).buffer
    whole[: x.size // 2].set_32(0x3F800000)
    return DeviceTensor(whole) * 2


def own_copies(x: DeviceTensor) -> DeviceTensor:
    made, again = (DeviceBuffer.zeros(x.size, "f32", device=x.device) for _ in range(2))
    made.copy_from((x + 1).buffer)
    again.copy_from_async(made, Stream.default(x.device))
    return DeviceTensor(again) * 2


@pytest.mark.parametrize("function", (own_sequence, own_launch, own_fill, own_copies))
def test_a_program_s_own_work_is_run_again(
    function: Function, device: Device, rng: np.random.Generator
) -> None:
    def numbers() -> DeviceTensor:
        return ub.asarray(rng.standard_normal(16).astype("f4"))

    x = numbers()
    with trace() as graph:
        result = function(x)
    np.testing.assert_array_equal(result.to_numpy(), function(x).to_numpy())
    assert "Work(" in str(graph)
    with pytest.raises(ArgumentValueError, match="got work, which only this process"):
        graph.save("never written")
    plan = graph.instantiate(Stream())
    for run in (lambda: execute_graph(graph), plan.replay):
        x.copy_from(numbers())
        result.buffer.set_8(0xFF)
        device.synchronize()
        run()
        device.synchronize()
        np.testing.assert_array_equal(result.to_numpy(), function(x).to_numpy())
    x.copy_from(numbers())
    assert plan.verify()
    plan.close()


def refused_replay(x: DeviceTensor, plan: Plan) -> None:
    plan.replay()


def refused_library(x: DeviceTensor, plan: Plan) -> None:
    address_for(x.buffer, None)


def refused_pointer(x: DeviceTensor, plan: Plan) -> None:
    x.buffer.as_device_ptr()


def refused_rows(x: DeviceTensor, plan: Plan) -> None:
    x.buffer.copy_2d_from((x + 1).buffer, (2, 2), pitch=4, source_pitch=4)


def refused_upload(x: DeviceTensor, plan: Plan) -> None:
    (x + 1).buffer.copy_from(np.zeros(x.size, "f4"))


def refused_argument(x: DeviceTensor, plan: Plan) -> None:
    relu_into(x, x.buffer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "work",
    (
        refused_replay,
        refused_library,
        refused_pointer,
        refused_rows,
        refused_upload,
        refused_argument,
    ),
)
def test_work_that_no_run_can_repeat_is_refused_at_once(
    work: Callable[[DeviceTensor, Plan], None], device: Device
) -> None:
    x = ub.asarray(np.arange(16, dtype="f4"))
    stream = Stream()
    relu_into(x.buffer, x.buffer)
    with stream.capture() as plan:
        x.buffer.set_32(0, stream=stream)
    before = x.to_numpy()
    with trace(), pytest.raises(DeviceError, match="trace: "):
        work(x, plan)
    np.testing.assert_array_equal(x.to_numpy(), before)
    # The trace has ended.
    work(x, plan) if work is not refused_argument else relu_into(x.buffer, x.buffer)


def test_an_imported_result_is_the_result(device: Device, rng: np.random.Generator) -> None:
    """A trace identifies memory by its address, not by its buffer object."""
    x = ub.asarray(rng.standard_normal(16).astype("f4"))
    with trace() as graph:
        result = DeviceTensor(DeviceBuffer.from_dlpack(x + 1)) * 2
    x.copy_from(ub.asarray(rng.standard_normal(16).astype("f4")))
    execute_graph(graph)
    np.testing.assert_array_equal(result.to_numpy(), ((x + 1) * 2).to_numpy())


def test_a_capture_keeps_no_other_thread_from_uploading(
    device: Device, rng: np.random.Generator
) -> None:
    """During a capture, another thread can upload layouts and constants for the first time."""
    x = ub.asarray(rng.standard_normal((5, 8)).astype("f4"))
    with trace() as graph:
        result = chain(x)
    failures: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            with device:
                number = 2.5
                while not ended.is_set():
                    number += 1
                    ub.maximum(x[:, :: int(number) % 7 + 1], number)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            with graph.instantiate(Stream()) as plan:
                assert plan.verify()
    finally:
        ended.set()
        thread.join()
    assert not failures, failures
    assert result.shape == (5, 8)


class NoMemoryAtTheEnd:
    """A lock that cannot be taken the second time."""

    taken = 0

    def __enter__(self) -> None:
        self.taken += 1
        if self.taken == 2:
            raise MemoryError

    def __exit__(self, *error: object) -> None:
        pass


def test_a_trace_that_ends_without_memory_hears_nothing_more(
    host: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_lock", NoMemoryAtTheEnd())
    with pytest.raises(MemoryError), ub.trace() as first:
        ub.ones(3)
    count = len(first.nodes)
    with ub.trace() as graph:
        x = ub.ones(3) + 1
    assert len(first.nodes) == count and len(graph.nodes) > 0
    assert x.tolist() == [2, 2, 2]
    assert not recording.listened_to(host)


def test_a_trace_hears_its_own_task_of_asyncio_alone(
    device: Device, rng: np.random.Generator
) -> None:
    """A trace also records tasks that are created within it."""
    values = rng.standard_normal((5, 8)).astype("f4")
    x, y = ub.asarray(values), ub.asarray(values)
    ub.exp(x), ub.cos(y)
    heard: list[str] = []

    async def part() -> None:
        await asyncio.sleep(0)
        ub.exp(x)

    async def traced() -> None:
        with trace() as graph:
            await asyncio.gather(part(), asyncio.sleep(0))
            ub.exp(x)
        heard.append(str(graph))
        assert graph.n_ops == 2, graph

    async def others() -> None:
        for _ in range(4):
            await asyncio.sleep(0)
            ub.cos(y)

    async def both() -> None:
        await asyncio.gather(traced(), others())

    asyncio.run(both())
    assert "cos" not in heard[0].lower()
