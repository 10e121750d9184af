"""Names of the functions, methods and operators that an expression calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from benchmarks.ops_rows.row import Row


def spelled(rows: Iterator[Row]) -> frozenset[str]:
    """Return the functions, methods and operators that the rows of ubridge call."""
    found: set[str] = set()
    for row in rows:
        for node in ast.walk(ast.parse(row.ubridge)):
            if isinstance(node, ast.Attribute):
                is_in_place = isinstance(node.value, ast.Name) and node.value.id == "operator"
                found.add(f"__{node.attr}__" if is_in_place else node.attr)
            elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
                found.add(_method(node))
            elif isinstance(node, ast.Compare):
                found.update(_OPERATORS[type(one)] for one in node.ops)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.add(f"__{node.func.id}__")
            elif isinstance(node, ast.Subscript):
                found.update(("__getitem__", "__index__"))
            elif isinstance(node, ast.comprehension):
                found.add("__iter__")
    return frozenset(found)


def _method(node: ast.BinOp | ast.UnaryOp) -> str:
    name = _OPERATORS[type(node.op)]
    reflected = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant)
    return f"__r{name[2:]}" if reflected else name


_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.FloorDiv: "__floordiv__",
    ast.Mod: "__mod__",
    ast.Pow: "__pow__",
    ast.MatMult: "__matmul__",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
    ast.BitXor: "__xor__",
    ast.LShift: "__lshift__",
    ast.RShift: "__rshift__",
    ast.USub: "__neg__",
    ast.UAdd: "__pos__",
    ast.Invert: "__invert__",
    ast.Eq: "__eq__",
    ast.NotEq: "__ne__",
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
    ast.In: "__contains__",
}
