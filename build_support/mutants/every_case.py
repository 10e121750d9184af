"""A plugin of pytest: tests marked `drawn` run with every case, whatever the seed draws."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the mark away from tests and from what they stand in."""
    for item in items:
        for node in item.listchain():
            node.own_markers[:] = [mark for mark in node.own_markers if mark.name != "drawn"]
