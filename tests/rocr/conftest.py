"""Machines with AMD's own runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rocr.machine import Machine, machine
from tests.rocr.topology import GPUS
from uhal_conformance.kept_folders import kept_folder


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Folder of packages, the model and the descriptions of devices, kept between runs."""
    return kept_folder(request.config, "debian")


@pytest.fixture(scope="session")
def machine_with(folder: Path) -> Callable[[str], Machine]:
    """Return a function from a processor's name to a machine that has it."""
    gpus = {gpu.processor: gpu for gpu in GPUS}
    return lambda processor: machine(gpus[processor], folder)
