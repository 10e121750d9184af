"""Finds Python's `break`, `continue` and `return` that leave a body of the kernel.

These statements act while the kernel is built, so the kernel would silently lack the rest of the
body.
"""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from types import CodeType

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import location

_INSTEAD = {
    "break": "Use `break_()`",
    "continue": "Use `continue_()`",
    "return": "Set a `variable` and return at the end, or use `exit_()`",
}
_BODIES = ("if_", "else_", "while_")


@functools.lru_cache(maxsize=1024)
def check_flow(code: CodeType) -> None:
    """Raise `ArgumentValueError` for such a statement; a function without source passes."""
    first = code.co_firstlineno
    tree = _parsed(linecache.getlines(code.co_filename)[first - 1 :])
    found = None if tree is None else _leaving(tree, "", False)
    if found is not None:
        inside, word, line = found
        raise ArgumentValueError(
            f"{inside}: expected its body to run to the end while the kernel is built, got "
            f"Python's `{word}`. {_INSTEAD[word]}. "
            f"{location((code.co_filename, first + line - 1))}"
        )


def _parsed(lines: list[str]) -> ast.AST | None:
    """The function that begins with the first line; `inspect` would take twice a build's time."""
    base = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    for end in range(1, len(lines) + 1):
        text = "".join(lines[end : end + 1]).rstrip()
        deeper = len(text) - len(text.lstrip()) > base
        if end < len(lines) and (deeper or not text or text.lstrip()[0] == "#"):
            continue
        try:
            return ast.parse(textwrap.dedent("".join(lines[:end])))
        except SyntaxError:
            pass  # within brackets or a string, or before the head of the function
    return None


def _leaving(node: ast.AST, inside: str, in_python_loop: bool) -> tuple[str, str, int] | None:
    """The abandoned body, the statement, and its line within a node."""
    if isinstance(node, (ast.Break, ast.Continue, ast.Return)):
        word = type(node).__name__.lower()
        leaves = inside and not (in_python_loop and word != "return")
        return (inside, word, node.lineno) if leaves else None
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        inside, in_python_loop = "", False
    elif isinstance(node, ast.With):
        names = [_called(one.context_expr) for one in node.items]
        of_kernel = next((name for name in names if name in _BODIES), "")
        inside, in_python_loop = of_kernel or inside, in_python_loop and not of_kernel
    elif isinstance(node, (ast.For, ast.While)):
        is_loop = isinstance(node, ast.For) and _called(node.iter) == "loop"
        inside, in_python_loop = "loop" if is_loop else inside, not is_loop
    for child in ast.iter_child_nodes(node):
        found = _leaving(child, inside, in_python_loop)
        if found is not None:
            return found
    return None


def _called(node: ast.expr) -> str:
    """The name of the function that an expression calls."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
