"""A node of a graph: a leaf, or an operation and what it reads."""

from __future__ import annotations

from dataclasses import dataclass

from ubridge.graph_ops import OpParams, TensorOp
from ubridge.layout import Shape
from ubridge.op_table import Op


@dataclass(frozen=True, slots=True)
class Node:
    """A leaf or an operation of a graph."""

    index: int
    """What other nodes name it by."""
    op: Op | None
    """The operation; `None` for a leaf."""
    shape: Shape
    inputs: tuple[int, ...]
    params: OpParams
    name: str | None

    def __str__(self) -> str:
        kind = "leaf" if self.op is None else TensorOp(self.op.name).name
        return f"node {self.index} ({kind}{f' {self.name!r}' if self.name else ''})"
