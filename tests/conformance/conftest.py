"""Runs every test of this folder on every row, with fresh objects and nothing left behind."""

from __future__ import annotations

import pytest

from tests.conformance.rows import rows_with
from uhal_conformance.fixtures import (
    basic,
    device,
    folder,
    gate,
    image,
    pytest_collection_modifyitems,
    row,
)

__all__ = ["basic", "device", "folder", "gate", "image", "pytest_collection_modifyitems", "row"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        rows = rows_with(metafunc.config.getoption("--device"))
        metafunc.parametrize("row", rows, ids=lambda row: row.name, scope="module", indirect=True)
