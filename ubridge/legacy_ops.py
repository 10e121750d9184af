"""The three operations of the demo network, with the kernels it has had since before Candle's.

A row holds the module and entry of the kernel, the order of its arguments and the geometry of a
launch. Where there are no such kernels the same is launched through the floor beneath tensors. The
functions check what the kernel cannot: that the buffers hold what the sizes say.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ubridge.core.layout import Layout
from ubridge.device.images import load_module
from ubridge.ops.launching import launch_matmul, launch_unary
from ubridge.ops.launching_windows import launch_convolution
from uhal import Device, DeviceBuffer, LaunchConfig, Stream, launch
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    NotSupportedError,
)
from uhal.frameworks import shares_memory

Sizes = Mapping[str, int]
Geometry = Callable[[Device, Sizes], LaunchConfig]


class Activation(IntEnum):
    """The `kind` of `activation`."""

    RELU = 0
    GELU = 1
    """The tanh form."""
    LEAKY_RELU = 2
    """Slope 0.1 below zero."""
    TANH = 3


@dataclass(frozen=True)
class Row:
    """How one operation is launched on one backend."""

    module: str
    entry: str
    arguments: tuple[str, ...]
    """The operation's argument names in the order of the kernel's parameters."""
    geometry: Geometry


def _product_tiles(columns: int, rows: int) -> Geometry:
    """A 16 x 16 block for each tile of `rows` x `columns` values of the product.

    The blocks of a grid cut to the device's limit take several tiles each.
    """

    def geometry(device: Device, sizes: Sizes) -> LaunchConfig:
        most_across, most_down, _ = device.limits.max_grid
        across = min(-(-sizes["n"] // columns), most_across)
        down = min(-(-sizes["m"] // rows), most_down)
        return LaunchConfig((across, down), (16, 16))

    return geometry


def _one_each(device: Device, sizes: Sizes) -> LaunchConfig:
    return LaunchConfig.for_num_elems(sizes["rows"] * sizes["cols"], device=device)


def _result_strips(columns: int) -> Geometry:
    """A work-item for each run of `columns` results of a row."""

    def geometry(device: Device, sizes: Sizes) -> LaunchConfig:
        across = -(-(sizes["width"] - sizes["kw"] + 1) // columns)
        down = sizes["height"] - sizes["kh"] + 1
        return LaunchConfig.for_num_elems(across * down, device=device)

    return geometry


def _matmul(columns: int) -> Row:
    arguments = ("a", "b", "out", "m", "k", "n")
    geometry = _product_tiles(columns, rows=256)
    return Row("batch_matmul_legacy", "batch_matmul_legacy", arguments, geometry)


def _convolution(columns: int) -> Row:
    arguments = ("input", "weight", "out", "width", "height", "kw", "kh")
    return Row("convolution", "convolution", arguments, _result_strips(columns))


_ACTIVATION = Row("activation", "activationf32", ("data", "rows", "cols", "kind"), _one_each)

# Columns is STRIP of kernels/strip.h: 16 on a CPU, 4 on a GPU.
ROWS: Mapping[tuple[str, str], Row] = {
    ("matmul", "host"): _matmul(columns=16),
    ("matmul", "cuda"): _matmul(columns=4),
    ("matmul", "rocm"): _matmul(columns=4),
    ("activation", "host"): _ACTIVATION,
    ("activation", "cuda"): _ACTIVATION,
    ("activation", "rocm"): _ACTIVATION,
    ("convolution", "host"): _convolution(columns=16),
    ("convolution", "cuda"): _convolution(columns=4),
    ("convolution", "rocm"): _convolution(columns=4),
}
"""(operation, backend) to its launch; other backends use `ubridge.buffers`."""


def matmul(
    a: DeviceBuffer,
    b: DeviceBuffer,
    out: DeviceBuffer,
    m: int,
    k: int,
    n: int,
    stream: Stream | None = None,
) -> None:
    """Enqueue `out = a @ b` for row-major f32 matrices of m x k, k x n and m x n.

    `out` must not overlap `a` or `b`. Nothing is launched when m or n is 0.
    """
    sizes = _sizes("matmul", m=m, k=k, n=n)
    _require("matmul", "a", a, sizes["m"] * sizes["k"])
    _require("matmul", "b", b, sizes["k"] * sizes["n"])
    _require("matmul", "out", out, sizes["m"] * sizes["n"])
    _require_apart("matmul", out, a, b)
    if sizes["m"] and sizes["n"]:
        _enqueue("matmul", out.device, {"a": a, "b": b, "out": out}, sizes, stream)


def activation(
    data: DeviceBuffer,
    rows: int,
    cols: int,
    kind: Activation | int,
    stream: Stream | None = None,
) -> None:
    """Enqueue an activation function over rows x cols f32 values, in place."""
    sizes = _sizes("activation", rows=rows, cols=cols)
    _require("activation", "data", data, sizes["rows"] * sizes["cols"])
    if kind not in tuple(Activation):
        known = ", ".join(f"{one.value} {one.name}" for one in Activation)
        raise ArgumentValueError(f"activation, 'kind': expected one of {known}, got {kind!r}")
    buffers = {"data": data}
    _enqueue("activation", data.device, buffers, sizes | {"kind": int(kind)}, stream)


def convolution(
    input: DeviceBuffer,
    weight: DeviceBuffer,
    out: DeviceBuffer,
    width: int,
    height: int,
    kw: int,
    kh: int,
    stream: Stream | None = None,
) -> None:
    """Enqueue a valid two-dimensional convolution of row-major f32 matrices.

    `input` is height x width, `weight` kh x kw and not flipped, `out` (height - kh + 1) x
    (width - kw + 1). `out` must not overlap the others.
    """
    sizes = _sizes("convolution", width=width, height=height, kw=kw, kh=kh)
    if not (1 <= sizes["kw"] <= sizes["width"] and 1 <= sizes["kh"] <= sizes["height"]):
        raise ArgumentValueError(
            f"convolution: expected a weight of at least 1 x 1 and at most the input's "
            f"{height} x {width}, got {kh} x {kw}"
        )
    _require("convolution", "input", input, sizes["width"] * sizes["height"])
    _require("convolution", "weight", weight, sizes["kw"] * sizes["kh"])
    results = (sizes["width"] - sizes["kw"] + 1) * (sizes["height"] - sizes["kh"] + 1)
    _require("convolution", "out", out, results)
    _require_apart("convolution", out, input, weight)
    buffers = {"input": input, "weight": weight, "out": out}
    _enqueue("convolution", out.device, buffers, sizes, stream)


def _sizes(operation: str, **given: int) -> dict[str, int]:
    """The sizes as ints that fit a u32 parameter."""
    sizes = {}
    for name, value in given.items():
        try:
            size = operator.index(value)
        except TypeError:
            raise ArgumentTypeError(
                f"{operation}, {name!r}: expected an int, got {type(value).__name__} {value!r}"
            ) from None
        if not 0 <= size < 1 << 32:
            raise ArgumentRangeError(
                f"{operation}, {name!r}: expected an int in 0…{(1 << 32) - 1}, got {size}"
            )
        sizes[name] = size
    return sizes


def _require(operation: str, name: str, buffer: DeviceBuffer, elements: int) -> None:
    if not isinstance(buffer, DeviceBuffer):
        raise ArgumentTypeError(
            f"{operation}, {name!r}: expected a DeviceBuffer, got {type(buffer).__name__}"
        )
    if buffer.size < elements:
        raise ArgumentValueError(
            f"{operation}, {name!r}: expected at least {elements} elements, got {buffer.size}"
        )


def _require_apart(operation: str, out: DeviceBuffer, *others: DeviceBuffer) -> None:
    if shares_memory(out, *others):
        raise ArgumentValueError(
            f"{operation}, 'out': expected memory apart from the operands', got memory that one of "
            "them lies in. Give another buffer."
        )


def _enqueue(
    operation: str,
    device: Device,
    buffers: Mapping[str, DeviceBuffer],
    sizes: Sizes,
    stream: Stream | None,
) -> None:
    """Launch by the table. `uhal._lane` checks dtypes, devices and the stream."""
    row = ROWS.get((operation, device.backend))
    if row is None:
        _THROUGH_FLOOR[operation](buffers, sizes, stream)
        return
    values: Mapping[str, object] = {**buffers, **sizes}
    arguments = tuple(values[name] for name in row.arguments)
    function = load_module(row.module, device=device).get_function(row.entry)
    launch(function, args=arguments, stream=stream, config=row.geometry(device, sizes))


# -- without kernels of its own -------------------------------------------------------------------

_OPERATIONS = {Activation.RELU: "relu", Activation.GELU: "gelu", Activation.TANH: "tanh"}


def _floor_matmul(buffers: Mapping[str, DeviceBuffer], sizes: Sizes, stream: Stream | None) -> None:
    left = Layout.contiguous((sizes["m"], sizes["k"]))
    right = Layout.contiguous((sizes["k"], sizes["n"]))
    launch_matmul(buffers["a"], left, buffers["b"], right, out=buffers["out"], stream=stream)


def _floor_activation(
    buffers: Mapping[str, DeviceBuffer], sizes: Sizes, stream: Stream | None
) -> None:
    data = buffers["data"]
    operation = _OPERATIONS.get(Activation(sizes["kind"]))
    if operation is None:
        raise NotSupportedError(
            f"activation: no kernel of {Activation(sizes['kind']).name} on the "
            f"{data.device.backend} backend"
        )
    layout = Layout.contiguous(sizes["rows"] * sizes["cols"])
    launch_unary(operation, data, layout, out=data, stream=stream)


def _floor_convolution(
    buffers: Mapping[str, DeviceBuffer], sizes: Sizes, stream: Stream | None
) -> None:
    image = Layout.contiguous((1, 1, sizes["height"], sizes["width"]))
    window = Layout.contiguous((1, 1, sizes["kh"], sizes["kw"]))
    launch_convolution(
        "conv2d",
        buffers["input"],
        image,
        buffers["weight"],
        window,
        out=buffers["out"],
        stream=stream,
    )


_THROUGH_FLOOR: Mapping[str, Callable[[Mapping[str, DeviceBuffer], Sizes, Stream | None], None]] = {
    "matmul": _floor_matmul,
    "activation": _floor_activation,
    "convolution": _floor_convolution,
}
