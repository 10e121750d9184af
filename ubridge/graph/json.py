"""A graph as a file: nodes, calls and memory, but not what is in the memory."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.graph.building import GraphBuilder
from ubridge.graph.calls import Call, Place, ScalarSlot, is_enqueuing
from ubridge.graph.checks import require_place, require_slot, require_sound
from ubridge.graph.ops import Node, OpParams
from ubridge.graph.uses import require_counts, require_kind
from ubridge.graph.window_rules import layouts_in_memory
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, DType, as_dtype
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotFoundError,
)

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
    text = Path(path).read_bytes()
    buffers = {name: _buffer(leaf) for name, leaf in leaves.items()}
    try:
        return _read(kind, json.loads(text.decode("utf-8")), buffers, device)
    except (InvalidHandleError, NotFoundError):
        # Of the leaves: no fault of the file.
        raise
    except (ArgumentTypeError, ArgumentValueError) as error:
        raise ArgumentValueError(f"{path}: {error}") from error
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Whatever else there is in the file, it is not what save() writes.
        raise ArgumentValueError(
            f"{path}: not a graph as save() writes it: {type(error).__name__}: {error}"
        ) from error


def _read(
    kind: type[Graph],
    whole: Any,
    buffers: Mapping[str, DeviceBuffer],
    device: Device | None,
) -> Graph:
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ArgumentValueError(f"expected a file of the format {FORMAT!r}")
    if whole["version"] != VERSION:
        raise ArgumentValueError(
            f"expected a graph file of version {VERSION}, got {whole['version']}; save it anew"
        )
    storages = [_Storage(**one) for one in whole["storages"]]
    named = [one.leaf for one in storages if one.leaf is not None]
    missing = [name for name in named if name not in buffers]
    if missing:
        raise NotFoundError(f"the graph reads {', '.join(missing)}: give them as leaves")
    graph = kind(next((buffer.device for buffer in buffers.values()), device))
    if len(set(named)) < len(named):
        raise ArgumentValueError("expected each leaf once")
    for one in storages:
        if one.leaf is not None:
            _require_room(one.leaf, buffers[one.leaf], one.bytes)
            graph.storages.hold(buffers[one.leaf])
        else:
            graph.storages[graph.storages.add(one.bytes)].is_kept = one.kept
    numbers: dict[int, int] = {}
    names: set[str] = set()
    for one in whole["nodes"]:
        _take(graph, numbers, names, **one)
    _require_undisturbed(graph)
    _require_kind("recorded", bool, whole["recorded"])
    graph.is_recorded = whole["recorded"]
    graph.order()
    return graph


@dataclass(frozen=True)
class _Storage:
    """A storage as the file describes it."""

    bytes: int
    leaf: str | None
    kept: bool

    def __post_init__(self) -> None:
        require_counts("bytes of a storage", self.bytes)
        _require_kind("leaf", str | None, self.leaf)
        _require_kind("kept", bool, self.kept)


def _take(
    graph: GraphBuilder,
    numbers: dict[int, int],
    names: set[str],
    *,
    node: int,
    name: str | None,
    op: str | None,
    shape: list[int],
    inputs: list[int],
    place: Any,
    method: str | None,
    arguments: list[Any],
) -> None:
    """Add a node of the file, with what it enqueues."""
    _require_kind("node", int, node)
    _require_kind("name", str | None, name)
    if node in numbers or name in names or name == "stream":
        raise ArgumentValueError(f"node {node}, {name!r}: expected a number and a name of its own")
    made = Node(
        len(graph.nodes),
        None if op is None else OPS[op],
        _shape(shape),
        tuple(numbers[other] for other in inputs),
        OpParams(),
        name,
    )
    at = _decoded(place)
    require_place(at, graph.storages)
    if made.shape.size > at.size:
        raise ArgumentValueError(f"{made}: its shape {made.shape} does not fit {at.size} elements")
    call = None
    if op is None:
        if graph.storages[at.storage].buffer is None:
            raise ArgumentValueError(f"{made}: expected a leaf's memory, got storage {at.storage}")
    else:
        if method is None or not is_enqueuing(method):
            raise ArgumentValueError(f"{made}: no way to launch it is called {method!r}")
        call = Call(method, tuple(_decoded(item) for item in arguments))
        require_sound(call, graph.storages)
        if call.written != at:
            raise ArgumentValueError(f"{made}: expected its value where it is written")
    numbers[node] = made.index
    if name is not None:
        names.add(name)
    graph.take(made, call, at)


def _require_undisturbed(graph: GraphBuilder) -> None:
    """Refuse calls that change what others were checked by: layouts in memory, slots' numbers."""
    calls = [call for call in graph.calls if call is not None]
    slots = [(slot, call) for call in calls for slot in call.slots]
    for slot, call in slots:
        require_slot(slot, call, graph.storages)
    if len({slot.name for slot, _ in slots}) < len(slots):
        raise ArgumentValueError("expected a name of its own for each slot")

    def memory(place: Place) -> int:
        """The same for all that may share memory."""
        buffer = graph.storages[place.storage].buffer
        return -1 - place.storage if buffer is None else id(buffer._place[0])

    written = Counter(memory(call.written) for call in calls)
    layouts = [place for call in calls for place in layouts_in_memory(call)]
    if any(written[memory(place)] for place in layouts):
        raise ArgumentValueError("a call writes where other calls have their layouts")
    if any(written[memory(call.written)] > 1 for _, call in slots):
        raise ArgumentValueError("a call writes where a slot has its number")


def _require_kind(what: str, kind: Any, value: object) -> None:
    require_kind(f"{what} of a graph file", kind, value)


def _shape(lengths: Any) -> Shape:
    require_counts("a shape", *lengths)
    return Shape(lengths)


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
        storage, offset, size, dtype = value
        return Place(storage, offset, size, _dtype(dtype))
    if kind == "layout":
        lengths, strides, start = value
        require_counts("a layout", *lengths, *strides, start)
        return Layout(lengths, strides, start)
    if kind == "shape":
        return _shape(value)
    if kind == "op":
        return OPS[value]
    if kind == "dtype":
        return _dtype(value)
    if kind == "slot":
        name, dtype, *bounds = value
        number, low, high = map(_decoded, bounds)
        return ScalarSlot(name, number, _dtype(dtype), low, high)
    if kind == "tuple":
        return tuple(_decoded(item) for item in value)
    if kind == "float":
        return float(value)
    raise ArgumentValueError(f"unknown kind of argument {kind!r}")


def _dtype(name: Any) -> DType:
    # numpy has names for more than one, and takes more than names.
    _require_kind("dtype", str, name)
    return as_dtype(name)


__all__ = ["leaf_names", "load", "save"]
