"""Writes the reference: a page for each public name, and tables with links to the pages.

A block of names on a page becomes a table with links. The pages of the names exist in `docs/` only
while the site is built, because Sphinx reads no other folder.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

from build_support.site import compiled
from build_support.site.names import BLOCK, home, public_names, shown
from build_support.site.signatures import written_signature
from uhal.habits import Elsewhere

NAMES = Path("reference", "names")
"""Folder of the names' pages, in the folder of pages."""
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LONGEST_EXAMPLE = 30
"""Lines of an example on a name's page."""


def connect(app: Sphinx) -> None:
    """Write the names' pages, and the tables before a page is parsed."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir)))
    app.connect("source-read", lambda app, page, source: _write_out(Path(app.srcdir), page, source))
    app.connect("build-finished", lambda app, error: remove_pages(Path(app.srcdir)))
    app.connect("autodoc-process-bases", _without_object)
    app.connect("autodoc-process-signature", _with_aliases)
    app.connect("autodoc-skip-member", _without_advice)


def _without_object(
    app: Sphinx, name: str, found: object, options: object, bases: list[type]
) -> None:
    if bases == [object]:
        bases[:] = []


def _without_advice(
    app: Sphinx, kind: str, name: str, found: object, is_skipped: bool, options: object
) -> bool | None:
    """Leave out the names that a class has only for their errors."""
    return True if isinstance(found, Elsewhere) else None


def _with_aliases(
    app: Sphinx, kind: str, name: str, found: Any, options: object, shown: str, returned: str
) -> tuple[str, str] | None:
    return written_signature(found, is_method=kind == "method")


def _write_out(pages: Path, page: str, source: list[str]) -> None:
    source[0] = BLOCK.sub(functools.partial(_written_out, pages, page), source[0])


def write_pages(pages: Path) -> None:
    """Write a page for each name that a block shows."""
    remove_pages(pages)
    blocks = [
        block
        for path in sorted(pages.rglob("*.md"))
        for block in BLOCK.finditer(path.read_text(encoding="utf-8"))
    ]
    examples = list(_examples(pages))
    (pages / NAMES).mkdir()
    for block in blocks:
        module = block[2]
        for name in _wanted(pages, block)[0]:
            path = pages / NAMES / f"{module}.{name}.md"
            path.write_text(_page(module, name, examples), encoding="utf-8")


def remove_pages(pages: Path) -> None:
    """Remove the names' pages."""
    shutil.rmtree(pages / NAMES, ignore_errors=True)


def _examples(pages: Path) -> Iterator[tuple[Path, str]]:
    """Blocks of Python on the guide's pages, which tests run, with their pages."""
    for folder in ("guide", "tutorial"):
        for path in sorted((pages / folder).glob("*.md")):
            for code in EXAMPLE.findall(path.read_text(encoding="utf-8")):
                if code.count("\n") <= LONGEST_EXAMPLE:
                    yield path.relative_to(pages), code


def _page(module: str, name: str, examples: list[tuple[Path, str]]) -> str:
    """The page of a name: its description, and the guide's shortest example of it."""
    lines = ["---", "orphan: true", "---", f"# {module}.{name}", ""]
    lines += ["````{eval-rst}", *_described(module, name), "````", ""]
    used = re.compile(rf"\b{re.escape(name)}\b")
    fitting = [(path, code) for path, code in examples if used.search(code)]
    if fitting:
        path, code = min(fitting, key=lambda one: one[1].count("\n"))
        lines += [
            f"## Example\n\nFrom [the guide](../../{path.as_posix()}), where all of it runs:",
            "",
        ]
        lines += ["```python", code.rstrip("\n"), "```", ""]
    return "\n".join(lines)


def _wanted(pages: Path, block: re.Match[str]) -> tuple[list[str], list[str]]:
    """A block's names with a page here, and its names with a page of another module."""
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
    return [name for name in wanted if name not in again], again


def _written_out(pages: Path, page: str, block: re.Match[str]) -> str:
    module = block[2]
    folder = os.path.relpath(NAMES, Path(page).parent)
    own, again = _wanted(pages, block)
    lines = ["| name | |", "|---|---|"] if own else []
    lines += [
        f"| [`{name}`]({folder}/{module}.{name}.md) | {_summary(module, name)} |" for name in own
    ]
    if again:
        said = ", ".join(f"{{py:obj}}`{home(module, name)}`" for name in again)
        lines += ["", f"Also here: {said}."]
    return "\n".join(lines)


def _summary(module: str, name: str) -> str:
    """The first line of a name's docstring, for a cell."""
    found = getattr(importlib.import_module(module), name)
    if callable(found) or inspect.ismodule(found):
        line = _first_line(found)
    else:
        line = next(iter(_text_of_data(module, name)), "")
    return line.replace("|", "\\|")


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
        # The rest of the page is not about that module.
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
