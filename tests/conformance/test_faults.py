"""A kernel that breaks the device: the error names launches, and the process continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from uhal_conformance import faults
from uhal_conformance.children import check_child
from uhal_conformance.row import DeviceRow


@pytest.mark.parametrize(
    ("check", "environment"),
    [
        (faults.name_the_suspects, {}),
        (faults.name_the_one_when_blocking, {"UHAL_LAUNCH_BLOCKING": "1"}),
        (faults.name_the_suspects, {"UHAL_LAUNCH_MARKS": "1"}),
    ],
    ids=["suspects", "blocking", "marks"],
)
def test_faults(
    row: DeviceRow,
    image: Callable[[str], Path],
    check: Callable[[str, str], None],
    environment: dict[str, str],
) -> None:
    arguments = (row.backend, str(image("fault")))
    check_child(
        check, *arguments, environment={**row.environment, **environment}, options=("-W", "error")
    )


def test_another_device_works_on(row: DeviceRow, image: Callable[[str], Path]) -> None:
    if row.two_devices is None:
        pytest.skip(f"{row.name} has one device")
    environment = {**row.environment, **row.two_devices}
    check_child(
        faults.lose_one_and_use_the_other,
        row.backend,
        str(image("fault")),
        environment=environment,
        options=("-W", "error"),
    )
