"""Describes compiled classes: signatures from `uhal/_lane.pyi`, docstrings from the lane.

Sphinx sees neither types nor properties of compiled classes, and reads no stubs.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import uhal
from uhal import _lane

STUB = Path(uhal.__file__).with_name("_lane.pyi")


def is_compiled(found: object) -> bool:
    """Whether an object is a class or function of the lane."""
    name = getattr(found, "__name__", None)
    return name is not None and vars(_lane).get(name) is found


def described(name: str, found: object) -> list[str]:
    """Return the lines of reStructuredText that describe `name`, its full public name."""
    entry = _stub()[found.__name__]  # type: ignore[attr-defined]
    if isinstance(entry, ast.ClassDef):
        return list(_class(name, found, entry))
    module, _, short = name.rpartition(".")
    head, *rest = _function("function", short, entry, inspect.getdoc(found))
    return [head, f"   :module: {module}", *rest]


@functools.cache
def _stub() -> dict[str, ast.ClassDef | ast.FunctionDef]:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    return {one.name: one for one in tree.body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}


def _class(name: str, found: object, entry: ast.ClassDef) -> Iterator[str]:
    functions = [one for one in entry.body if isinstance(one, ast.FunctionDef)]
    made = next((one for one in functions if one.name == "__init__"), None)
    module, _, short = name.rpartition(".")
    yield f".. py:class:: {short}{_parameters(made) if made else ''}"
    yield f"   :module: {module}"
    yield from _indented(["", *(inspect.getdoc(found) or "").splitlines(), ""])
    for field in entry.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if not field.target.id.startswith("_"):
            said = inspect.getdoc(getattr(found, field.target.id)) or ""
            lines = [f".. py:attribute:: {field.target.id}", f"   :type: {_said(field.annotation)}"]
            yield from _indented([*lines, "", *_indented(said.splitlines()), ""])
    for one in functions:
        if one.name.startswith("_") or any(_is_setter(mark) for mark in one.decorator_list):
            continue
        text = inspect.getdoc(getattr(found, one.name)) or ast.get_docstring(one)
        marks = {mark.id for mark in one.decorator_list if isinstance(mark, ast.Name)}
        others = [same for same in functions if same.name == one.name and "overload" in marks]
        if others and one is not others[0]:
            continue
        if "property" in marks:
            lines = _property(one, text, writable=_has_setter(functions, one.name))
        else:
            lines = _function(
                "method", one.name, one, text, marks & {"classmethod", "staticmethod"}
            )
            lines[1:1] = [" " * len(".. py:method:: ") + _signature(same) for same in others[1:]]
        yield from _indented([*lines, ""])


def _is_setter(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Attribute) and mark.attr == "setter"


def _has_setter(functions: list[ast.FunctionDef], name: str) -> bool:
    return any(
        one.name == name and any(_is_setter(mark) for mark in one.decorator_list)
        for one in functions
    )


def _property(entry: ast.FunctionDef, text: str | None, *, writable: bool) -> list[str]:
    lines = [f".. py:property:: {entry.name}"]
    if entry.returns is not None:
        lines.append(f"   :type: {_said(entry.returns)}")
    said = (text or "").splitlines()
    return [*lines, "", *_indented([*said, *(["", "It can be set."] if writable else [])])]


def _function(
    kind: str,
    name: str,
    entry: ast.ClassDef | ast.FunctionDef,
    text: str | None,
    options: set[str] | frozenset[str] = frozenset(),
) -> list[str]:
    assert isinstance(entry, ast.FunctionDef)
    head = [f".. py:{kind}:: {_signature(entry, name, method=kind == 'method')}"]
    head += [f"   :{option}:" for option in sorted(options)]
    return [*head, "", *_indented((text or "").splitlines())]


def _signature(entry: ast.FunctionDef, name: str = "", *, method: bool = True) -> str:
    answer = f" -> {_said(entry.returns)}" if entry.returns is not None else ""
    return f"{name or entry.name}{_parameters(entry, method=method)}{answer}"


def _parameters(entry: ast.FunctionDef, *, method: bool = True) -> str:
    """The parameters in the stub's spelling, without `self` and `cls`."""
    taken = ast.parse(ast.unparse(entry)).body[0]
    assert isinstance(taken, ast.FunctionDef)
    arguments = taken.args
    marks = [mark.id for mark in entry.decorator_list if isinstance(mark, ast.Name)]
    if method and "staticmethod" not in marks:
        (arguments.posonlyargs or arguments.args).pop(0)
    return f"({ast.unparse(arguments)})"


def _said(annotation: ast.expr) -> str:
    """A type in readers' spelling: the stub's `_Self` becomes `Self`."""
    return ast.unparse(annotation).replace("_Self", "Self")


def _indented(lines: list[str]) -> list[str]:
    return [f"   {line}" if line else "" for line in lines]
