"""Counts about the layout of the sources: `python -m build_support.house` prints them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from build_support.imports import ROOT, circles, graph_of, imported, product_files, way_around


def widest_folder(package: str) -> tuple[str, int]:
    """Return the folder of a package with the most Python files, and how many it has."""
    counts: dict[Path, int] = {}
    for path in (ROOT / package).rglob("*.py"):
        counts[path.parent] = counts.get(path.parent, 0) + 1
    folder = max(counts, key=lambda one: (counts[one], str(one)))
    return folder.relative_to(ROOT).as_posix(), counts[folder]


def private_uses(package: str, of: str) -> Iterator[tuple[str, int, str]]:
    """Yield (file, line, name) of private names that another package uses.

    Imports with an underscored part are private. Underscored attributes are private too, unless a
    class of the using package declares them or the file assigns them to `self`. Tuples' `_replace`
    is public.
    """
    trees = {
        path: ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / package).rglob("*.py"))
    }
    declared = {"_replace"}.union(*map(_declared, trees.values()))
    for path, tree in trees.items():
        where = path.relative_to(ROOT).as_posix()
        for name, line in imported(tree, ""):
            if name.partition(".")[0] == of and _is_private(name):
                yield where, line, name
        own = declared.union(_given_to_self(tree))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and _is_private(node.attr)
                and node.attr not in own
                and not (isinstance(node.value, ast.Name) and node.value.id == "self")
            ):
                yield where, node.lineno, node.attr


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _declared(tree: ast.AST) -> Iterator[str]:
    """Names of functions, fields and module-level variables."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def _given_to_self(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def main() -> None:
    """Print the numbers, a line each."""
    files = product_files()
    arrows = graph_of(files)
    found = circles(arrows)
    sizes = ", ".join(str(len(group)) for group in found)
    print(f"import circles, types included: {len(found)}{f' ({sizes} files)' if found else ''}")
    for group in found:
        print("   ", " → ".join(way_around(arrows, group)))
    folder, count = widest_folder("ubridge")
    print(f"files in the widest folder of ubridge: {count} ({folder})")
    uses = list(private_uses("ubridge", "uhal"))
    print(f"uses of private names of uhal in ubridge: {len(uses)}")
    for where, line, name in uses:
        print(f"    {where}:{line} {name}")


if __name__ == "__main__":
    main()
