"""Runs two_devices.py for every row that can give a process two devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from uhal_conformance.children import check_child
from uhal_conformance.row import DeviceRow
from uhal_conformance.two_devices import CHECKS


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_two_devices(
    row: DeviceRow, image: Callable[[str], Path], check: Callable[[str, str], None]
) -> None:
    if row.two_devices is None:
        pytest.skip(f"{row.name} has one device")
    environment = {**row.environment, **row.two_devices}
    check_child(check, row.backend, str(image("basic")), environment=environment)
