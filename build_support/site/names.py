"""Finds the public names that each page of the reference shows.

A page lists them in a block of names, which is replaced by Sphinx's own directives:

    ```{public} uhal
    Device Stream Event
    ```

A block `{public-rest}` shows all names of a module's `__all__` that no page lists. So a new name
appears on the site before a page lists it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

PACKAGES = ("uhal", "ubridge")
"""Packages that describe an object which other modules export, too."""

BLOCK = re.compile(r"^```\{public(-rest)?\} (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A page's block of names: `-rest` for all other names, the module, the names."""


def shown(pages: Path) -> dict[str, list[str]]:
    """Return the names that blocks of pages name, by module."""
    found: dict[str, list[str]] = {}
    for path in sorted(pages.rglob("*.md")):
        for rest, module, names in BLOCK.findall(path.read_text(encoding="utf-8")):
            if not rest:
                found.setdefault(module, []).extend(names.split())
    return found


def public_names(module: str) -> list[str]:
    """Return a module's names: `__all__`, else its own names without an underscore."""
    found = importlib.import_module(module)
    stated = getattr(found, "__all__", None)
    if stated is not None:
        return list(stated)
    return [
        name
        for name, one in vars(found).items()
        if not name.startswith("_")
        and (inspect.isclass(one) or inspect.isfunction(one))
        and one.__module__ == module
    ]


def home(module: str, name: str) -> str | None:
    """Return the full name under which `uhal` or `ubridge` exports the same object."""
    found = getattr(importlib.import_module(module), name)
    for package in PACKAGES:
        held = importlib.import_module(package)
        if package != module and name in held.__all__ and getattr(held, name) is found:
            return f"{package}.{name}"
    return None
