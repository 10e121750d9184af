"""Fixtures of the WebGPU backend's tests: a device of Mesa's Vulkan driver for CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.webgpu.lavapipe import lavapipe
from uhal import Device


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Folder of compiled kernels and packages, kept between runs."""
    cache = request.config.cache
    assert cache is not None
    return cache.mkdir("kernels")


@pytest.fixture(scope="module")
def software(folder: Path) -> Iterator[Mapping[str, str]]:
    """The environment in which the driver is found; set for a module."""
    found = lavapipe(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture
def device(software: Mapping[str, str]) -> Iterator[Device]:
    """A device, current while a test runs."""
    with Device(0, "webgpu") as device:
        yield device
