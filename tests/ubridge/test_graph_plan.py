"""Graphs replayed as a whole: the same bits as a run, with other slots and leaves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.test_graph import Block
from ubridge import ComputeGraph, DeviceTensor, execute_graph, trace
from uhal import Device, Stream, diagnostics
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError, NotFoundError

DEVICES = ("host", "cuda-sim", "rocm-sim", "opencl")


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    with Stream(device=device) as stream:
        yield stream


class Step:
    """A traced step with strides, a product, a growing cache, and a slot for its position."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.x = ub.asarray(self.draw())
        self.weight = ub.asarray(rng.standard_normal((8, 8)).astype("f4"))
        self.cache = ub.zeros((1, 16, 8))
        with trace() as self.graph:
            self.graph.name(self.x, "x")
            position = self.graph.scalar("pos", 0, low=0, high=15)
            self.y = self.compute(position)

    def draw(self) -> np.ndarray:
        return self._rng.standard_normal((4, 8)).astype("f4")

    def compute(self, position: DeviceTensor) -> DeviceTensor:
        h = self.x @ self.weight
        for _ in range(3):
            h = ub.silu(h * 2 + 1) + self.x
        ub.kv_append(self.cache, h[1:2].reshape(1, 1, 8), position)
        return ub.softmax(h.T).sum(0) + self.cache.sum((0, 1))[:4]


def test_the_driver_counts_one_launch_for_each_operation(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    block = Block(rng)
    with block.graph.instantiate(stream) as plan:
        assert len(plan.plan.kernels) == block.graph.n_ops == 6
        assert list(plan.launches.values()) == [1] * 6
        plan.replay()
        stream.synchronize()
        got = block.out.to_numpy().reshape(block.shape)
        expected = block.expected()
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_replays_give_the_bits_of_runs(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    step = Step(rng)
    with step.graph.instantiate(stream) as plan:
        for _ in range(rounds(5, 100)):
            given = ub.asarray(step.draw())
            position = int(rng.integers(0, 16))
            before = step.cache.to_numpy()
            step.y.buffer.set_8(0xFF)
            device.synchronize()
            plan.replay(x=given, pos=position)
            stream.synchronize()
            replayed = step.y.to_numpy(), step.cache.to_numpy()
            step.x.copy_from(given)
            step.cache.copy_from(ub.asarray(before))
            execute_graph(step.graph, pos=position)
            np.testing.assert_array_equal(step.y.to_numpy(), replayed[0])
            np.testing.assert_array_equal(step.cache.to_numpy(), replayed[1])


def test_what_is_given_stays(device: Device, stream: Stream, rng: np.random.Generator) -> None:
    x = ub.asarray(rng.standard_normal(6).astype("f4"))
    with trace() as graph:
        graph.name(x, "x")
        y = x * 2 + graph.scalar("add", 1.0, "f4")
    first, second = (rng.standard_normal(6).astype("f4") for _ in range(2))
    with graph.instantiate(stream) as plan:
        for given, expected in (
            ({}, x.to_numpy() * 2 + 1),
            ({"x": first}, first * 2 + 1),
            ({"add": 3.0}, first * 2 + 3),
            ({"x": ub.asarray(second)}, second * 2 + 3),
            ({}, second * 2 + 3),
            ({"x": first, "add": -1}, first * 2 - 1),
        ):
            plan.replay(**given)
            stream.synchronize()
            np.testing.assert_array_equal(y.to_numpy(), expected.astype("f4"))


def test_verify(device: Device, stream: Stream, rng: np.random.Generator) -> None:
    step = Step(rng)
    with step.graph.instantiate(stream) as plan:
        for position in (3, 3, 15):
            found = plan.verify(pos=position, x=step.draw())
            assert found, found.differing
            assert found.compared_bytes == step.cache.nbytes + step.y.nbytes + 8
        assert not step.cache.to_numpy()[0, 4:15].any()


def test_verify_finds_a_plan_that_computes_something_else(
    host: Device, rng: np.random.Generator
) -> None:
    x = ub.asarray(rng.standard_normal(6).astype("f4"))
    with trace() as graph:
        graph.name(x, "x")
        y = x * 2
        z = x + 1
    with Stream() as stream, graph.instantiate(stream) as plan:
        assert plan.verify()
        graph.prepared()[0] = graph.prepared()[0]._replace(arguments=graph.prepared()[1].arguments)
        found = plan.verify(x=rng.standard_normal(6).astype("f4"))
        assert [node.index for node in found.differing] == [1]
        assert y.shape == z.shape


def test_wrong_slots_and_leaves_are_refused(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    step = Step(rng)
    with step.graph.instantiate(stream) as plan:
        for wrong, error, message in (
            ({"pos": 16}, ArgumentValueError, "slot 'pos': expected 0 to 15, got 16"),
            ({"pos": 1.0}, ArgumentTypeError, "slot 'pos': expected an int, got 1.0"),
            ({"position": 1}, NotFoundError, "no slot or leaf 'position'; it has pos, x"),
            ({"x": ub.ones((4, 7))}, ArgumentValueError, r"leaf 'x': expected shape \(4, 8\) of"),
            ({"x": ub.ones((4, 8), "f16")}, ArgumentTypeError, r"leaf 'x': .*got \(4, 8\) of f16"),
            ({"x": np.ones((4, 8))}, ArgumentTypeError, r"leaf 'x': .*of float64"),
            ({"x": ub.ones((8, 4)).T}, ArgumentValueError, "leaf 'x': expected a contiguous"),
        ):
            with pytest.raises(error, match=message):
                plan.replay(**wrong)
        assert plan.verify(pos=1)


def test_layouts_are_uploaded_before_the_capture(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    # The graph is built by hand, so no operation has run before.
    graph = ComputeGraph()
    size = int(rng.integers(50, 5000))
    leaf = graph.add_leaf(ub.ones((3, size)))
    total = graph.add_op("sum", None, (size,), [leaf], ub.OpParams(integer=0))
    with graph.instantiate(stream) as plan:
        plan.replay()
        stream.synchronize()
        assert (graph.tensor(total).to_numpy() == 3).all()


def test_a_closed_plan_lets_go_of_everything(device: Device, rng: np.random.Generator) -> None:
    with Stream(device=device) as stream:
        step = Step(rng)
        step.graph.prepared()
        before = diagnostics()["live"]
        plan = step.graph.instantiate(stream)
        plan.replay()
        plan.close()
        plan.close()
        with pytest.raises(InvalidHandleError, match="closed"):
            plan.replay()
        del plan
        assert diagnostics()["live"]["plans"] == before["plans"]
        assert diagnostics()["live"]["buffers"] <= before["buffers"] + 2


def test_a_leaf_that_no_launch_reads_takes_arrays_only(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    x, unread = (ub.asarray(rng.standard_normal(6).astype("f4")) for _ in range(2))
    graph = ComputeGraph()
    leaf = graph.add_leaf(x.buffer, 6, name="x")
    graph.add_leaf(unread.buffer, 6, name="unread")
    y = graph.add_op("multiply", None, (6,), [leaf], ub.OpParams(scalar=2.0))
    first, second = (rng.standard_normal(6).astype("f4") for _ in range(2))
    with graph.instantiate(stream) as plan:
        assert set(plan.plan.slots) == {"x"}
        plan.replay(x=ub.asarray(first), unread=second)
        stream.synchronize()
        np.testing.assert_array_equal(graph.tensor(y).to_numpy(), first * 2)
        np.testing.assert_array_equal(unread.to_numpy(), second)
        with pytest.raises(ArgumentValueError, match=r"'unread': .*an array, .*no launch .*reads"):
            plan.replay(unread=ub.asarray(first))
        assert plan.verify(x=second, unread=first)
        np.testing.assert_array_equal(unread.to_numpy(), first)


def test_a_leaf_of_which_launches_read_parts_follows(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    x = ub.asarray(rng.standard_normal((4, 6)).astype("f4"))
    with trace() as graph:
        graph.name(x, "x")
        y = x[1:3] * 2
    given = rng.standard_normal((4, 6)).astype("f4")
    with graph.instantiate(stream) as plan:
        plan.replay(x=ub.asarray(given))
        stream.synchronize()
        np.testing.assert_array_equal(y.to_numpy(), given[1:3] * 2)


def test_slots_added_later_are_not_of_the_plan(host: Device, rng: np.random.Generator) -> None:
    x = ub.asarray(rng.standard_normal(6).astype("f4"))
    graph = ComputeGraph()
    graph.add_op("multiply", None, (6,), [graph.add_leaf(x)], ub.OpParams(scalar=2.0))
    with Stream() as stream, graph.instantiate(stream) as plan:
        graph.add_scalar("later", 1)
        with pytest.raises(NotFoundError, match="no slot or leaf 'later'; it has none"):
            plan.replay(later=2)


@pytest.mark.parametrize("built", (False, True), ids=("traced", "built"))
def test_a_boolean_leaf_takes_booleans(
    built: bool, device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    mask = rng.random(8) < 0.5
    x = ub.asarray(rng.standard_normal(8).astype("f4"))
    given = ub.asarray(mask)
    if built:
        graph = ComputeGraph(device)
        leaves = [graph.add_leaf(given, name="mask"), graph.add_leaf(x), graph.add_leaf(-x)]
        result = graph.tensor(graph.add_op("where", None, (8,), leaves))
    else:
        with trace() as graph:
            graph.name(given, "mask")
            result = ub.where(given, x, -x)
    with graph.instantiate(stream) as plan:
        other_bytes = rng.integers(0, 3, 8).astype(np.uint8).view(np.bool_)
        for other in (~mask, ub.asarray(~mask), rng.random(8) < 0.5, other_bytes):
            plan.replay(mask=other)
            stream.synchronize()
            chosen = np.asarray(other)
            expected = np.where(chosen, x.to_numpy(), -x.to_numpy())
            np.testing.assert_array_equal(result.to_numpy(), expected)
            assert set(plan.graph.leaves["mask"].buffer.to_numpy().tolist()) <= {0, 1}
            assert plan.verify(mask=other)
        with pytest.raises(ArgumentTypeError, match="of bool, got"):
            plan.replay(mask=np.full(8, 2, np.uint8))


def test_a_slot_takes_numpy_s_numbers(
    device: Device, stream: Stream, rng: np.random.Generator
) -> None:
    with trace() as graph:
        result = graph.scalar("number", 1, "f4") * 2
        count = graph.scalar("count", 1, "i64") + 1
    number, whole = rng.standard_normal(), int(rng.integers(1, 99))
    with graph.instantiate(stream) as plan:
        for kind in (np.float16, np.float32, np.float64, float):
            plan.replay(number=kind(number), count=np.int32(whole))
            stream.synchronize()
            assert result.item() == np.float32(kind(number)) * 2
            assert count.item() == whole + 1
        with pytest.raises(ArgumentTypeError, match="expected an int"):
            plan.replay(count=np.float32(2))
