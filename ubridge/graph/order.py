"""The order in which a graph's nodes run, and a check that each reads the values it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from ubridge.core.storage_view import StorageView
from ubridge.graph.ops import Node
from uhal.errors import ArgumentValueError


def ordered(nodes: Sequence[Node]) -> list[int]:
    """Return the nodes so that each comes after its inputs, otherwise by number.

    Raises `ArgumentValueError` that names the nodes of a cycle, or an input that does not exist.
    """
    waiting = [len(set(node.inputs)) for node in nodes]
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for node in nodes:
        for one in set(node.inputs):
            if one >= len(nodes):
                raise ArgumentValueError(f"{node}: its input {one} was never added")
            readers[one].append(node.index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    heapify(ready)
    found = []
    while ready:
        index = heappop(ready)
        found.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heappush(ready, reader)
    if len(found) < len(nodes):
        stuck = {index for index, count in enumerate(waiting) if count}
        listed = " → ".join(str(nodes[index]) for index in _cycle(nodes, stuck))
        raise ArgumentValueError(f"the graph has a cycle: {listed}")
    return found


def _cycle(nodes: Sequence[Node], stuck: set[int]) -> list[int]:
    """A cycle, in the order values would flow; every stuck node has a stuck input."""
    path: list[int] = []
    at = min(stuck)
    while at not in path:
        path.append(at)
        at = next(one for one in nodes[at].inputs if one in stuck)
    around = path[path.index(at) :]
    return [around[0], *reversed(around)]


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
                    "add it before that one, or give one of them other memory"
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


__all__ = ["ordered", "require_fresh"]
