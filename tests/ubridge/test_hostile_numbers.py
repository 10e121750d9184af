"""Every integer parameter of a public function accepts numpy's ints and refuses extremes by name.

The tests find the parameters in the signatures. The first test fails if a parameter is missing from
the calls below.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import ubridge as ub
from tests.sampling import SOAK
from tests.ubridge.op_calls import call_of
from ubridge import OPS
from ubridge.quantized_weight import QuantizedWeight
from uhal import Device, DeviceBuffer, as_dtype
from uhal.errors import DeviceError

DEVICES = ("host",)
MOST_BYTES = 64 << 20
"""Limit of device memory: larger results are refused and never allocated."""
NUMBERS = re.compile(r"\b(int|float|Axes|Index|Seed)\b")
"""Annotations of parameters that take numbers."""
OTHERS = {
    "Shape.is_contiguous": "strides that were checked",
    "DeviceExecutor.note_range": "a range that the host knows",
    "GraphExecResult.__init__": "a record of what ran",
}
"""Functions that only ubridge calls with numbers, each with the reason."""
EXTREMES: tuple[Any, ...] = (
    *(-1, 0, 1 << 31, -1 << 31, 1 << 32, 1 << 45, 1 << 62),
    *((1 << 63) - 1, -1 << 63, 1 << 63, 1 << 64, 1 << 100, -1 << 100),
    *(True, 1.5, math.nan, math.inf, "1", None, (), (1, 2, 3), [None], object()),
)
FLOATS = (
    *(
        "multiplier",
        "addend",
        "alpha",
        "scale",
        "epsilon",
        "value",
        "cap",
        "ddof",
        "correction",
        "parameter",
    ),
    *("low", "high", "bounds", "slots", "scalar", "given"),
)
"""Numbers that need not be ints."""
MAKES_ARRAYS = {"arange", "eye", "linspace", "Generator.words"}
"""Functions that make arrays on the host, as large as memory allows."""


class Indexed:
    """An object that only supports `operator.index`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters whose annotations accept numbers."""
    if not callable(function):
        return []
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in found if NUMBERS.search(str(one.annotation))]


def public_parameters() -> set[tuple[str, str]]:
    found = set()
    for name in ub.__all__:
        value = getattr(ub, name)
        if not inspect.isclass(value):
            found |= {(name, one) for one in parameters_of(value)}
            continue
        if issubclass(value, BaseException):
            continue
        for method in dir(value):
            is_public = not method.startswith("_") and hasattr(value, method)
            if is_public or method in ("__init__", "__new__", "__getitem__"):
                called = getattr(value, method)
                found |= {(f"{name}.{method}", one) for one in parameters_of(called)}
    return {(name, one) for name, one in found if name not in OTHERS}


Call = tuple[Callable[..., Any], dict[str, Any]]


def calls() -> dict[str, Call]:
    """Return each function with its named arguments; `*axes` is passed in order."""
    x, cube = ub.ones((4, 6)), ub.ones((2, 3, 4))
    ids = ub.from_numpy(np.zeros((4, 6), np.int64))
    some = ub.from_numpy(np.zeros(2, np.int64))
    images, line = ub.ones((1, 2, 5, 6)), ub.ones((1, 2, 7))
    position = ub.from_numpy(np.zeros(1, np.int64))
    heads, weight = ub.ones((1, 2, 4)), ub.ones(6)
    keys = ub.ones((2, 8, 4))
    mask = ub.zeros((4, 6), "u8")
    layout = x.layout
    blocks = QuantizedWeight.from_numpy(np.ones((4, 64), np.float32), "q8_0")
    stacked = QuantizedWeight(blocks.buffer, "q8_0", 4, 64)
    raw = bytes(blocks.format.row_bytes(64) * 4)
    window = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1}
    turned = {**window, "out_padding": 0}
    both = {"buffer": x.buffer, "layout": layout}
    rows = {"rows": 4, "columns": 64}
    of_ids = {"ids": some.buffer, "ids_layout": some.layout, "axis": 0}
    whole = {"ids": ids.buffer, "ids_layout": ids.layout, "axis": 0}
    square = {"buffer": images.buffer, "layout": images.layout}
    found: dict[str, Call] = {
        "DeviceTensor.broadcast_to": (x.broadcast_to, {"shape": (2, 4, 6)}),
        "DeviceTensor.expand_dims": (x.expand_dims, {"axis": 1}),
        "DeviceTensor.narrow": (x.narrow, {"axis": 1, "start": 1, "length": 2}),
        "DeviceTensor.permute": (x.permute, {"*axes": (1, 0)}),
        "DeviceTensor.transpose": (x.transpose, {"*axes": (1, 0)}),
        "DeviceTensor.reshape": (x.reshape, {"*shape": (3, 8)}),
        "DeviceTensor.squeeze": (ub.ones((4, 1)).squeeze, {"axis": 1}),
        "DeviceTensor.swapaxes": (x.swapaxes, {"first": 0, "second": 1}),
        "DeviceTensor.__getitem__": (x.__getitem__, {"index": 1}),
        "QuantizedWeight.__getitem__": (_stack(blocks).__getitem__, {"index": 1}),
        "QuantizedWeight.__init__": (
            lambda **given: QuantizedWeight(stacked.buffer, "q8_0", **given),
            {**rows, "shape": (4, 64)},
        ),
        "QuantizedWeight.from_blocks": (
            lambda **given: QuantizedWeight.from_blocks(raw, "q8_0", **given),
            rows,
        ),
        "DeviceExecutor.allocate": (_allocated(x._executor.allocate), {"size": 3}),
        "DeviceExecutor.room": (_allocated(x._executor.room), {"size": 3}),
        "Shape.__new__": (ub.Shape, {"lengths": (2, 3)}),
        "Layout.__init__": (ub.Layout, {"shape": (2, 3), "strides": (3, 1), "start_offset": 1}),
        "Layout.axis": (layout.axis, {"axis": 1}),
        "Layout.broadcast_to": (layout.broadcast_to, {"shape": (2, 4, 6)}),
        "Layout.contiguous": (ub.Layout.contiguous, {"shape": 3, "start_offset": 2}),
        "Layout.expanded": (layout.expanded, {"axis": 1}),
        "Layout.narrow": (layout.narrow, {"axis": 1, "start": 1, "length": 2}),
        "Layout.permute": (layout.permute, {"axes": (1, 0)}),
        "Layout.reshape": (layout.reshape, {"shape": (3, 8)}),
        "Layout.selected": (layout.selected, {"axis": 0, "index": 1}),
        "Layout.sliced": (lambda axis: layout.sliced(axis, slice(1, 3)), {"axis": 0}),
        "Layout.squeezed": (ub.Layout.contiguous((4, 1)).squeezed, {"axis": 1}),
        "Layout.transpose": (layout.transpose, {"first": 0, "second": 1}),
        "Generator.__init__": (ub.Generator, {"seed": 3, "position": 4}),
        "Generator.skip": (ub.Generator(1).skip, {"counters": 3}),
        "Generator.words": (lambda count: ub.Generator(1).words(count), {"count": 3}),
        "arange": (ub.arange, {"start": 1, "stop": 9, "step": 2}),
        "cat": (lambda axis: ub.cat([x, x], axis), {"axis": 1}),
        "concatenate": (lambda axis: ub.concatenate([x, x], axis), {"axis": 1}),
        "stack": (lambda axis: ub.stack([x, x], axis), {"axis": 1}),
        "split": (lambda **given: ub.split(x, **given), {"parts": 2, "axis": 0}),
        "linspace": (ub.linspace, {"start": 1, "stop": 2, "num": 3}),
        "eye": (ub.eye, {"rows": 3, "columns": 4, "k": 1}),
        "tril": (lambda k: ub.tril(x, k), {"k": 1}),
        "triu": (lambda k: ub.triu(x, k), {"k": 1}),
        "broadcast_to": (lambda shape: ub.broadcast_to(x, shape), {"shape": (2, 4, 6)}),
        "concat": (lambda axis: ub.concat([x, x], axis), {"axis": 1}),
        "count_nonzero": (lambda axis: ub.count_nonzero(x, axis), {"axis": 1}),
        "diff": (lambda **given: ub.diff(x, **given), {"axis": 1, "n": 1}),
        "expand_dims": (lambda axis: ub.expand_dims(x, axis), {"axis": 1}),
        "moveaxis": (
            lambda **given: ub.moveaxis(x, **given),
            {"source": 0, "destination": 1},
        ),
        "pad": (lambda **given: ub.pad(x, **given), {"pad_width": 1, "constant_values": 2}),
        "permute_dims": (lambda axes: ub.permute_dims(x, axes), {"axes": (1, 0)}),
        "repeat": (lambda **given: ub.repeat(x, **given), {"repeats": 2, "axis": 1}),
        "reshape": (lambda shape: ub.reshape(x, shape), {"shape": (3, 8)}),
        "roll": (lambda **given: ub.roll(x, **given), {"shift": 1, "axis": 1}),
        "squeeze": (lambda axis: ub.squeeze(ub.ones((4, 1)), axis), {"axis": 1}),
        "tile": (lambda repetitions: ub.tile(x, repetitions), {"repetitions": 2}),
        "unstack": (lambda axis: ub.unstack(x, axis)[0], {"axis": 1}),
        "empty": (lambda shape: ub.empty(shape).shape, {"shape": 3}),
        "zeros": (ub.zeros, {"shape": 3}),
        "ones": (ub.ones, {"shape": 3}),
        "full": (lambda shape: ub.full(shape, 2), {"shape": 3}),
        "rand": (ub.rand, {"shape": 3, "seed": 5}),
        "randn": (ub.randn, {"shape": 3, "seed": 5}),
        "affine": (lambda **given: ub.affine(x, **given), {"multiplier": 2, "addend": 3}),
        "elu": (lambda alpha: ub.elu(x, alpha), {"alpha": 2}),
        "topk": (lambda **given: ub.topk(x, **given)[0], {"k": 2, "axis": 1}),
        "gather": (lambda axis: ub.gather(x, ids, axis), {"axis": 0}),
        "take": (lambda axis: ub.take(x, some, axis), {"axis": 0}),
        "scatter": (lambda axis: ub.scatter(ub.zeros((4, 6)), ids, x, axis), {"axis": 0}),
        "scatter_add": (lambda axis: ub.scatter_add(ub.zeros((4, 6)), ids, x, axis), {"axis": 0}),
        "index_add": (
            lambda axis: ub.index_add(ub.zeros((4, 6)), some, x[:2], axis),
            {"axis": 0},
        ),
        "attention": (lambda scale: ub.attention(*[images] * 3, scale=scale), {"scale": 2}),
        "cached_attention": (
            lambda **given: ub.cached_attention(heads, keys, keys, position, **given),
            {"scale": 1, "window": 3, "cap": 2},
        ),
        "kv_concat": (lambda axis: ub.kv_concat(cube, cube, axis), {"axis": 1}),
        "layer_norm": (
            lambda epsilon: ub.layer_norm(x, weight, weight, epsilon),
            {"epsilon": 1},
        ),
        "rms_norm": (lambda epsilon: ub.rms_norm(x, weight, epsilon), {"epsilon": 1}),
        "upsample_nearest2d": (
            lambda **given: ub.upsample_nearest2d(images, **given),
            {"rows": 3, "columns": 4},
        ),
        "upsample_bilinear2d": (
            lambda **given: ub.upsample_bilinear2d(images, **given),
            {"rows": 3, "columns": 4, "scale": (1, 1)},
        ),
        "launch_affine": (
            lambda **given: ub.launch_affine(**both, **given),
            {"multiplier": 2, "addend": 3},
        ),
        "launch_attention": (
            lambda scale: ub.launch_attention(*(images.buffer, images.layout) * 3, scale),
            {"scale": 1},
        ),
        "launch_col2im1d": (
            lambda stride: ub.launch_col2im1d(**square, stride=stride),
            {"stride": 2},
        ),
        "launch_convolution": (
            lambda **given: ub.launch_convolution(
                "conv1d",
                line.buffer,
                line.layout,
                x.buffer,
                ub.Layout.contiguous((3, 2, 3)),
                **given,
            ),
            turned,
        ),
        "launch_copy2d": (
            lambda **given: ub.launch_copy2d(x.buffer, ub.zeros(24).buffer, **given),
            {"rows": 2, "columns": 3, "source_pitch": 6, "destination_pitch": 5},
        ),
        "launch_dequantize": (
            lambda **given: ub.launch_dequantize("q8_0", stacked.buffer, **given),
            rows,
        ),
        "launch_fill": (
            lambda value: ub.launch_fill(ub.zeros(24).buffer, layout, value),
            {"value": 2},
        ),
        "launch_gather": (
            lambda axis: ub.launch_gather(**both, **{**whole, "axis": axis}),
            {"axis": 0},
        ),
        "launch_im2col": (
            lambda **given: ub.launch_im2col(**square, **given),
            {"window": (2, 2), "stride": 1, "padding": 1, "dilation": 1},
        ),
        "launch_index_add": (
            lambda axis: ub.launch_index_add(
                ub.zeros(24).buffer, layout, some.buffer, some.layout, x.buffer, x[:2].layout, axis
            ),
            {"axis": 0},
        ),
        "launch_index_select": (
            lambda axis: ub.launch_index_select(**both, **{**of_ids, "axis": axis}),
            {"axis": 0},
        ),
        "launch_kv_concat": (
            lambda axis: ub.launch_kv_concat(*(cube.buffer, cube.layout) * 2, axis),
            {"axis": 1},
        ),
        "launch_masked_fill": (
            lambda value: ub.launch_masked_fill(x.buffer, layout, mask.buffer, mask.layout, value),
            {"value": 2},
        ),
        "launch_norm": (
            lambda epsilon: ub.launch_norm(x.buffer, layout, weight.buffer, None, epsilon),
            {"epsilon": 1},
        ),
        "launch_pool2d": (
            lambda **given: ub.launch_pool2d("max_pool2d", **square, **given),
            {"window": (2, 2), "stride": (1, 1)},
        ),
        "launch_quantized_matvec": (
            lambda **given: ub.launch_quantized_matvec(
                "q8_0", stacked.buffer, ub.ones((2, 64)).buffer, **given
            ),
            {**rows, "vectors": 2},
        ),
        "launch_reduce": (lambda axes: ub.launch_reduce("sum", **both, axes=axes), {"axes": (0,)}),
        "launch_scatter": (
            lambda axis: ub.launch_scatter(
                "scatter",
                ub.zeros(24).buffer,
                layout,
                ids.buffer,
                ids.layout,
                x.buffer,
                layout,
                axis,
            ),
            {"axis": 0},
        ),
        "launch_unary": (
            lambda parameter: ub.launch_unary("elu", **both, parameter=parameter),
            {"parameter": 2},
        ),
        "launch_upsample2d": (
            lambda **given: ub.launch_upsample2d("upsample_bilinear2d", **square, **given),
            {"rows": 3, "columns": 4, "scale": (1, 1)},
        ),
    }
    found |= of_graphs(x)
    for name in (
        "all",
        "any",
        "argmax",
        "argmin",
        "cumsum",
        "flip",
        "max",
        "mean",
        "min",
        "prod",
        "std",
        "sum",
        "var",
        "argsort",
        "sort",
        "softmax",
        "log_softmax",
    ):
        given: dict[str, Any] = {"axis": 1}
        if name in ("std", "var"):
            given |= {"ddof": 0, "correction": None}
        found[name] = (_first(getattr(ub, name), x), given)
        if hasattr(x, name):
            found[f"DeviceTensor.{name}"] = (getattr(x, name), given)
    for name in ("avg_pool2d", "max_pool2d"):
        found[name] = (_first(getattr(ub, name), images), {"window": 2, "stride": 1})
    for axes, data in ((1, line), (2, images)):
        kernel = ub.ones((2, 2, *(2,) * axes))
        for name, given in ((f"conv{axes}d", window), (f"conv_transpose{axes}d", turned)):
            found[name] = (_first(getattr(ub, name), data, kernel), given)
    untold = {name for name, _ in public_parameters()} - set(found)
    for op in OPS.values():
        if op.dtypes and op.called in untold:
            call = call_of(op, x.device, np.random.default_rng(0))
            found[op.called] = (call, call.numbers)
    return found


def of_graphs(x: ub.DeviceTensor) -> dict[str, Call]:
    """Calls that build graphs and run them."""

    def graph_of(name: str, shape: Any, inputs: Any, **params: Any) -> str:
        graph = ub.ComputeGraph()
        for _ in range(2):
            graph.add_leaf(x)
        node = graph.add_op(name, None, shape, inputs, ub.OpParams(**params))
        ub.execute_graph(graph)
        return str(graph.tensor(node).tolist())

    def scalar_of(graph: ub.ComputeGraph, **given: Any) -> list[float]:
        node = graph.add_scalar("s", **given)
        ub.execute_graph(graph)
        found: list[float] = graph.tensor(node).tolist()
        return found

    graph, slotted = ub.ComputeGraph(), ub.ComputeGraph()
    graph.add_op("add", None, x.shape, (graph.add_leaf(x), graph.add_leaf(x)))
    slotted.add_scalar("s", 3)
    bound = {"value": 3, "low": 1, "high": 5}
    return {
        "ComputeGraph.add_leaf": (
            lambda shape: ub.ComputeGraph().add_leaf(x.buffer, shape),
            {"shape": 24},
        ),
        "ComputeGraph.add_op": (
            lambda **given: graph_of("add", **given),
            {"shape": (4, 6), "inputs": (0, 1)},
        ),
        "ComputeGraph.add_scalar": (lambda **given: scalar_of(ub.ComputeGraph(), **given), bound),
        "ComputeGraph.checked_slots": (
            lambda given: slotted.checked_slots({"s": given}),
            {"given": 4},
        ),
        "ComputeGraph.scalar": (
            lambda value, bounds: ub.ComputeGraph().scalar("s", value, low=bounds).shape,
            {"value": 3, "bounds": 1},
        ),
        "ComputeGraph.tensor": (lambda node: graph.tensor(node).shape, {"node": 1}),
        "ComputeGraph.keep": (graph.keep, {"node": 2}),
        "ComputeGraph.value_of": (lambda node: str(graph.value_of(node)), {"node": 1}),
        "ComputeGraph.is_result": (graph.is_result, {"storage": 0}),
        "OpParams.__init__": (
            lambda integer, scalar: (
                graph_of("softmax", (4, 6), (0,), integer=integer)
                + graph_of("elu", (4, 6), (0,), scalar=scalar)
            ),
            {"integer": 1, "scalar": 2},
        ),
        "execute_graph": (
            lambda slots: ub.execute_graph(slotted, s=slots).n_launches,
            {"slots": 4},
        ),
    }


def _first(function: Callable[..., Any], *operands: Any) -> Callable[..., Any]:
    return lambda **given: function(*operands, **given)


def _allocated(allocate: Callable[..., DeviceBuffer]) -> Callable[..., int]:
    return lambda size: allocate(size, as_dtype("f32")).size


def _stack(blocks: QuantizedWeight) -> QuantizedWeight:
    twice = DeviceBuffer.from_numpy(np.tile(blocks.buffer.to_numpy(), 2))
    return QuantizedWeight(twice, "q8_0", 8, 64, shape=(2, 4, 64))


def called(call: Call, name: str, value: Any) -> Any:
    function, arguments = call
    given = {**arguments, name: value}
    in_order = [
        one for key in list(given) if key.startswith("*") for one in _spread(given.pop(key))
    ]
    return function(*in_order, **given)


def _spread(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def plain(result: Any) -> Any:
    """Return a result as values that compare with `==`."""
    if isinstance(result, ub.DeviceTensor):
        return result.shape, result.dtype.name, result.tolist()
    if isinstance(result, DeviceBuffer):
        return result.to_numpy().tolist()
    if isinstance(result, np.ndarray):
        return result.tolist()
    if isinstance(result, (tuple, list)):
        return [plain(one) for one in result]
    if isinstance(result, ub.Generator):
        return result.seed, result.position
    return str(result) if isinstance(result, QuantizedWeight) else result


@contextmanager
def little_memory(device: Device) -> Iterator[None]:
    before = device.context.memory_limit
    device.context.memory_limit = device.context.pool_statistics()["bytes_reserved"] + MOST_BYTES
    try:
        yield
    finally:
        device.context.memory_limit = before


def cases() -> list[tuple[str, str]]:
    return [(name, one.lstrip("*")) for name, (_, given) in calls().items() for one in given]


def test_every_parameter_is_tried(device: Device) -> None:
    assert public_parameters() - set(cases()) == set()


def test_numpys_ints_are_ints(device: Device) -> None:
    for name, call in calls().items():
        for parameter, value in call[1].items():
            expected = plain(called(call, parameter, value))
            if name == "Generator.skip" or parameter in FLOATS:
                continue
            for kind in (np.int64, np.int8, np.uint16, np.array, Indexed):
                given = (
                    tuple(kind(one) for one in value) if isinstance(value, tuple) else kind(value)
                )
                try:
                    found = plain(called(call, parameter, given))
                except Exception as error:
                    error.add_note(f"{name}({parameter}={given!r})")
                    raise
                assert found == expected, (name, parameter, given)


def test_extremes_are_refused_in_our_words(
    device: Device, rng: np.random.Generator, seed: int
) -> None:
    """Test a sample of the values for each parameter; in a soak all."""
    with little_memory(device):
        for name, call in calls().items():
            for parameter in call[1]:
                chosen = rng.permutation(len(EXTREMES))[: None if SOAK else 6]
                for value in (EXTREMES[one] for one in chosen):
                    if name in MAKES_ARRAYS and type(value) is int and abs(value) < 1 << 60:
                        continue
                    try:
                        found = called(call, parameter, value)
                        if isinstance(found, ub.DeviceTensor) and found.size < 1 << 20:
                            found.to_numpy()
                    except (DeviceError, IndexError):
                        pass
                    except Exception as error:
                        error.add_note(f"{name}({parameter}={value!r})")
                        raise
