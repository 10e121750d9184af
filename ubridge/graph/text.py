"""A graph as text: one line per node, or Graphviz's language."""

from __future__ import annotations

from collections.abc import Iterator

from ubridge.graph.ops import Node
from ubridge.graph.running import RunnableGraph


def text_of(graph: RunnableGraph) -> str:
    """Return the nodes in order, with their inputs and the memory of their results."""
    memory = graph.memory
    lines = [
        f"graph of {graph.n_ops} operations; results take {memory.peak_bytes} bytes, "
        f"{memory.unplanned_bytes} without reuse"
    ]
    for index in graph.order():
        node = graph.nodes[index]
        view = graph.storages.values[index]
        read = ", ".join(f"%{one}" for one in node.inputs)
        lines.append(
            f"%{index} = {_kind(node)}({read})  {tuple(node.shape)} {view.dtype}"
            f"  {_memory(graph, index)}"
        )
    return "\n".join(lines)


def dot_of(graph: RunnableGraph) -> str:
    """Return the graph in the DOT language: leaves are boxes, kept results have a double border."""
    return "\n".join(["digraph {", *_dot_lines(graph), "}"]) + "\n"


def _dot_lines(graph: RunnableGraph) -> Iterator[str]:
    for index in graph.order():
        node = graph.nodes[index]
        shape = "box" if node.op is None else "ellipse"
        storage = graph.storages[graph.storages.values[index].storage]
        rims = 2 if node.op is not None and not storage.is_planned else 1
        dtype = graph.storages.values[index].dtype
        label = f"{_kind(node)}\\n{tuple(node.shape)} {dtype}".replace('"', '\\"')
        yield f'  n{index} [label="{label}", shape={shape}, peripheries={rims}];'
        for one in node.inputs:
            yield f"  n{one} -> n{index};"


def _kind(node: Node) -> str:
    return f"{node.kind} {node.name!r}" if node.name else node.kind


def _memory(graph: RunnableGraph, index: int) -> str:
    """Location of a value: the arena, its own memory, or the user's memory."""
    view = graph.storages.values[index]
    storage = graph.storages[view.storage]
    if storage.is_planned:
        return f"arena[{graph.memory.offsets[view.storage] + view.offset}]"
    kind = "result" if storage.is_kept else "memory"
    return f"{kind} {view.storage}[{view.offset}]"
