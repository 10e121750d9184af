"""Imports of the product's Python, read from its sources; imports for types count like others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (
    "uhal",
    "uhal_conformance",
    "ubridge",
    "host_backend",
    "cuda_backend",
    "rocm_backend",
    "opencl_backend",
    "tops_backend",
    "webgpu_backend",
)
ROOMS = (
    "models",
    "__init__",
    "graph",
    "files",
    "array_api",
    "tensor",
    "ops",
    "prepare",
    "device",
    "definitions",
    "core",
)
"""The order of ubridge: each may import itself and later entries.

The entries are its folders and `__init__`; `tensor` includes the public modules beside it.
"""


def product_files(packages: Iterable[str] = PRODUCT) -> dict[str, Path]:
    """Return the source of every module by dotted name; a compiled module's source is its stub."""
    found = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py*")):
            if path.suffix not in (".py", ".pyi"):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of every import statement in a module, wherever it stands.

    `from a import b` gives `a.b`, which may be a module or a name in one.
    """
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parents = package.split(".")[: 1 - node.level or None]
                module = ".".join([*parents, module] if module else parents)
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree's statements. Expressions, most of the tree, are skipped."""
    pending = [tree]
    for node in pending:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending += getattr(node, field, ())


def graph_of(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return, for each module, the modules among `files` that it names in an import.

    `from a import b` is an import of the module `a.b` where there is one, else of `a`.
    """
    arrows: dict[str, set[str]] = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        arrows[name] = set()
        for found, _ in imported(ast.parse(path.read_text("utf-8")), package):
            target = found
            while target and target not in files:
                target = target.rpartition(".")[0]
            if target and target != name:
                arrows[name].add(target)
    return arrows


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or not; largest first."""
    numbers: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = low[name] = len(numbers)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in numbers:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], numbers[other])
        if low[name] == numbers[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(arrows):
        if name not in numbers:
            visit(name)
    return sorted(found, key=len, reverse=True)


def way_around(arrows: Mapping[str, set[str]], group: Iterable[str]) -> list[str]:
    """Return a shortest cycle that begins and ends with a group's first module."""
    inside = set(group)
    first = min(inside)
    came_from = {first: ""}
    pending = [first]
    for name in pending:
        for other in sorted(arrows[name] & inside):
            if other == first:
                around = [first]
                while name:
                    around.append(name)
                    name = came_from[name]
                return around[::-1]
            if other not in came_from:
                came_from[other] = name
                pending.append(other)
    raise ValueError("no circle")


def room_of(name: str) -> str:
    """Return the folder of a module of ubridge."""
    _, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    if not room:
        return "__init__"
    return room if room in ROOMS else "tensor"


def is_upward(importer: str, target: str) -> bool:
    """Return whether an import within ubridge points against the order of its folders."""
    return ROOMS.index(room_of(target)) < ROOMS.index(room_of(importer))
