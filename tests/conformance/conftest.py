"""Runs every test of this folder on every row, with fresh objects; no object may remain.

The host runs every case. The other rows run a part that the seed draws, and a soak runs all.
"""

from __future__ import annotations

import pytest

from tests.conformance.rows import rows_with
from uhal_conformance import fixtures
from uhal_conformance.fixtures import basic, device, folder, gate, image, row
from uhal_conformance.row import DeviceRow

__all__ = ["basic", "device", "folder", "gate", "image", "row"]

DRAWN_PART = 1 / 3
"""Share of a test's cases that runs on rows with `prepare`: simulated or compiled at run time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    fixtures.pytest_collection_modifyitems(items)
    for item in items:
        callspec = getattr(item, "callspec", None)
        row = callspec.params.get("row") if callspec is not None else None
        prepared = isinstance(row, DeviceRow) and row.prepare is not None
        if prepared and item.get_closest_marker("drawn") is None:
            item.add_marker(pytest.mark.drawn(DRAWN_PART))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        rows = rows_with(metafunc.config.getoption("--device"))
        metafunc.parametrize("row", rows, ids=lambda row: row.name, scope="module", indirect=True)
