"""A graph as a file: nodes, calls and memory, but not the memory's contents."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from ubridge.core.fits import require, require_counts, require_sound
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.question import Known, Question
from ubridge.core.storage_view import StorageView
from ubridge.definitions.memory import FILL
from ubridge.definitions.table import OPS
from ubridge.files.saving import replacing
from ubridge.graph.building import GraphBuilder
from ubridge.graph.calls import Call, ScalarSlot
from ubridge.graph.ops import Node, OpParams
from ubridge.graph.storage import Storages
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, DType, as_dtype
from uhal.device import DeviceLike, as_device
from uhal.dtypes import bool_, u8
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotFoundError,
)
from uhal.images.regular_file import path_of, require_file

FORMAT = "ubridge graph"
VERSION = 3
Graph = TypeVar("Graph", bound=GraphBuilder)


def save(graph: GraphBuilder, path: str | os.PathLike[str]) -> None:
    """Write a graph as JSON, with only the names of leaves and weights; pass them to `load`."""
    target = path_of("save, path", path)
    order = graph.order()
    names = {number: name for name, number in leaf_names(graph).items()}
    storages = [
        {"bytes": storage.nbytes, "leaf": names.get(number), "kept": not storage.is_planned}
        for number, storage in enumerate(graph.storages)
    ]
    nodes = []
    for index in order:
        node, call = graph.nodes[index], graph.calls[index]
        require(
            node.op is None or not node.op.family.is_recorded,
            f"{node}: expected operations that files hold, got {node.op and node.op.name}, "
            "which only this process can enqueue. Trace it again instead of saving it.",
        )
        nodes.append(
            {
                "node": index,
                "name": node.name,
                "op": None if call is None else call.op.name,
                "shape": list(node.shape),
                "inputs": list(node.inputs),
                "view": _told(graph.value_of(index)),
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
    text = json.dumps(whole, indent=1, allow_nan=False)
    with replacing(target) as out:
        out.write(text.encode("utf-8"))


def leaf_names(graph: GraphBuilder) -> dict[str, int]:
    """Return the storages that a run reads, by their names in a file."""
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

    Raises `ArgumentValueError` for another kind of file or inconsistent parts, and `NotFoundError`
    for a missing leaf.
    """
    wanted = None if device is None else as_device(device)
    source = path_of("load, path", path)
    require_file(source, ArgumentValueError)
    text = source.read_bytes()
    buffers = {
        name: leaf.buffer if isinstance(leaf, DeviceTensor) else leaf
        for name, leaf in leaves.items()
    }
    try:
        return _read(kind, json.loads(text.decode("utf-8")), buffers, wanted)
    except InvalidHandleError:
        # Here the leaves are wrong, not the file.
        raise
    except NotFoundError as error:
        raise NotFoundError(f"{path}: {error}") from None
    except (ArgumentTypeError, ArgumentValueError) as error:
        raise ArgumentValueError(f"{path}: {error}") from error
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Any other error: the file is not one that save() writes.
        raise ArgumentValueError(
            f"{path}: not a graph as save() writes it: {type(error).__name__}: {error}"
        ) from error


def _read(
    kind: type[Graph],
    whole: Any,
    buffers: Mapping[str, DeviceBuffer],
    device: Device | None,
) -> Graph:
    is_ours = isinstance(whole, dict) and whole.get("format") == FORMAT
    require(is_ours, f"expected a file of the format {FORMAT!r}")
    version = whole["version"]
    require(
        version == VERSION,
        f"expected a graph file of version {VERSION}, got {version}; save it anew",
    )
    storages = [_Storage(**one) for one in whole["storages"]]
    named = [one.leaf for one in storages if one.leaf is not None]
    missing = [name for name in named if name not in buffers]
    if missing:
        raise NotFoundError(f"the graph reads {', '.join(missing)}: give them as leaves")
    where = next((buffer.device for buffer in buffers.values()), device)
    graph = kind(where or Device.current())
    require(len(set(named)) == len(named), "expected each leaf once")
    for one in storages:
        if one.leaf is not None:
            room = buffers[one.leaf].nbytes
            require(
                room >= one.bytes,
                f"{one.leaf}: expected memory of at least {one.bytes} bytes, got {room}",
            )
            graph.storages.add(room, buffers[one.leaf])
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
    """The storage that the file describes."""

    bytes: int
    leaf: str | None
    kept: bool

    def __post_init__(self) -> None:
        require_counts("bytes of a storage", self.bytes)
        _require_kind("leaf", (str, NoneType), self.leaf)
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
    view: Any,
    call: Any,
) -> None:
    """Add a node of the file, with its call."""
    _require_kind("node", int, node)
    _require_kind("name", (str, NoneType), name)
    require(
        node not in numbers and name not in names and name != "stream",
        f"node {node}, {name!r}: expected a number and a name of its own",
    )
    require_counts("a shape", *shape)
    kind, read = None if op is None else OPS[op], tuple(numbers[other] for other in inputs)
    made = Node(len(graph.nodes), kind, Shape(shape), read, OpParams(), name)
    at = _as_view(view, graph.storages)
    if at.dtype is bool_:
        require(kind is None, f"{made}: expected a leaf as bool, results are u8")
        graph.booleans.add(made.index)
        at = at._replace(dtype=u8)
    fits = made.shape.size <= at.size
    require(fits, f"{made}: its shape {made.shape} does not fit {at.size} elements")
    asked = None
    if kind is None:
        has_memory = graph.storages[at.storage].buffer is not None
        require(has_memory, f"{made}: expected a leaf's memory, got storage {at.storage}")
    else:
        asked = _as_call(kind, graph.storages, **call)
        require(asked.written == at, f"{made}: expected its value where it is written")
    numbers[node] = made.index
    if name is not None:
        names.add(name)
    graph.take(made, asked, at)


def _require_undisturbed(graph: GraphBuilder) -> None:
    """Refuse calls that overwrite the numbers of slots, by which other calls were checked."""
    calls = [call for call in graph.calls if call is not None]
    slots = [(slot, call) for call in calls for slot in call.slots]
    for slot, call in slots:
        _require_slot(slot, call, graph.storages)
    names = {slot.name for slot, _ in slots}
    require(len(names) == len(slots), "expected a name of its own for each slot")

    def memory(view: StorageView) -> int:
        """Return the same number for all storages that may share memory."""
        buffer = graph.storages[view.storage].buffer
        return -1 - view.storage if buffer is None else id(buffer.base)

    written = Counter(memory(call.written) for call in calls)
    is_alone = all(written[memory(call.written)] == 1 for _, call in slots)
    require(is_alone, "a call writes where a slot has its number")


def _require_slot(slot: ScalarSlot, call: Call, storages: Storages) -> None:
    """Refuse a slot that shares its memory: readers rely on its range."""
    written = call.written
    storage = storages[written.storage]
    numbers = (slot.value, slot.low, slot.high)
    are_numbers = all(type(one) in (int, float) for one in numbers)
    require(
        isinstance(slot.name, str) and are_numbers,
        f"expected a slot's name and numbers, got {slot}",
    )
    require(
        call.op is FILL and written.dtype is slot.dtype and not written.offset,
        f"slot {slot.name!r}: expected memory of {slot.dtype} filled by it",
    )
    require(
        storage.buffer is None and written.size == 1 and storage.nbytes == written.nbytes,
        f"slot {slot.name!r}: expected one number in memory of its own",
    )
    slot.checked(slot.value)


def _require_kind(what: str, kind: Any, value: object) -> None:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    expected = " or ".join(one.__name__ for one in kinds)
    require(
        type(value) in kinds,
        f"{what} of a graph file: expected {expected}, got {value!r:.80}",
    )


# -- calls ---------------------------------------------------------------------------------------


def _call(call: Call) -> dict[str, Any]:
    """A question and its memory; values other than numbers are written with their kind."""
    question = call.question
    return {
        "operands": [*map(_operand, question.operands, call.operands)],
        "result": _operand(question.result, call.written),
        "attributes": {name: _encoded(value) for name, value in question.attributes},
        "numbers": [_encoded(number) for number in call.numbers],
    }


def _operand(known: Known, view: StorageView) -> dict[str, Any]:
    dtype, layout = known
    lies = {"shape": list(layout.shape), "strides": list(layout.strides)}
    return {"dtype": dtype.name, **lies, "view": _told(view)}


def _told(view: StorageView) -> list[Any]:
    return [view.storage, view.offset, view.size, view.dtype.name]


def _as_call(
    op: Op,
    storages: Storages,
    *,
    operands: list[Any],
    result: Any,
    attributes: dict[str, Any],
    numbers: list[Any],
) -> Call:
    """The call that a file describes; its memory is large enough for its layouts."""
    named = {"result": result, **{f"operand {i}": one for i, one in enumerate(operands)}}
    parts = [_as_operand(f"{op.name}, {what}", one, storages) for what, one in named.items()]
    (into, *known), (written, *views) = zip(*parts, strict=True)
    values = tuple(_decoded(one) for one in numbers)
    for value in values:
        if not isinstance(value, ScalarSlot):
            _require_kind("a number", (int, float), value)
    told = tuple((name, _decoded(value)) for name, value in attributes.items())
    question = Question(op, tuple(known), into, told, len(values))
    require_sound(question)
    call = Call(question, tuple(views), written, values)
    conflict = storages.conflict(call)
    require(
        conflict is None,
        f"{op.name}, operand {conflict}: lies in the memory that the result goes to",
    )
    return call


def _as_operand(what: str, told: Any, storages: Storages) -> tuple[Known, StorageView]:
    dtype = _dtype(told["dtype"])
    lengths, strides = told["shape"], told["strides"]
    require_counts(what, *lengths, *strides)
    layout = Layout(lengths, strides)
    view = _as_view(told["view"], storages)
    require(
        view.dtype is dtype and view.size >= layout.extent,
        f"{what}: reaches {layout.extent} elements of {dtype}, and its view has {view.size} of "
        f"{view.dtype}",
    )
    return (dtype, layout), view


def _as_view(told: Any, storages: Storages) -> StorageView:
    number, offset, size, name = told
    require_counts("a view in memory", number, offset, size)
    view = StorageView(number, offset, size, _dtype(name))
    is_one = number < len(storages)
    require(is_one, f"expected one of {len(storages)} storages, got {number}")
    room = storages[number].nbytes
    require(
        offset % view.dtype.itemsize == 0 and offset + view.nbytes <= room,
        f"{size} elements of {view.dtype} at byte {offset} do not lie in storage {number} of "
        f"{room} bytes",
    )
    return view


def _encoded(one: Any) -> Any:
    """A number or an attribute for JSON; other kinds of values are objects of one key."""
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
        return ScalarSlot(name, number, _dtype(dtype), low, high)
    if kind == "tuple":
        return tuple(_decoded(item) for item in value)
    if kind == "float":
        return float(value)
    raise ArgumentValueError(f"unknown kind of number {kind!r}")


def _dtype(name: Any) -> DType:
    # numpy has several names for a dtype, and accepts other objects than names.
    _require_kind("dtype", str, name)
    return as_dtype(name)
