"""Graph files: saved graphs load again, and files that no graph saves are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.children import run_child
from tests.sampling import SOAK, rounds
from tests.ubridge.graph_mutants import run_mutants, traced
from ubridge import ComputeGraph, Layout, execute_graph
from ubridge.core.fits import require_sound
from ubridge.core.question import Question
from uhal import Device, DeviceBuffer, Stream, as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError

DEVICES = ("host",)


def test_there_is_a_rule_for_each_family() -> None:
    for op in ub.OPS.values():
        if op.dtypes:
            assert op.family.rule is not None, op


def test_rules_refuse_other_types_and_gaps(device: Device, rng: np.random.Generator) -> None:
    """Each family's rule accepts a traced call and refuses another dtype or another stride."""
    for call in traced(rng).calls:
        if call is None or call.op.family.rule is None:
            continue
        question, family = call.question, call.op.family
        require_sound(question)
        known = [*question.operands, question.result]
        operands, _, result = family.kinds.partition(" -> ")
        kinds = [*operands.split()[: len(known) - 1], result] if result else ["T"] * len(known)
        for index, ((dtype, layout), kind) in enumerate(zip(known, kinds, strict=True)):
            if kind != "*" and (kind != "T" or kinds.count("T") > 1):
                other = as_dtype("i16" if dtype.name != "i16" else "u16")
                refused(question, [*known[:index], (other, layout), *known[index + 1 :]])
            if index < min(family.packed, len(known) - 1) and layout.size > 1:
                gaps = Layout(layout.shape, [2 * stride for stride in layout.strides])
                refused(question, [*known[:index], (dtype, gaps), *known[index + 1 :]])


def refused(question: Question, known: list[Any]) -> None:
    *operands, result = known
    changed = Question(question.op, tuple(operands), result, question.attributes, question.numbers)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=f"{question.op.name}: expec"):
        require_sound(changed)


def test_a_loaded_graph_computes_what_the_saved_one_does(
    device: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    graph = traced(rng)
    graph.save(tmp_path / "graph.json")
    given = {name: leaf.buffer.to_numpy() for name, leaf in graph.leaves.items()}
    leaves = {name: DeviceBuffer.from_numpy(values) for name, values in given.items()}
    loaded = ComputeGraph.load(tmp_path / "graph.json", leaves)
    assert loaded.n_ops == graph.n_ops
    execute_graph(loaded, position=2)
    execute_graph(graph, position=2)
    device.synchronize()
    for node, again in zip(graph.nodes, loaded.nodes, strict=True):
        views = graph.storages.values[node.index], loaded.storages.values[again.index]
        if not graph.storages[views[0].storage].is_planned:
            one, other = graph.storages.resolve(views[0]), loaded.storages.resolve(views[1])
            np.testing.assert_array_equal(
                one.to_numpy().view("u1"), other.to_numpy().view("u1"), str(node)
            )


def test_a_graph_built_by_hand_is_saved_as_what_it_launches(
    device: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    x = rng.standard_normal((3, 64)).astype("f4")
    weight = ub.QuantizedWeight.from_numpy(rng.standard_normal((5, 64)), "q8_0")
    graph = ComputeGraph()
    leaf = graph.add_leaf(ub.asarray(x))
    doubled = graph.add_op("multiply", None, (3, 64), [leaf], ub.OpParams(scalar=2.0))
    squared = graph.add_op("power", None, (3, 64), [doubled], ub.OpParams(scalar=2.0))
    product = graph.add_op("matmul", None, (3, 5), [squared], ub.OpParams(weight=weight))
    graph.save(tmp_path / "graph.json")
    loaded = ComputeGraph.load(tmp_path / "graph.json", graph.leaves)
    for one in (graph, loaded):
        execute_graph(one)
    got = loaded.tensor(loaded.order()[-1]).to_numpy()
    np.testing.assert_array_equal(got, graph.tensor(product).to_numpy())
    expected = (2.0 * x.astype("f8")) ** 2 @ weight.to_numpy().astype("f8").T
    np.testing.assert_allclose(got, expected, 1e-4, 1e-3)


def test_a_file_says_whether_the_highest_id_is_none(
    host: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    """`launch_*` treat the highest id as no id; functions on tensors do not. Other flags are
    refused."""
    x = ub.asarray(rng.standard_normal(3).astype("f4"))
    ids = ub.asarray(np.array([2, 2**32 - 1], "u4"))
    with ub.trace(host) as graph:
        ub.launch_gather(x.buffer, x.layout, ids.buffer, ids.layout, 0)
        ub.take(x, ids)
    graph.save(tmp_path / "graph.json")
    loaded = ComputeGraph.load(tmp_path / "graph.json", graph.leaves)
    execute_graph(loaded)
    with pytest.raises(IndexError, match=r"^take: index 4294967295 is out of bounds"):
        host.synchronize()
    expected = [x.to_numpy()[2], 0]
    for node in loaded.nodes:
        if node.op is not None:
            np.testing.assert_array_equal(loaded.tensor(node.index).to_numpy().ravel(), expected)
    (tmp_path / "graph.json").write_text(
        (tmp_path / "graph.json").read_text().replace('"has_none": true', '"has_none": 1')
    )
    with pytest.raises(ArgumentValueError, match="gather: expected has_none as a bool, got 1"):
        ComputeGraph.load(tmp_path / "graph.json", graph.leaves)


def test_a_reader_sees_the_old_file_or_the_new_one(
    device: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    path = tmp_path / "graph.json"
    graph = traced(rng)
    graph.save(path)
    before = path.read_bytes()
    with path.open("rb") as reader:
        graph.save(path)
        assert reader.read() == before == path.read_bytes()
        assert os.fstat(reader.fileno()).st_nlink == 0
    assert [one.name for one in tmp_path.iterdir()] == ["graph.json"]


def test_a_leaf_may_be_a_part_of_a_larger_buffer(
    device: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    x = ub.asarray(rng.standard_normal(6).astype("f4"))
    with ub.trace() as graph:
        graph.name(x, "x")
        result = ub.square(x)
    graph.save(tmp_path / "graph.json")
    del result
    around = DeviceBuffer.from_numpy(rng.standard_normal(64).astype("f4"))
    loaded = ComputeGraph.load(tmp_path / "graph.json", {"x": around[10:16]})
    execute_graph(loaded)
    got = loaded.tensor(1).to_numpy()
    np.testing.assert_array_equal(got, around.to_numpy()[10:16] ** 2)


# -- refusals --------------------------------------------------------------------------------------

File = dict[str, Any]


def call_of(file: File, *families: str) -> File:
    found: File = next(
        node["call"]
        for node in file["nodes"]
        if node["op"] is not None and ub.OPS[node["op"]].family.name in families
    )
    return found


def grow_layout(file: File) -> None:
    call = call_of(file, "unary")
    for one in (call["operands"][0], call["result"]):
        one["shape"][0] += 1000


def grow_stride(file: File) -> None:
    call_of(file, "binary")["operands"][1]["strides"][0] = 1 << 61


def grow_one_shape(file: File) -> None:
    call_of(file, "binary")["operands"][1]["shape"][0] += 1


def choose_more(file: File) -> None:
    call = call_of(file, "index_select")
    call["operands"][0]["shape"][0] = call["result"]["shape"][0] = 200


def grow_rows(file: File) -> None:
    call = call_of(file, "softmax")
    for one in (call["operands"][0], call["result"]):
        one["shape"][0] *= 1000


def wrap_around(file: File) -> None:
    call = call_of(file, "reduce")
    call["operands"][0].update(shape=[6, 1 << 62, 4], strides=[1, 0, 0])


def share_among_more(file: File) -> None:
    call_of(file, "attention")["operands"][1]["shape"][1] = 3


def move_view(file: File) -> None:
    call_of(file, "gated")["operands"][0]["view"][1] += 4096


def misalign_view(file: File) -> None:
    call_of(file, "gated")["operands"][0]["view"][1:3] = [1, 1]


def name_another_operation(file: File) -> None:
    node = next(one for one in file["nodes"] if one["op"] == "exp")
    node["op"] = "attention"


def tell_windows_otherwise(file: File) -> None:
    call_of(file, "conv1d")["attributes"]["stride"] += 1


def divide_by_nothing(file: File) -> None:
    call_of(file, "pool2d")["attributes"]["stride"]["tuple"][0] = 0


def read_ids_where_it_writes(file: File) -> None:
    call = call_of(file, "scatter")
    view = list(call["result"]["view"])
    ids = call["operands"][0]
    size = view[2] * 4 // 8
    ids["view"] = [view[0], view[1], size, ids["dtype"]]


def give_a_number_more(file: File) -> None:
    call_of(file, "affine")["numbers"].append(1.0)


def overlap_rows(file: File) -> None:
    call_of(file, "copy2d")["result"]["strides"] = [2, 1]


def repeat_a_row(file: File) -> None:
    call_of(file, "copy2d")["result"]["strides"] = [0, 1]


def fill_overlapping_rows(file: File) -> None:
    call = next(
        one["call"] for one in file["nodes"] if one["op"] == "fill" and one["shape"] == [4, 6]
    )
    call["result"]["strides"] = [5, 1]


def give_a_slot_more_room(file: File) -> None:
    file["storages"][call_of(file, "fill")["result"]["view"][0]]["bytes"] *= 2


def name_a_storage_beyond(file: File, more: int) -> None:
    call_of(file, "fill")["result"]["view"][0] = len(file["storages"]) + more


def take_one_leaf_twice(file: File) -> None:
    named = [one for one in file["storages"] if one["leaf"] is not None]
    named[0]["leaf"] = named[1]["leaf"]


@pytest.mark.parametrize(
    "change, message",
    [
        (grow_layout, "exp, result: reaches 4024 elements of f32, and its view has 24 of f32"),
        (grow_stride, "operand 1: reaches [0-9]+ elements"),
        (grow_one_shape, "add: expected operands of one shape, got"),
        (choose_more, "index_select, .*: reaches [0-9]+ elements"),
        (grow_rows, "softmax, .*: reaches 48000 elements of f32, and its view has 48"),
        (wrap_around, "are more than kernels can count"),
        (share_among_more, "a multiple of the kv heads|reaches"),
        (move_view, "24 elements of f32 at byte 4096 do not lie in storage"),
        (partial(name_a_storage_beyond, more=0), "expected one of ([0-9]+) storages, got "),
        (partial(name_a_storage_beyond, more=5), "expected one of ([0-9]+) storages, got "),
        (misalign_view, "1 elements of f32 at byte 1 do not lie in storage"),
        (name_another_operation, "attention: expected 3 operands and 1 numbers, got 1 and 0"),
        (tell_windows_otherwise, "conv1d: expected a result"),
        (divide_by_nothing, "max_pool2d: expected a window and a stride of two numbers"),
        (read_ids_where_it_writes, "scatter.*: lies in the memory that the result goes to|reaches"),
        (give_a_number_more, "affine: expected 1 operands and 2 numbers, got 1 and 3"),
        (overlap_rows, "copy2d: expected rows of adjacent elements"),
        (repeat_a_row, "copy2d: expected rows of adjacent elements"),
        (fill_overlapping_rows, "fill: the tensor has several elements at one address"),
        (give_a_slot_more_room, "slot 'position': expected one number in memory of its own"),
        (take_one_leaf_twice, "expected each leaf once"),
        (lambda file: file["nodes"][3].pop("shape"), "not a graph as save"),
        (lambda file: file["nodes"][3].update(shape=[1 << 40]), "does not fit"),
        (lambda file: file["storages"][0].update(bytes=-1), "numbers in 0…2"),
        (lambda file: file["storages"][0].update(bytes=1 << 64), "numbers in 0…2"),
        (lambda file: file.update(nodes=7), "not a graph as save"),
        (lambda file: file["nodes"][0].update(name={}), "name of a graph file: expected str"),
    ],
)
def test_what_no_graph_saves_is_refused(
    change: Callable[[File], object], message: str, host: Device, tmp_path: Path
) -> None:
    graph = traced(np.random.default_rng(0))
    path = tmp_path / "graph.json"
    graph.save(path)
    file = json.loads(path.read_text())
    change(file)
    path.write_text(json.dumps(file))
    with pytest.raises(ArgumentValueError, match=rf"graph\.json: .*{message}"):
        ComputeGraph.load(path, graph.leaves)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b"NaN", b"{}"])
def test_what_is_no_file_of_ours_is_refused(text: bytes, host: Device, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_bytes(text)
    with pytest.raises(ArgumentValueError, match=r"graph\.json: "):
        ComputeGraph.load(tmp_path / "graph.json", {})


def test_only_files_are_graphs(host: Device, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in ((tmp_path, "a folder"), (tmp_path / "fifo", "a FIFO")):
        with pytest.raises(ArgumentValueError, match=f"^{path}: expected a file, got {kind}"):
            ComputeGraph.load(path, {})


# -- mutants -------------------------------------------------------------------------------------

EACH = rounds(200, 5000)
"""Mutants of one process."""


@pytest.mark.parametrize("round", range(rounds(1, 20)))
def test_mutants_are_refused_or_harmless(
    round: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    """Run every graph that loads, with red zones around all memory and unrelated memory between."""
    check_mutants("host", int(rng.integers(1 << 32)), EACH, tmp_path)


@pytest.mark.skipif(not SOAK, reason="translates every kernel; UHAL_TEST_SOAK=1")
def test_mutants_read_nothing_else(
    rng: np.random.Generator, simulated_cuda: None, tmp_path: Path
) -> None:
    """The simulated driver knows every address that a kernel may read."""
    check_mutants("cuda", int(rng.integers(1 << 32)), EACH, tmp_path)


def check_mutants(backend: str, seed: int, count: int, folder: Path) -> None:
    guards = {"UHAL_POOL": "guard", "UHAL_MEMORY_LIMIT": "512M"}
    done = run_child(
        run_mutants, seed, count, backend, str(folder), environment=guards, timeout=1800
    )
    said = f"run_mutants({seed}, {count}, {backend!r}): {done.returncode}\n{done.stderr[-4000:]}"
    assert done.returncode == 0 and not done.stderr, said
    # If all graphs were refused, running them would be untested.
    assert int(done.stdout) > count // 50, done.stdout


def test_a_graph_without_leaves_runs_on_the_current_device(
    device: Device, tmp_path: Path, rng: np.random.Generator
) -> None:
    value = float(rng.integers(1, 100))
    with ub.trace() as graph:
        kept = ub.add(graph.scalar("value", value, "f4"), 1)
    graph.save(tmp_path / "graph.json")
    loaded = ComputeGraph.load(tmp_path / "graph.json")
    execute_graph(loaded)
    assert loaded.tensor(loaded.n_ops - 1).item() == kept.item() == value + 1


def test_a_boolean_leaf_is_one_in_the_file(
    device: Device, tmp_path: Path, rng: np.random.Generator
) -> None:
    mask = ub.asarray(rng.random(8) < 0.5)
    x = ub.asarray(rng.standard_normal(8).astype("f4"))
    with ub.trace() as graph:
        graph.name(mask, "mask")
        result = ub.where(mask, x, 0)
    graph.save(tmp_path / "graph.json")
    loaded = ComputeGraph.load(tmp_path / "graph.json", graph.leaves)
    with loaded.instantiate(Stream()) as plan:
        other = rng.random(8) < 0.5
        assert plan.verify(mask=other)
        plan.replay(mask=~other)
    assert result.dtype == "f32"
