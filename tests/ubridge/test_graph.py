"""Graphs built by hand: checks, order of execution, and results."""

from __future__ import annotations

from collections import Counter
from inspect import signature
from typing import Any

import numpy as np
import pytest

import ubridge
from ubridge import ComputeGraph, DispatchCall, LaunchingDispatch, OpParams, TensorOp, execute_graph
from ubridge.core.block_formats import activation_bytes
from ubridge.definitions.table import OPS
from uhal import Device, DeviceBuffer, Stream, as_dtype
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NotFoundError,
)

DEVICES = ("host", "cuda-sim", "rocm-sim", "opencl")


class Counting(LaunchingDispatch):
    """Counts calls by the dispatch method they reach, and launches them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.calls: list[DispatchCall] = []

    def dispatch(self, call: DispatchCall) -> None:
        assert call.node.op is not None
        self.counts[call.node.op.name] += 1
        self.calls.append(call)
        super().dispatch(call)


class Block:
    """Leaf → RMS norm → three products → attention → sum with the leaf."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.shape = (1, 2, 5, 16)
        self.x = rng.standard_normal(self.shape).astype("f4")
        self.gamma = rng.uniform(0.5, 1.5, 16).astype("f4")
        self.weights = [(rng.standard_normal((16, 16)) / 4).astype("f4") for _ in range(3)]
        self.graph = graph = ComputeGraph()
        self.leaf = graph.add_leaf(DeviceBuffer.from_numpy(self.x), self.shape, name="x")
        gamma = OpParams(gamma=ubridge.asarray(self.gamma), scalar=1e-5)
        normed = graph.add_op(TensorOp.RmsNorm, None, self.shape, [self.leaf], gamma)
        products = [
            graph.add_op(TensorOp.MulMat, None, self.shape, [normed], OpParams(weight=weight))
            for weight in map(ubridge.asarray, self.weights)
        ]
        attended = graph.add_op(TensorOp.SoftMax, None, self.shape, products)
        self.out = DeviceBuffer.from_numpy(np.full(self.x.size, np.nan, "f4"))
        graph.add_op(TensorOp.Add, self.out, self.shape, [attended, self.leaf])

    def expected(self) -> np.ndarray:
        x = self.x.astype("f8")
        normed = OPS["rms_norm"].reference(x, self.gamma.astype("f8"), 1e-5)
        q, k, v = (normed @ weight.astype("f8") for weight in self.weights)
        scores = OPS["softmax"].reference(q @ k.swapaxes(-1, -2) / 4)
        return scores @ v + x


def test_an_empty_graph_launches_nothing() -> None:
    result = execute_graph(ComputeGraph(), Counting())
    assert result.n_launches == 0
    assert ComputeGraph().n_ops == 0
    assert ComputeGraph().memory.peak_bytes == 0


def test_one_dispatch_for_each_operation(device: Device, rng: np.random.Generator) -> None:
    block = Block(rng)
    counting = Counting()
    result = execute_graph(block.graph, counting)
    assert block.graph.n_ops == result.n_launches == 6
    assert counting.counts == {"rms_norm": 1, "matmul": 3, "attention": 1, "add": 1}
    assert result.elapsed_us > 0
    got = block.out.to_numpy().reshape(block.shape)
    expected = block.expected()
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_run_reads_its_leaves_anew(device: Device, rng: np.random.Generator) -> None:
    block = Block(rng)
    execute_graph(block.graph)
    block.x = rng.standard_normal(block.shape).astype("f4")
    block.graph.tensor(block.leaf).copy_from(ubridge.asarray(block.x))
    execute_graph(block.graph)
    expected = block.expected()
    assert (
        np.abs(block.out.to_numpy().reshape(block.shape) - expected).max()
        <= 1e-5 * np.abs(expected).max()
    )


def test_a_dispatcher_sees_buffers_and_parameters(host: Device, rng: np.random.Generator) -> None:
    block = Block(rng)
    counting = Counting()
    execute_graph(block.graph, counting)
    norm, *_, total = counting.calls
    assert norm.params.scalar == 1e-5
    assert [one.size for one in norm.inputs] == [block.x.size, 16]
    assert norm.out.size == block.x.size
    assert total.shape == block.shape
    np.testing.assert_array_equal(total.out.to_numpy(), block.out.to_numpy())


def test_every_operation_of_the_table_is_a_tensor_op() -> None:
    assert {one.value for one in TensorOp} == set(OPS)
    assert TensorOp("exp") is TensorOp.Exp  # type: ignore[attr-defined]
    assert TensorOp.MulMat.value == "matmul"


WITHOUT_FUNCTION = {
    *("copy2d", "rand", "randn", "im2col1d", "im2col", "col2im1d", "block_elements"),
    # The function takes a format; the definition takes the elements of a run.
    "activations",
}
"""Operations whose functions take other arguments than their definitions."""


def test_each_operation_names_its_function_and_what_that_takes() -> None:
    for op in OPS.values():
        function = getattr(ubridge, op.called, None) or getattr(ubridge.DeviceTensor, op.called, 0)
        if op.name in WITHOUT_FUNCTION or not op.dtypes:
            continue
        family = op.family
        words = [one.strip("[]") for one in (family.operands + " " + family.numbers).split()]
        taken = list(signature(function).parameters.values())
        known = {*words, *family.settings.split(), *family.attributes.split(), *op.settings}
        for index, one in enumerate(taken):
            is_named = one.name in known or (index < len(words) and one.name not in words)
            assert is_named or one.default is not one.empty, (op, one)


def test_an_operation_of_each_kind_calls_its_function(
    host: Device, rng: np.random.Generator
) -> None:
    x, y = (rng.uniform(0.5, 2, (4, 6)).astype("f4") for _ in range(2))
    row, mask = x[0], (x > 1).astype("u1")
    ids, line = rng.integers(0, 4, (4, 6)), rng.integers(0, 4, 3)
    image, heads = (rng.standard_normal((1, 2, 4, 6)).astype("f4") for _ in range(2))
    cos, sin = (rng.standard_normal((4, 3)).astype("f4") for _ in range(2))
    cache, at = rng.standard_normal((2, 5, 6)).astype("f4"), np.array([1])
    new = rng.standard_normal((2, 1, 6)).astype("f4")
    weight, kernel = rng.standard_normal((6, 3)).astype("f4"), heads[:, :, :2, :2].copy()
    window = {"window": (2, 3), "stride": 1}
    bank = rng.standard_normal((3, 4, 2)).astype("f4")
    # Each family has its inputs, the scalar, the axis, and other keywords.
    cases: dict[str, tuple[list[Any], float | None, int | None, dict[str, Any]]] = {
        "unary": ([x], None, None, {}),
        "unary_scalar": ([x], 1.5, None, {}),
        "affine": ([x], None, None, {"multiplier": 2.0, "addend": -1.0}),
        "binary": ([x, y], None, None, {}),
        "compare": ([x, y], None, None, {}),
        "cast": ([x], None, None, {"dtype": "i32"}),
        "kind_of_float": ([x], None, None, {}),
        "where": ([mask, x, y], None, None, {}),
        "masked_fill": ([x, mask.astype("?")], 3.0, None, {}),
        "gated": ([x, y], None, None, {}),
        "fill": ([x], 3.0, None, {}),
        "index_select": ([x, line], None, 0, {}),
        "gather": ([x, ids], None, 0, {}),
        "scatter": ([x, ids[:1], y[:1].copy()], None, 0, {}),
        "index_add": ([x, line, y[:3].copy()], None, 0, {}),
        "reduce": ([x], None, 1, {"keepdims": True}),
        "arg_reduce": ([x], None, 1, {}),
        "softmax": ([x], None, None, {}),
        "log_softmax": ([x], None, None, {}),
        "rmsnorm": ([x, row], 1e-3, None, {}),
        "layernorm": ([x, row, y[0]], 1e-3, None, {}),
        "group_norm": ([image, row[:2].copy(), y[0, :2].copy()], 1e-3, None, {"groups": 2}),
        "sort": ([x], None, None, {}),
        "matmul": ([x, weight], None, None, {}),
        "conv1d": ([image[0], bank], None, None, {"stride": 2}),
        "conv2d": ([image, kernel], None, None, {"padding": 1}),
        "conv_transpose1d": ([image[0], bank.swapaxes(0, 1).copy()], None, None, {"stride": 2}),
        "conv_transpose2d": ([image, kernel.swapaxes(0, 1).copy()], None, None, {"stride": 2}),
        "pool2d": ([image], None, None, window),
        "nearest2d": ([image], None, None, {"rows": 5, "columns": 7}),
        "bilinear2d": ([image], None, None, {"rows": 5, "columns": 7}),
        "rope": ([image, cos, sin], None, None, {}),
        "rope_i": ([image, cos, sin], None, None, {}),
        "rope_thd": ([image.transpose(0, 2, 1, 3).copy(), cos, sin], None, None, {}),
        "rope_at": ([new, cos, sin, at], None, None, {}),
        "attention": ([image, heads, heads, image[..., :4].copy()], 0.5, None, {}),
        "cached_attention": ([new.swapaxes(0, 1).copy(), cache, cache, at], 0.5, None, {}),
        "kv_concat": ([x, y], None, 1, {}),
        "kv_append": ([cache, new, at], None, None, {}),
    }
    for op in OPS.values():
        if op.family.name not in cases:
            continue
        arrays, scalar, integer, options = cases[op.family.name]
        if not op.dtypes:
            continue
        if op.family.name in ("unary", "binary") and "f32" not in op.dtypes:
            arrays = [one.astype(as_dtype(op.dtypes[-1]).dtype) for one in arrays]
        numbers = [] if scalar is None else [scalar]
        function = getattr(ubridge, op.called, None) or getattr(ubridge.DeviceTensor, op.called)
        keywords = {**op.settings, **options}
        if op.family.name in ("attention", "cached_attention"):
            keywords["scale"] = numbers.pop()
        if op.name == "attention":
            keywords["mask"] = ubridge.asarray(arrays[3])
        if integer is not None:
            keywords["axis"] = integer
        if op.name == "group_norm":
            numbers = [keywords.pop("groups"), *numbers]
        taken = arrays[:3] if op.name == "attention" else arrays
        tensors = [ubridge.asarray(one.copy()) for one in taken]
        expected = function(*tensors, *numbers, **keywords)
        expected = tensors[0] if expected is None else expected
        graph = ComputeGraph()
        leaves = [graph.add_leaf(ubridge.asarray(one.copy())) for one in arrays]
        params = OpParams(scalar=scalar, integer=integer, options=options)
        node = graph.add_op(op, None, expected.shape, leaves, params)
        graph.keep(node)
        execute_graph(graph)
        got = graph.tensor(node).to_numpy()
        np.testing.assert_array_equal(got, expected.to_numpy().astype(got.dtype), op.name)


@pytest.mark.parametrize("seed_of_case", range(3))
def test_elementwise_operations(
    seed_of_case: int, device: Device, rng: np.random.Generator
) -> None:
    x = rng.uniform(0.5, 2, (3, 7)).astype("f4")
    unary = ["negative", "reciprocal", "exp", "log", "sqrt", "square", "tanh", "sigmoid", "silu"]
    name = unary[int(rng.integers(len(unary)))]
    graph = ComputeGraph()
    leaf = graph.add_leaf(ubridge.asarray(x))
    one = graph.add_op(name, None, (3, 7), [leaf])
    gate = graph.add_op(TensorOp.Mul, None, (3, 7), [one, leaf], OpParams(gate_up=True))
    scaled = graph.add_op(TensorOp.Mul, None, (3, 7), [gate], OpParams(scalar=0.5))
    powers = graph.add_op("power", None, (3, 7), [scaled], OpParams(scalar=2.0))
    total = graph.add_op("sum", None, (3,), [powers], OpParams(integer=1))
    counting = Counting()
    execute_graph(graph, counting)
    assert counting.counts["silu_mul"] == 1
    wide = x.astype("f8")
    first = OPS[name].reference(wide)
    expected = ((first / (1 + np.exp(-first)) * wide * 0.5) ** 2).sum(1)
    np.testing.assert_allclose(graph.tensor(total).to_numpy(), expected, 2e-5)


def test_operations_with_ids(device: Device, rng: np.random.Generator) -> None:
    table = rng.standard_normal((9, 4)).astype("f4")
    ids = rng.integers(0, 9, 3)
    cache = ubridge.asarray(np.full((2, 6, 4), np.nan, "f4"))
    start = int(rng.integers(0, 4))
    graph = ComputeGraph()
    leaves = [graph.add_leaf(ubridge.asarray(one)) for one in (table, ids, np.array([start]))]
    rows = graph.add_op("index_select", None, (3, 4), leaves[:2], OpParams(integer=0))
    both = graph.add_op("kv_concat", None, (6, 4), [rows, rows], OpParams(integer=0))
    kept = graph.add_leaf(cache)
    source = graph.add_leaf(ubridge.asarray(rng.standard_normal((2, 3, 4)).astype("f4")))
    graph.add_op("kv_append", None, (2, 6, 4), [kept, source, leaves[2]])
    execute_graph(graph)
    np.testing.assert_array_equal(graph.tensor(both).to_numpy(), np.tile(table[ids], (2, 1)))
    expected = np.full((2, 6, 4), np.nan, "f4")
    expected[:, start : start + 3] = graph.tensor(source).to_numpy()
    np.testing.assert_array_equal(cache.to_numpy(), expected)


# -- order ---------------------------------------------------------------------------------------


def test_inputs_may_be_added_later(host: Device, rng: np.random.Generator) -> None:
    x = rng.standard_normal(5).astype("f4")
    graph = ComputeGraph()
    last = graph.add_op("negative", None, 5, [2])
    leaf = graph.add_leaf(ubridge.asarray(x))
    graph.add_op("exp", None, 5, [leaf])
    assert graph.order() == [1, 2, 0]
    execute_graph(graph)
    np.testing.assert_allclose(graph.tensor(last).to_numpy(), -np.exp(x.astype("f8")), 1e-6)


def test_a_cycle_is_named(host: Device) -> None:
    graph = ComputeGraph()
    leaf = graph.add_leaf(ubridge.ones(3))
    graph.add_op("add", None, 3, [leaf, 3])
    graph.add_op("exp", None, 3, [1], name="inner")
    graph.add_op("silu", None, 3, [2])
    with pytest.raises(ArgumentValueError, match=r"the graph has a cycle: node 1 \(Add\)") as told:
        graph.order()
    around = str(told.value).partition(": ")[2].split(" → ")
    assert around == ["node 1 (Add)", "node 2 (Exp 'inner')", "node 3 (Silu)", "node 1 (Add)"]


def test_an_input_that_was_never_added_is_named(host: Device) -> None:
    graph = ComputeGraph()
    graph.add_leaf(ubridge.ones(3))
    graph.add_op("exp", None, 3, [7])
    with pytest.raises(ArgumentValueError, match=r"node 1 \(Exp\): its input 7 was never added"):
        execute_graph(graph)


def test_what_was_overwritten_is_not_read(host: Device) -> None:
    memory = DeviceBuffer.uninitialized(4, "f4")
    graph = ComputeGraph()
    leaf = graph.add_leaf(ubridge.ones(4))
    first = graph.add_op("exp", memory, 4, [leaf])
    graph.add_op("silu", None, 4, [first])
    graph.add_op("negative", memory[:2], 2, [graph.add_leaf(ubridge.ones(2))])
    graph.order()
    graph.add_op("tanh", None, 4, [first])
    message = r"node 5 \(Tanh\): reads node 1 \(Exp\) after node 4 \(Negative\) has overwritten it"
    with pytest.raises(ArgumentValueError, match=message):
        graph.order()


def test_changes_in_place_make_the_old_value_unreadable(host: Device) -> None:
    graph = ComputeGraph()
    leaf = graph.add_leaf(ubridge.ones((2, 4)))
    ids = graph.add_leaf(ubridge.asarray(np.array([1])))
    source = graph.add_leaf(ubridge.ones((1, 4)))
    changed = graph.add_op("index_add", None, (2, 4), [leaf, ids, source], OpParams(integer=0))
    after = graph.add_op("negative", None, (2, 4), [changed])
    execute_graph(graph)
    np.testing.assert_array_equal(graph.tensor(after).to_numpy(), [[-1] * 4, [-2] * 4])
    graph.add_op("exp", None, (2, 4), [leaf])
    with pytest.raises(ArgumentValueError, match=r"reads node 0 \(leaf\) after node 3"):
        graph.order()


# -- refusals ------------------------------------------------------------------------------------


@pytest.fixture
def graph(host: Device) -> ComputeGraph:
    graph = ComputeGraph()
    graph.add_leaf(ubridge.ones((4, 6)), name="x")
    return graph


@pytest.mark.parametrize(
    "op, shape, inputs, options, error, message",
    [
        (
            "exp",
            (4, 5),
            [0],
            {},
            ArgumentValueError,
            r"node 1 \(Exp\): expected the shape \(4, 5\)",
        ),
        ("add", (4, 6), [0], {}, ArgumentValueError, r"add: expected 2 operands \(x, y\), got 1"),
        ("matmul", (4, 4), [0, 0], {}, ArgumentValueError, r"\(size 4 is different from 6\)"),
        ("softmax", (4, 6), [0, 0], {}, ArgumentValueError, "expected 1 operands"),
        ("softmax", (4, 6), [0], {"options": {"turn": 1}}, ArgumentTypeError, r"got turn=\."),
        ("power", (4, 6), [0], {}, ArgumentValueError, r"expected OpParams\(scalar=…\)"),
        ("gather", (4, 6), [0, 0], {}, ArgumentValueError, r"OpParams\(integer=…\) for 'axis'"),
        ("affine", (4, 6), [0], {}, ArgumentValueError, r"OpParams\(scalar=…\) for 'multiplier'"),
        ("astype", (4, 6), [0], {}, ArgumentValueError, r"OpParams\(options=…\) for 'dtype'"),
        ("exp", (4, 6), [0], {"scalar": 2.0}, ArgumentValueError, r"1 operands \(x\), got 2"),
        ("softmax", (4, 6), [0], {"integer": 0}, ArgumentValueError, r"got 2 \(copy, softmax\)"),
        ("sum", (4,), [0], {"integer": 2}, ArgumentValueError, r"node 1 \(Sum\): .*axis 2"),
        ("paged_attention_v1", (4,), [0], {}, ArgumentTypeError, "for GCUs only"),
        ("nothing", (4,), [0], {}, ArgumentValueError, "no operation 'nothing'"),
        ("exp", (4, 6), ["x"], {}, ArgumentTypeError, "inputs: expected an int, got str"),
        ("exp", (4, 6), [1], {}, ArgumentValueError, "expected other nodes' numbers"),
        ("astype", (4, 6), [0], {"options": {"dtype": "f4"}}, ArgumentValueError, "got 0"),
        ("mean", (4,), [0], {}, ArgumentValueError, "no operation 'mean'"),
    ],
)
def test_wrong_nodes_are_refused_by_name(
    graph: ComputeGraph,
    op: str,
    shape: object,
    inputs: list,
    options: dict,
    error: type,
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        graph.add_op(op, None, shape, inputs, OpParams(**options))  # type: ignore[arg-type]
    assert len(graph.nodes) == 1
    graph.add_op("exp", None, (4, 6), [0])
    assert execute_graph(graph).n_launches == 1


def test_what_takes_two_launches_is_two_nodes(graph: ComputeGraph) -> None:
    halves = graph.add_leaf(ubridge.ones((4, 6), "f16"))
    with pytest.raises(ArgumentValueError, match=r"expected one launch, got 2 \(astype, add\)"):
        graph.add_op("add", None, (4, 6), [0, halves])
    wide = graph.add_op("astype", None, (4, 6), [halves], OpParams(options={"dtype": "f4"}))
    total = graph.add_op("add", None, (4, 6), [0, wide])
    execute_graph(graph)
    assert (graph.tensor(total).to_numpy() == 2).all()


def test_outputs_are_checked(graph: ComputeGraph) -> None:
    with pytest.raises(ArgumentValueError, match="out: expected at least 24 elements of f32"):
        graph.add_op("exp", DeviceBuffer.uninitialized(23, "f4"), (4, 6), [0])
    with pytest.raises(ArgumentValueError, match="out: expected at least 24 elements of f32"):
        graph.add_op("exp", DeviceBuffer.uninitialized(24, "f8"), (4, 6), [0])
    x = graph.tensor(0)
    with pytest.raises(ArgumentValueError, match="lies in the memory of an input"):
        graph.add_op("sum", x.buffer, (4,), [0], OpParams(integer=1))
    ids = graph.add_leaf(ubridge.zeros((4, 6), "i64"))
    with pytest.raises(ArgumentValueError, match="lies in the memory of an input"):
        graph.add_op("scatter", None, (4, 6), [0, ids, 0], OpParams(integer=0))
    graph.add_op("exp", x.buffer, (4, 6), [0])
    execute_graph(graph)
    np.testing.assert_allclose(x.to_numpy(), np.full((4, 6), np.e), 1e-6)


def test_names_are_unique_and_devices_are_one(graph: ComputeGraph) -> None:
    with pytest.raises(ArgumentValueError, match=r"the graph has a node 0 \(leaf 'x'\) already"):
        graph.add_leaf(ubridge.ones(3), name="x")
    with pytest.raises(ArgumentTypeError, match="expected a DeviceBuffer or a DeviceTensor"):
        graph.add_leaf(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="contiguous"):
        graph.add_leaf(ubridge.ones((4, 6)).T)
    with pytest.raises(DeviceError, match="no leaf yet"):
        ComputeGraph().executor  # noqa: B018


def test_tensors_of_another_device_are_refused(graph: ComputeGraph, simulated_cuda: None) -> None:
    with (
        Device(0, backend="cuda"),
        pytest.raises(InvalidHandleError, match="one on Device\\(0, 'cuda'\\)"),
    ):
        graph.add_leaf(ubridge.ones(3))


def test_slots(device: Device, rng: np.random.Generator) -> None:
    graph = ComputeGraph(device)
    x = graph.add_leaf(ubridge.asarray(rng.standard_normal((6, 3)).astype("f4")))
    row = graph.add_scalar("row", 2, low=0, high=5)
    taken = graph.add_op("index_select", None, (1, 3), [x, row], OpParams(integer=0))
    for given in ({}, {"row": 5}, {"row": 0}):
        execute_graph(graph, **given)
        expected = graph.tensor(x).to_numpy()[[given.get("row", 2)]]
        np.testing.assert_array_equal(graph.tensor(taken).to_numpy(), expected)
    for wrong, error, message in (
        ({"row": 6}, ArgumentValueError, "slot 'row': expected 0 to 5, got 6"),
        ({"row": -1}, ArgumentValueError, "slot 'row': expected 0 to 5, got -1"),
        ({"row": 1.5}, ArgumentTypeError, "slot 'row': expected an int, got 1.5"),
        ({"row": True}, ArgumentTypeError, "slot 'row'"),
        ({"line": 1}, NotFoundError, "no slot 'line'; it has row"),
    ):
        with pytest.raises(error, match=message):
            execute_graph(graph, **wrong)


@pytest.mark.parametrize("blocks", ["q4_0", "q8_0", "q4_K"])
def test_products_with_quantized_weights(
    blocks: str, device: Device, rng: np.random.Generator
) -> None:
    weight = ubridge.QuantizedWeight.from_numpy(rng.standard_normal((5, 256)), blocks)
    x = rng.standard_normal((1, 256)).astype("f4")
    graph = ComputeGraph()
    leaf = graph.add_leaf(ubridge.asarray(x))
    product = graph.add_op(TensorOp.MulMat, None, (1, 5), [leaf], OpParams(weight=weight))

    class Products(LaunchingDispatch):
        seen = 0

        def dispatch_mul_mat(self, call: DispatchCall) -> None:
            self.seen += 1
            super().dispatch_mul_mat(call)

    products = Products()
    execute_graph(graph, products)
    assert products.seen == 1
    expected = x.astype("f8") @ weight.to_numpy().astype("f8").T
    got = graph.tensor(product).to_numpy()
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(x).sum() * np.abs(expected).max()
    with ubridge.trace() as traced:
        result = ubridge.quantized_matmul(ubridge.asarray(x), weight)
    execute_graph(traced, products)
    assert products.seen == 2
    np.testing.assert_array_equal(result.to_numpy(), got)
    # With 8-bit activations, one node rounds x, and the products share its result.
    rounded = "activations"
    other = ubridge.QuantizedWeight.from_numpy(rng.standard_normal((7, 256)), blocks)
    in_8_bits = ComputeGraph()
    leaf = in_8_bits.add_leaf(ubridge.asarray(x))
    width = (1, activation_bytes(256))
    in_runs = OpParams(options={"format": blocks})
    made = in_8_bits.add_op(TensorOp(rounded), None, width, [leaf], in_runs)
    q8 = {"activations": "q8"}
    ends = [
        in_8_bits.add_op(
            TensorOp.MulMat, None, (1, one.rows), [made], OpParams(weight=one, options=q8)
        )
        for one in (weight, other)
    ]
    last = in_8_bits.add_op(
        TensorOp("quantized_product"), None, (1, 5), [made], OpParams(weight=weight)
    )
    execute_graph(in_8_bits, products)
    assert products.seen == 5
    with ubridge.trace() as traced:
        pair = ubridge.quantized_matmul(ubridge.asarray(x), [weight, other], activations="q8")
    assert [node.op.name for node in traced.nodes if node.op is not None] == [
        rounded,
        "quantized_product",
        "quantized_product",
    ]
    stream = Stream()
    traced.instantiate(stream).replay(stream)
    stream.synchronize()
    for end, result in zip(ends, pair, strict=True):
        np.testing.assert_array_equal(in_8_bits.tensor(end).to_numpy(), result.to_numpy())
    np.testing.assert_array_equal(in_8_bits.tensor(last).to_numpy(), pair[0].to_numpy())
