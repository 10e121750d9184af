"""What tests of the OpenCL backend share: a device of a vendor's runtime, and Debian's tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.rows import ROWS
from tests.debian_packages import unpack
from uhal import Device

ROW = next(row for row in ROWS if row.name == "opencl")


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Where compiled kernels and packages are kept from run to run."""
    cache = request.config.cache
    assert cache is not None
    return cache.mkdir("kernels")


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest) -> Path:
    """Debian's loader of OpenCL, Khronos's headers and tools."""
    cache = request.config.cache
    assert cache is not None
    return unpack(cache.mkdir("debian"), "opencl")


@pytest.fixture(scope="module")
def runtime(folder: Path) -> Iterator[None]:
    """The environment of conformance's row."""
    assert ROW.prepare is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ROW.environment, **ROW.prepare(folder)}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def device(runtime: None) -> Iterator[Device]:
    """A device, current while a test runs."""
    with Device(0, "opencl") as device:
        yield device
