"""What operations on windows read and write: the rule of the method `windows`.

Kernels of these are told of layouts by words in device memory. They are read from there when a
graph is loaded, and nothing in the graph may write to them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from ubridge.core.launch_rows import ARGUMENTS
from ubridge.core.layout import Layout
from ubridge.core.op_table import Op
from ubridge.graph.calls import Call, Place
from ubridge.graph.storage import Storages
from ubridge.graph.uses import Use, reach, require, require_counts, require_kind, some
from uhal import DeviceBuffer
from uhal.dtypes import u64


def windows(storages: Storages, op: Op, arguments: tuple[Any, ...], threads: int) -> Iterator[Use]:
    """Their layouts lie in device memory: they are read from there, and then may not change."""
    family = op.family.name
    require(family in _WINDOWS, f"{op.name}: no operation on windows")
    names = ARGUMENTS[family]
    require(
        len(arguments) == len(names),
        f"{op.name}: expected {len(names)} arguments, got {len(arguments)}",
    )
    told = dict(zip(names, arguments, strict=True))
    for name, one in told.items():
        kind = DeviceBuffer if name in ("inp", "kernel", "out", "info") else _KINDS.get(name, int)
        require_kind(f"{op.name}, {name!r}", kind, one)
    operands = [name for name in ("inp", "kernel") if name in told]
    rank = 3 if family.endswith("1d") else 4
    layouts = _layouts_in(op, storages, told["info"], len(operands), rank) if "info" in told else []
    results, work = _WINDOWS[family](op, told, *layouts)
    require(threads == work, f"{op.name}: expected {work} work-items, got {threads}")
    for name, layout in zip(operands, layouts, strict=False):
        yield Use(name, told[name], reach(op.name, layout))
    if not layouts:
        yield Use("inp", told["inp"], _unwindowed(told))
    else:
        yield Use("info", told["info"], 2 * rank * len(layouts), steers=True)
    yield Use("out", told["out"], results)


def layouts_in_memory(call: Call) -> list[Place]:
    """Return the places a call reads layouts from; they were right when it was checked."""
    if call.method != "windows":
        return []
    op, arguments, _ = call.arguments
    told = dict(zip(ARGUMENTS[op.family.name], arguments, strict=True))
    return [told["info"]] if "info" in told else []


_KINDS = {
    "row_scale": float, "column_scale": float,
    "align_corners": bool, "has_row_scale": bool, "has_column_scale": bool,
}  # fmt: skip
"""Arguments of windows that are neither memory nor counts."""


def _layouts_in(op: Op, storages: Storages, info: Place, count: int, rank: int) -> list[Layout]:
    """The layouts a kernel is told of, from memory that is given and that nobody writes."""
    what = f"{op.name}, 'info'"
    storage = storages[info.storage]
    require(
        storage.buffer is not None and info.dtype is u64 and info.size == 2 * rank * count,
        f"{what}: expected {2 * rank * count} words of u64 in a leaf, got {info}",
    )
    words = [int(one) for one in storages.resolve(info).to_numpy()]
    require_counts(what, *words)
    pairs = [words[at : at + rank] for at in range(0, len(words), rank)]
    return [Layout(lengths, strides) for lengths, strides in zip(*[iter(pairs)] * 2, strict=True)]


def _convolved(op: Op, told: dict[str, Any], x: Layout, kernel: Layout) -> tuple[int, int]:
    inner, outer = (0, 1) if "transpose" in op.name else (1, 0)
    require(
        x.shape[1] == kernel.shape[inner] and x.size == told["numel"],
        f"{op.name}: {told['numel']} elements, shapes {x.shape} and {kernel.shape} do not fit",
    )
    some(op.name, told["stride"], told["dilation"])
    places = [told[name] for name in ("length_out", "rows_out", "columns_out") if name in told]
    results = some(op.name, x.shape[0], kernel.shape[outer], *places)
    return results, results


def _pooled(op: Op, told: dict[str, Any], x: Layout) -> tuple[int, int]:
    window = told["rows_k"], told["columns_k"]
    steps = told["row_stride"], told["column_stride"]
    some(op.name, *window, *steps)
    require(
        all(map(operator.le, window, x.shape[2:])) and x.size == told["numel"],
        f"{op.name}: expected windows within shape {x.shape}, got {window}",
    )
    places = [
        (length - size) // step + 1
        for length, size, step in zip(x.shape[2:], window, steps, strict=True)
    ]
    results = some(op.name, *x.shape[:2], *places)
    return results, results


def _resized(op: Op, told: dict[str, Any], x: Layout) -> tuple[int, int]:
    results = some(op.name, *x.shape[:2], told["rows_out"], told["columns_out"])
    return results, results


def _windowed(op: Op, told: dict[str, Any], x: Layout) -> tuple[int, int]:
    if op.family.name == "im2col1d":
        window = told["length_k"]
        results = some(op.name, *x.shape[:2], told["length_out"], window)
        work = told["threads"]
        require(work * window == results, f"{op.name}: expected {results // window} windows")
    else:
        sizes = told["rows_k"], told["columns_k"], told["rows_out"], told["columns_out"]
        results = work = some(op.name, *x.shape[:2], *sizes)
        require(told["numel"] == results, f"{op.name}: expected {results} elements")
    return results, work


def _added_windows(op: Op, told: dict[str, Any]) -> tuple[int, int]:
    line = some(op.name, told["length_out"], told["channels_out"])
    some(op.name, told["length_in"], told["length_k"], told["stride"], told["numel"])
    require(told["numel"] % line == 0, f"{op.name}: {told['numel']} are no lines of {line}")
    return told["numel"], told["numel"]


def _unwindowed(told: dict[str, Any]) -> int:
    """Elements of the windows that `col2im1d` adds up."""
    batch: int = told["numel"] // (told["length_out"] * told["channels_out"])
    window: int = told["length_in"] * told["channels_out"] * told["length_k"]
    return batch * window


_WINDOWS: dict[str, Callable[..., tuple[int, int]]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"), _convolved),
    **dict.fromkeys(("im2col1d", "im2col"), _windowed),
    **dict.fromkeys(("nearest2d", "bilinear2d"), _resized),
    "pool2d": _pooled,
    "col2im1d": _added_windows,
}
"""Family to what finds the elements of its result and its work-items."""

__all__ = ["layouts_in_memory", "windows"]
