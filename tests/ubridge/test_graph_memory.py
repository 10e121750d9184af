"""The memory planner of a graph: no buffers overlap in time and memory, and memory use is low."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from ubridge import ComputeGraph, execute_graph
from ubridge.graph.memory import ALIGNMENT, Lifetime, plan_memory
from uhal import Device
from uhal.errors import ArgumentValueError


def drawn(rng: np.random.Generator, count: int, steps: int) -> list[Lifetime]:
    first = rng.integers(0, steps, count)
    lasting = rng.geometric(0.3, count)
    sizes = rng.choice([1, 255, 256, 257, 4096, 10_000], count)
    return [
        Lifetime(number, int(size), int(start), int(start + length))
        for number, (start, length, size) in enumerate(zip(first, lasting, sizes, strict=True))
    ]


def test_nothing_overlaps(rng: np.random.Generator) -> None:
    for _ in range(rounds(20, 2000)):
        lifetimes = drawn(rng, int(rng.integers(1, 60)), int(rng.integers(1, 40)))
        plan = plan_memory(lifetimes)
        for one in lifetimes:
            start = plan.offsets[one.storage]
            assert start % ALIGNMENT == 0
            assert 0 <= start <= plan.peak_bytes - one.nbytes
            for other in lifetimes[: one.storage]:
                begin = plan.offsets[other.storage]
                in_memory = start < begin + other.nbytes and begin < start + one.nbytes
                in_time = one.first <= other.last and other.first <= one.last
                assert not (in_memory and in_time), (one, other)


def test_the_peak_is_near_what_is_alive_at_once(rng: np.random.Generator) -> None:
    for _ in range(rounds(20, 500)):
        lifetimes = drawn(rng, 200, 100)
        plan = plan_memory(lifetimes)
        alive = max(
            sum(-(-one.nbytes // 256) * 256 for one in lifetimes if one.first <= step <= one.last)
            for step in range(110)
        )
        assert alive <= plan.peak_bytes <= 2 * alive
        assert plan.unplanned_bytes >= plan.peak_bytes


def test_one_size_is_placed_without_loss(rng: np.random.Generator) -> None:
    steps = 500
    plan = plan_memory(Lifetime(step, 1000, step, step + 1) for step in range(steps))
    assert plan.peak_bytes == 2 * 1024
    assert plan.ratio == 2 / steps


def test_a_chain_takes_two_results(host: Device, rng: np.random.Generator) -> None:
    x = rng.uniform(-1, 1, 300).astype("f4")
    graph = ComputeGraph()
    node = graph.add_leaf(ubridge.asarray(x))
    for _ in range(20):
        node = graph.add_op("tanh", None, 300, [node])
    execute_graph(graph)
    assert graph.memory.peak_bytes == 2 * 1280
    assert graph.memory.unplanned_bytes == 19 * 1280
    expected = x.astype("f8")
    for _ in range(20):
        expected = np.tanh(expected)
    np.testing.assert_allclose(graph.tensor(node).to_numpy(), expected, 1e-5)


def test_what_is_kept_is_there_after_a_run(host: Device, rng: np.random.Generator) -> None:
    x = rng.uniform(-1, 1, 300).astype("f4")
    graph = ComputeGraph()
    leaf = graph.add_leaf(ubridge.asarray(x))
    first = graph.add_op("exp", None, 300, [leaf])
    second = graph.add_op("tanh", None, 300, [first])
    graph.add_op("negative", None, 300, [second])
    with pytest.raises(ArgumentValueError, match=r"node 1 \(Exp\): .*keep\(1\)"):
        graph.tensor(first)
    graph.keep(first)
    execute_graph(graph)
    np.testing.assert_allclose(graph.tensor(first).to_numpy(), np.exp(x.astype("f8")), 1e-6)
    # A longer graph gets a new plan.
    third = graph.add_op("abs", None, 300, [second])
    execute_graph(graph)
    expected = np.abs(np.tanh(np.exp(x.astype("f8"))))
    np.testing.assert_allclose(graph.tensor(third).to_numpy(), expected, 1e-5)
    assert graph.memory.ratio == 1


def test_what_is_kept_after_a_run_is_there_after_the_next(
    host: Device, rng: np.random.Generator
) -> None:
    x = rng.uniform(-1, 1, 300).astype("f4")
    graph = ComputeGraph()
    node = graph.add_leaf(ubridge.asarray(x))
    nodes = []
    for name in ("exp", "tanh", "negative", "abs", "negative"):
        nodes.append(node := graph.add_op(name, None, 300, [node]))
    execute_graph(graph)
    assert graph.memory.ratio < 1
    kept = nodes[int(rng.integers(0, 2))]
    graph.keep(kept)
    execute_graph(graph)
    exact = np.exp(x.astype("f8"))
    expected = exact if kept == nodes[0] else np.tanh(exact)
    np.testing.assert_allclose(graph.tensor(kept).to_numpy(), expected, 1e-5)
    np.testing.assert_allclose(graph.tensor(node).to_numpy(), -np.tanh(exact), 1e-5)
