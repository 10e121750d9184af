"""Kernels of uhal.ptx on the simulated CUDA driver, or on the real devices of `--device`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.conformance.rows import ROWS
from uhal import Device, DeviceBuffer, _lane
from uhal.ptx import Kernel
from uhal_conformance.kept_folders import kept_folder

Array = np.ndarray[Any, Any]
Launch = Callable[..., list[Array]]


@pytest.fixture(scope="session")
def driver(request: pytest.FixtureRequest) -> Iterator[None]:
    """The environment of the simulated CUDA driver; none with `--device cuda`."""
    if any(one.startswith("cuda") for one in request.config.getoption("--device")):
        yield
        return
    row = next(row for row in ROWS if row.name == "cuda-sim")
    assert row.prepare is not None
    with pytest.MonkeyPatch.context() as patch:
        prepared = row.prepare(kept_folder(request.config, "kernels"))
        for variable, value in {**row.environment, **prepared}.items():
            patch.setenv(variable, value)
        yield


@pytest.fixture
def cuda(driver: None) -> Iterator[Device]:
    """The CUDA device, current while a test runs."""
    before = _lane.current_context()
    with pytest.MonkeyPatch.context() as patch:
        # each buffer is an allocation of its own, so the driver sees a read behind its end
        patch.setenv("UHAL_POOL", "direct")
        with Device(0, backend="cuda") as device:
            yield device
    _lane.set_default_context(before)


@pytest.fixture
def launch(cuda: Device) -> Launch:
    """Launch a kernel on copies of arrays; return the arrays as it left them."""

    def run(
        kernel: Kernel, *arguments: Any, grid: Any = 1, block: Any = 32, shared: int = 0
    ) -> list[Array]:
        held = [
            DeviceBuffer.from_numpy(one) if isinstance(one, np.ndarray) else one
            for one in arguments
        ]
        kernel[grid, block, shared](*held)
        buffers = [one for one in held if isinstance(one, DeviceBuffer)]
        results = [one.to_numpy() for one in buffers]
        for one in buffers:
            one.close()
        return results

    return run
