"""The order in which a graph's nodes run, and a check for overwritten values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from ubridge.core.storage_view import StorageView
from ubridge.graph.ops import Node
from uhal.errors import ArgumentValueError


def ordered(nodes: Sequence[Node]) -> list[int]:
    """Return the nodes by number, but each node after its inputs.

    Raises `ArgumentValueError` that names the nodes of a cycle, or an input that does not exist.
    """
    for node in nodes:
        for one in node.inputs:
            if one >= len(nodes):
                raise ArgumentValueError(f"{node}: its input {one} was never added")
    sorter = TopologicalSorter({node.index: node.inputs for node in nodes})
    try:
        sorter.prepare()
    except CycleError as error:
        around = error.args[1][:-1]
        first = around.index(min(around))
        listed = (*around[first:], *around[: first + 1])
        told = " → ".join(str(nodes[index]) for index in listed)
        raise ArgumentValueError(f"the graph has a cycle: {told}") from None
    ready: list[int] = []
    found = []
    while sorter:
        for index in sorter.get_ready():
            heappush(ready, index)
        found.append(heappop(ready))
        sorter.done(found[-1])
    return found


def require_fresh(
    nodes: Sequence[Node], values: Mapping[int, StorageView], order: Sequence[int]
) -> None:
    """Refuse a node that reads a value after another node has overwritten it."""
    alive: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    writers: dict[int, int] = {}
    for index in order:
        node = nodes[index]
        if node.op is None:
            view = values[index]
            alive[view.storage].append((view.offset, view.offset + view.nbytes, index))
    for index in order:
        node = nodes[index]
        if node.op is None:
            continue
        for one in node.inputs:
            if one in writers:
                raise ArgumentValueError(
                    f"{node}: reads {nodes[one]} after {nodes[writers[one]]} has overwritten it; "
                    "add the reader first, or give the writer other memory"
                )
        view = values[index]
        start, stop = view.offset, view.offset + view.nbytes
        kept = []
        for low, high, other in alive[view.storage]:
            if low < stop and start < high:
                writers[other] = index
            else:
                kept.append((low, high, other))
        alive[view.storage] = [*kept, (start, stop, index)]
