"""`Row`: one operation as an expression of each library."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """One operation as an expression of each library."""

    ubridge: str
    numpy: str = ""
    torch: str = ""
    shapes: Shapes = field(default_factory=dict)
    """Shapes of the operands by name, for a row with one size of its own."""
    dtypes: str = ""
    """Element types; empty for the types that the function's definition promises."""
    is_compared: bool = True
    """Whether all libraries give the same numbers."""

    @property
    def name(self) -> str:
        shape = " × ".join(str(tuple(one)) for one in self.shapes.values())
        name = self.ubridge.replace("ub.", "")
        return f"{name} of {shape}" if shape else name

    def of(self, library: str) -> str:
        """Return the expression of a library."""
        return str(getattr(self, library))

    @property
    def names(self) -> frozenset[str]:
        """The names that the expressions use."""
        trees = [ast.parse(one) for one in (self.ubridge, self.numpy, self.torch) if one]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


def same(names: str, arguments: str, dtypes: str = "") -> Iterator[Row]:
    """Rows of functions that have one name in all three libraries."""
    for name in names.split():
        call = f"{name}({arguments})"
        yield Row(f"ub.{call}", f"np.{call}", f"torch.{call}", dtypes=dtypes)
