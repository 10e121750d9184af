"""A graph as a file: nodes, calls and memory, but not what is in the memory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.graph.building import GraphBuilder
from ubridge.graph.calls import Call, Place, ScalarSlot, is_enqueuing
from ubridge.graph.ops import Node, OpParams
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, DType, as_dtype
from uhal.errors import ArgumentValueError, NotFoundError

FORMAT = "ubridge graph"
VERSION = 1
Graph = TypeVar("Graph", bound=GraphBuilder)


def save(graph: GraphBuilder, path: str | os.PathLike[str]) -> None:
    """Write a graph as JSON. Its leaves and weights are named in it and must be given to `load`."""
    order = graph.order()
    names = {number: name for name, number in leaf_names(graph).items()}
    storages = [
        {"bytes": storage.nbytes, "leaf": names.get(number), "kept": not storage.is_planned}
        for number, storage in enumerate(graph.storages)
    ]
    nodes = []
    for index in order:
        node, call = graph.nodes[index], graph.calls[index]
        nodes.append(
            {
                "node": index,
                "name": node.name,
                "op": None if node.op is None else node.op.name,
                "shape": list(node.shape),
                "inputs": list(node.inputs),
                "place": _encoded(graph.storages.values[index]),
                "method": None if call is None else call.method,
                "arguments": [] if call is None else [_encoded(one) for one in call.arguments],
            }
        )
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "recorded": graph.is_recorded,
        "storages": storages,
        "nodes": nodes,
    }
    Path(path).write_text(json.dumps(whole, indent=1, allow_nan=False), encoding="utf-8")


def leaf_names(graph: GraphBuilder) -> dict[str, int]:
    """Return the storages whose contents a run reads, by the names a file has for them."""
    written: set[int] = set()
    read: list[int] = []
    for index in graph.order():
        call = graph.calls[index]
        if call is None:
            read.append(graph.storages.values[index].storage)
            continue
        read += [one.storage for one in graph.reads(call) if one.storage not in written]
        written.add(call.written.storage)
    names = {
        graph.storages.values[node.index].storage: node.name
        for node in reversed(graph.nodes)
        if node.op is None and node.name is not None
    }
    held = [number for number in dict.fromkeys(read) if graph.storages[number].buffer is not None]
    return {names.get(number, f"leaf {number}"): number for number in held}


def load(
    kind: type[Graph],
    path: str | os.PathLike[str],
    leaves: Mapping[str, DeviceTensor | DeviceBuffer],
    device: Device | None,
) -> Graph:
    """Read a graph that `save` wrote, over the given leaves.

    Raises `ArgumentValueError` for a file that is none or whose parts do not fit together, and
    `NotFoundError` for a leaf that is not given.
    """
    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        return _read(kind, whole, leaves, device)
    except NotFoundError:
        raise
    except (KeyError, TypeError, IndexError) as error:
        raise ArgumentValueError(f"{path}: not a graph as save() writes it: {error!r}") from error


def _read(
    kind: type[Graph],
    whole: Any,
    leaves: Mapping[str, DeviceTensor | DeviceBuffer],
    device: Device | None,
) -> Graph:
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ArgumentValueError(f"expected a file of the format {FORMAT!r}")
    if whole["version"] != VERSION:
        raise ArgumentValueError(
            f"expected a graph file of version {VERSION}, got {whole['version']}; save it anew"
        )
    buffers = {name: _buffer(leaf) for name, leaf in leaves.items()}
    missing = [one["leaf"] for one in whole["storages"] if one["leaf"] not in (None, *buffers)]
    if missing:
        raise NotFoundError(f"the graph reads {', '.join(missing)}: give them as leaves")
    first = next((buffer.device for buffer in buffers.values()), device)
    graph = kind(first)
    for one in whole["storages"]:
        if one["leaf"] is not None:
            root, _ = buffers[one["leaf"]]._place
            _require_room(one["leaf"], root, one["bytes"])
            graph.storages.hold(root)
        else:
            graph.storages[graph.storages.add(one["bytes"])].is_kept = one["kept"]
    numbers: dict[int, int] = {}
    for one in whole["nodes"]:
        op = None if one["op"] is None else OPS[one["op"]]
        inputs = tuple(numbers[other] for other in one["inputs"])
        node = Node(len(graph.nodes), op, Shape(one["shape"]), inputs, OpParams(), one["name"])
        numbers[one["node"]] = node.index
        call = None
        if op is not None:
            if not is_enqueuing(one["method"]):
                raise ArgumentValueError(f"{node}: no way to launch it is called {one['method']!r}")
            call = Call(one["method"], tuple(_decoded(item) for item in one["arguments"]))
        graph.take(node, call, _decoded(one["place"]))
    graph.is_recorded = whole["recorded"]
    graph.order()
    return graph


def _buffer(leaf: DeviceTensor | DeviceBuffer) -> DeviceBuffer:
    return leaf.buffer if isinstance(leaf, DeviceTensor) else leaf


def _require_room(name: str, buffer: DeviceBuffer, nbytes: int) -> None:
    if buffer.nbytes < nbytes:
        raise ArgumentValueError(
            f"{name}: expected memory of at least {nbytes} bytes, got {buffer.nbytes}"
        )


# -- arguments -----------------------------------------------------------------------------------


def _encoded(one: Any) -> Any:
    """An argument as JSON has it: an object of one key says what else than a number it is."""
    if isinstance(one, Place):
        return {"place": [one.storage, one.offset, one.size, one.dtype.name]}
    if isinstance(one, Layout):
        return {"layout": [list(one.shape), list(one.strides), one.start_offset]}
    if isinstance(one, Shape):
        return {"shape": list(one)}
    if isinstance(one, Op):
        return {"op": one.name}
    if isinstance(one, DType):
        return {"dtype": one.name}
    if isinstance(one, ScalarSlot):
        bounds = [_encoded(number) for number in (one.value, one.low, one.high)]
        return {"slot": [one.name, one.dtype.name, *bounds]}
    if isinstance(one, tuple):
        return {"tuple": [_encoded(item) for item in one]}
    if isinstance(one, float) and not math.isfinite(one):
        return {"float": repr(one)}
    return one


def _decoded(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    ((kind, value),) = one.items()
    if kind == "place":
        return Place(value[0], value[1], value[2], as_dtype(value[3]))
    if kind == "layout":
        return Layout(*value)
    if kind == "shape":
        return Shape(value)
    if kind == "op":
        return OPS[value]
    if kind == "dtype":
        return as_dtype(value)
    if kind == "slot":
        name, dtype, *bounds = value
        number, low, high = map(_decoded, bounds)
        return ScalarSlot(name, number, as_dtype(dtype), low, high)
    if kind == "tuple":
        return tuple(_decoded(item) for item in value)
    if kind == "float":
        return float(value)
    raise ArgumentValueError(f"unknown kind of argument {kind!r}")


__all__ = ["leaf_names", "load", "save"]
