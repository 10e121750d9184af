"""Above the lowerings, ubridge names no backend: it asks devices for their abilities.

Only two files name backends: the registry of kernels, and the file for the host.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from build_support.imports import product_files, room_of
from uhal.registry import OURS

NAMES = set(OURS)
BELOW = {"prepare"}
MAY_NAME = {"ubridge.device.registry", "ubridge.device.host"}


def chosen(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each backend's name, and of each comparison of `backend`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, f"the name {node.value!r}"
        elif isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Attribute) and side.attr == "backend":
                    yield node.lineno, "a comparison of `backend`"


@pytest.mark.parametrize("module", sorted(product_files(["ubridge"])))
def test_no_backend_is_named_above_its_lowerings(module: str) -> None:
    if room_of(module) in BELOW or module in MAY_NAME:
        return
    path = product_files(["ubridge"])[module]
    found = [f"{path}:{line}: {what}" for line, what in chosen(ast.parse(path.read_text("utf-8")))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        'if device.backend == "tops": pass',
        "if device.backend in SOME: pass",
        'Device(0, backend="host")',
        'ROWS = {("matmul", "cuda"): 1}',
    ],
)
def test_each_kind_of_choice_is_seen(source: str) -> None:
    assert list(chosen(ast.parse(source)))


def test_prose_and_reports_are_no_choice() -> None:
    source = '"""For cuda and host."""\nprint(f"{device.backend}: {help_of(0)}")'
    assert not list(chosen(ast.parse(source)))
