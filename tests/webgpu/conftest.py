"""Fixtures of the WebGPU backend's tests: a device of Mesa's Vulkan driver for CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.webgpu.lavapipe import lavapipe
from uhal import Device
from uhal_conformance.kept_folders import kept_folder


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Folder of compiled kernels and packages, kept between runs."""
    return kept_folder(request.config, "kernels")


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
