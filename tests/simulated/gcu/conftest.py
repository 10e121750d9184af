"""A simulated GCU for the tests of Ubridge's entries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.conformance.rows import ROWS
from tests.simulated.gcu.launcher import Gcu
from uhal import Device
from uhal_conformance.kept_folders import kept_folder


@pytest.fixture(scope="session")
def simulated(request: pytest.FixtureRequest) -> Iterator[Device]:
    row = next(row for row in ROWS if row.name == "tops-sim")
    assert row.prepare is not None
    prepared = row.prepare(kept_folder(request.config, "kernels"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**row.environment, **prepared}.items():
            patch.setenv(name, value)
        yield Device(0, "tops")


@pytest.fixture
def gcu(simulated: Device, rng: np.random.Generator) -> Iterator[Gcu]:
    with simulated:
        yield Gcu(simulated, rng)
