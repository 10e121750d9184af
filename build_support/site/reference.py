"""Writes out the blocks of public names on pages of the reference, for autodoc to describe."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

from build_support.site import compiled
from build_support.site.names import BLOCK, home, public_names, shown


def connect(app: Sphinx) -> None:
    """Write the blocks out before a page is parsed."""
    app.connect("source-read", lambda app, page, source: _write_out(Path(app.srcdir), source))
    app.connect("autodoc-process-bases", _without_object)


def _without_object(
    app: Sphinx, name: str, found: object, options: object, bases: list[type]
) -> None:
    if bases == [object]:
        bases[:] = []


def _write_out(pages: Path, source: list[str]) -> None:
    source[0] = BLOCK.sub(functools.partial(_written_out, pages), source[0])


def _written_out(pages: Path, block: re.Match[str]) -> str:
    rest, module, names = block.groups()
    have = public_names(module)
    if rest:
        elsewhere = shown(pages).get(module, [])
        wanted = [name for name in have if name not in elsewhere]
    else:
        wanted = names.split()
        unknown = [name for name in wanted if name not in have]
        if unknown:
            raise ExtensionError(f"{module} has no public name {', '.join(unknown)}")
    again = [name for name in wanted if rest and home(module, name) is not None]
    lines = [
        line for name in wanted if name not in again for line in (*_described(module, name), "")
    ]
    if again:
        said = ", ".join(f":py:obj:`{home(module, name)}`" for name in again)
        lines += [f"Also here: {said}.", ""]
    return "\n".join(["````{eval-rst}", *lines, "````"]) if lines else ""


def _described(module: str, name: str) -> list[str]:
    found = getattr(importlib.import_module(module), name)
    full = f"{module}.{name}"
    if compiled.is_compiled(found):
        return compiled.described(full, found)
    if inspect.isclass(found):
        options = [":members:", ":undoc-members:", ":show-inheritance:"]
        if issubclass(found, (Warning, Exception)):
            options.append(":exclude-members: add_note, with_traceback")
        kind = "autoexception" if issubclass(found, BaseException) else "autoclass"
        return [f".. {kind}:: {full}", *(f"   {option}" for option in options)]
    if inspect.ismodule(found):
        # What follows on the page is not in that module.
        back = ["", f".. py:currentmodule:: {module}"]
        return [f".. py:module:: {full}", "", f"``{name}``: {_first_line(found)}", *back]
    if callable(found) and hasattr(found, "__name__") and not hasattr(found, "__origin__"):
        return [f".. autofunction:: {full}"]
    text = _text_of_data(module, name)
    return [f".. py:data:: {name}", f"   :module: {module}", "", *(f"   {one}" for one in text)]


def _text_of_data(module: str, name: str) -> list[str]:
    """The docstring of an assigned name, from the module that defines it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    homes = [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]
    ]
    analyzer = ModuleAnalyzer.for_module(homes[0] if homes and homes[0] else module)
    analyzer.analyze()
    return list(analyzer.attr_docs.get(("", name), []))


def _first_line(found: object) -> str:
    return (inspect.getdoc(found) or "").partition("\n")[0]
