"""A graph as a file: nodes, calls and memory, but not what is in the memory."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.place import Place
from ubridge.core.question import Known, Question
from ubridge.graph.building import GraphBuilder
from ubridge.graph.calls import Call, ScalarSlot
from ubridge.graph.ops import Node, OpParams
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, as_dtype
from uhal.device import DeviceLike, as_device
from uhal.errors import ArgumentValueError, NotFoundError

FORMAT = "ubridge graph"
VERSION = 2
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
                "place": _place(graph.storages.values[index]),
                "call": None if call is None else _call(call),
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
    device: DeviceLike | None,
) -> Graph:
    """Read a graph that `save` wrote, over the given leaves.

    Raises `ArgumentValueError` for a file that is none or whose parts do not fit together, and
    `NotFoundError` for a leaf that is not given.
    """
    wanted = None if device is None else as_device(device)
    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        return _read(kind, whole, leaves, wanted)
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
        place = _as_place(one["place"], graph, node)
        call = None if op is None else _as_call(op, one["call"], graph, node)
        graph.take(node, call, place)
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


# -- calls ---------------------------------------------------------------------------------------


def _call(call: Call) -> dict[str, Any]:
    """A question and where it is asked of; what is no number names its kind."""
    question = call.question
    return {
        "operands": [
            {**_known(known), "place": _place(place)}
            for known, place in zip(question.operands, call.operands, strict=True)
        ],
        "result": {**_known(question.result), "place": _place(call.written)},
        "attributes": {name: _encoded(value) for name, value in question.attributes},
        "numbers": [_encoded(number) for number in call.numbers],
    }


def _known(known: Known) -> dict[str, Any]:
    dtype, layout = known
    return {"dtype": dtype.name, "shape": list(layout.shape), "strides": list(layout.strides)}


def _place(place: Place) -> list[Any]:
    return [place.storage, place.offset, place.size, place.dtype.name]


def _as_call(op: Op, told: Any, graph: GraphBuilder, node: Node) -> Call:
    """The call that a file tells of, whose memory holds what it reads and writes."""
    known, places = zip(
        *(_as_operand(one, graph, node) for one in (told["result"], *told["operands"])),
        strict=True,
    )
    numbers = tuple(_decoded(one) for one in told["numbers"])
    attributes = tuple((name, _decoded(value)) for name, value in told["attributes"].items())
    question = Question(op, known[1:], known[0], attributes, len(numbers))
    return Call(question, places[1:], places[0], numbers)


def _as_operand(told: Any, graph: GraphBuilder, node: Node) -> tuple[Known, Place]:
    dtype, layout = as_dtype(told["dtype"]), Layout(told["shape"], told["strides"])
    place = _as_place(told["place"], graph, node)
    if place.dtype is not dtype or place.size < layout.extent:
        raise ArgumentValueError(
            f"{node}: expected {layout.extent} elements of {dtype}, which shape {layout.shape} "
            f"with strides {layout.strides} reaches, got {place.size} of {place.dtype}"
        )
    return (dtype, layout), place


def _as_place(told: Any, graph: GraphBuilder, node: Node) -> Place:
    storage, offset, size, name = told
    number, first, count = map(operator.index, (storage, offset, size))
    place = Place(number, first, count, as_dtype(name))
    if not 0 <= place.storage < len(graph.storages) or min(place.offset, place.size) < 0:
        raise ArgumentValueError(f"{node}: expected a place in the graph's memory, got {told}")
    whole = graph.storages[place.storage].nbytes
    if place.offset % place.dtype.itemsize or place.offset + place.nbytes > whole:
        raise ArgumentValueError(
            f"{node}: expected {place.nbytes} bytes from byte {place.offset} on in memory of "
            f"{whole} bytes"
        )
    return place


def _encoded(one: Any) -> Any:
    """A number or an attribute as JSON has it: an object of one key says what else it is."""
    if isinstance(one, ScalarSlot):
        bounds = [_encoded(number) for number in (one.value, one.low, one.high)]
        return {"slot": [one.name, one.dtype.name, *bounds]}
    if isinstance(one, tuple):
        return {"tuple": [_encoded(item) for item in one]}
    if isinstance(one, float) and not math.isfinite(one):
        return {"float": repr(one)}
    if isinstance(one, np.generic):
        return _encoded(one.item())
    return one


def _decoded(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    ((kind, value),) = one.items()
    if kind == "slot":
        name, dtype, *bounds = value
        number, low, high = map(_decoded, bounds)
        return ScalarSlot(name, number, as_dtype(dtype), low, high)
    if kind == "tuple":
        return tuple(_decoded(item) for item in value)
    if kind == "float":
        return float(value)
    raise ArgumentValueError(f"unknown kind of number {kind!r}")


__all__ = ["leaf_names", "load", "save"]
