"""Links for code that is a public name, and for paths that are pages of the site.

The pages are also read in the repository, where a link leads to a file. A link to a file that a
page includes whole leads to that page; other paths outside `docs/` become plain code.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MODULES = ("uhal", "ubridge", "uhal.frameworks", "ubridge.backends")
"""Modules to search for a name that stands without a module, in this order."""
CLASSES = ("class", "exception")
"""Sphinx's words for what describes a class."""

_INCLUDE = re.compile(r"^```\{include\} (\S+)$", re.MULTILINE)
_LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s#:]+)(#[^)\s]*)?\)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def connect(app: Sphinx) -> None:
    """Change links before a page is parsed, code after all pages are known."""
    app.connect("source-read", _of_page)
    app.connect("include-read", _of_included)
    app.add_post_transform(NamesAsLinks)


@functools.cache
def included() -> dict[Path, Path]:
    """Return the page that includes a file outside `docs/`, by that file."""
    found = {}
    for page in DOCS.rglob("*.md"):
        for target in _INCLUDE.findall(page.read_text(encoding="utf-8")):
            found[(page.parent / target).resolve()] = page
    return found


def _of_page(app: Sphinx, name: str, source: list[str]) -> None:
    page = DOCS / f"{name}.md"
    source[0] = rewritten(source[0], of=page, on=page)


def _of_included(app: Sphinx, path: Path, name: str, source: list[str]) -> None:
    of = (DOCS / path).resolve()
    if of.suffix == ".md":
        source[0] = rewritten(source[0], of=of, on=DOCS / f"{name}.md")


def rewritten(text: str, *, of: Path, on: Path) -> str:
    """Return a text of the file `of` with its links adapted to the page `on`."""

    def link(match: re.Match[str]) -> str:
        words, target, fragment = match[1], match[2], match[3] or ""
        path = (of.parent / target).resolve()
        page = included().get(path, path)
        if page.is_relative_to(DOCS):
            return f"{words}({os.path.relpath(page, on.parent)}{fragment})"
        if not path.exists():
            return match[0]  # Sphinx reports the error
        plain = words[1:-1]
        if plain.startswith("`"):
            return plain
        shown = f"`{path.relative_to(ROOT)}`"
        return shown if plain == path.name else f"{plain} ({shown})"

    return _LINK.sub(link, text)


class NamesAsLinks(SphinxPostTransform):
    """Turns inline code that is a public name into links, such as `DeviceBuffer.zeros()`."""

    default_priority = 200
    formats = ("html",)

    def run(self, **options: Any) -> None:
        """Change the current page."""
        domain = self.env.domains.python_domain
        for literal in list(self.document.findall(nodes.literal)):
            found = _NAME.match(literal.astext())
            rest = literal.astext()[found.end() :] if found else ""
            if not found or (rest and not rest.startswith("(")) or _is_linked(literal):
                continue
            target = _target(domain, found[0], _described_around(literal))
            if target is None or target[0] == self.env.docname:
                continue
            page, anchor = target
            code = literal.deepcopy()
            link = make_refnode(self.app.builder, self.env.docname, page, anchor, code)
            literal.replace_self(link)


def _is_linked(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, (nodes.reference, nodes.title)):
            return True
    return False


def _described_around(node: nodes.Node) -> tuple[str, str]:
    """Module and class whose description contains a node; empty where there is none."""
    module = ""
    while node.parent is not None:
        node = node.parent
        entry = node.next_node(addnodes.desc_signature) if isinstance(node, addnodes.desc) else None
        if entry is None or not entry.get("module"):
            continue
        module = entry["module"]
        if name := entry["class"] or (node["objtype"] in CLASSES and entry["fullname"]):
            return module, name
    return module, ""


def _target(domain: PythonDomain, name: str, around: tuple[str, str]) -> tuple[str, str] | None:
    """Page and anchor of a name. A lower-case word needs its package: `ubridge.sum`.

    In a description, names of its class come first, then those of its module.
    """
    candidates = [name]
    if _has(*around, name):
        candidates = [".".join((*around, name))]
    elif "." in name or name != name.lower() or "_" in name:
        candidates += [f"{module}.{name}" for module in (around[0], *MODULES)]
    for candidate in candidates:
        entry = domain.objects.get(candidate)
        if entry is not None and "." in candidate:
            return entry.docname, entry.node_id
    return None


def _has(module: str, owner: str, name: str) -> bool:
    """Whether a module's class has an attribute, on its page or not."""
    return bool(owner) and hasattr(getattr(importlib.import_module(module), owner, None), name)
