"""Instances of the simulated HSA runtime, each a library and settings of its own."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import host_kernels
from tests.requirements import missing
from tests.simulated.hsa import LIBRARY, SOURCE, Hsa

OpenHsa = Callable[..., Hsa]


@pytest.fixture(scope="session")
def hsa_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not LIBRARY.exists() or not host_kernels.has_compiler():
        missing("the simulated HSA runtime is not built: make simulators")
    path = tmp_path_factory.mktemp("hsa") / "kernels.so"
    path.write_bytes(host_kernels.build(SOURCE))
    return path


@pytest.fixture
def open_hsa(
    hsa_kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenHsa]:
    """Open instances with settings `UHAL_SIM_<name>`; `opened=False` leaves `hsa_init` out."""
    numbers = itertools.count()
    instances: list[Hsa] = []

    def open_one(opened: bool = True, **settings: str) -> Hsa:
        for name in [name for name in os.environ if name.startswith("UHAL_SIM_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("UHAL_SIM_KERNELS", str(hsa_kernels))
        for name, value in settings.items():
            monkeypatch.setenv(f"UHAL_SIM_{name}", value)
        # The system's loader identifies libraries by file, so a copy is a separate runtime.
        path = tmp_path / f"libhsa-{next(numbers)}.so"
        shutil.copy(LIBRARY, path)
        instance = Hsa(path)
        instances.append(instance)
        # Settings are read at the first call.
        instance.live("queue")
        if opened:
            instance.open()
        return instance

    yield open_one
    for instance in instances:
        # Work that a test left running must not call into Python later.
        while instance.status("hsa_shut_down") == 0:
            pass


@pytest.fixture(params=["eager", "lazy", "random:7"])
def schedule(request: pytest.FixtureRequest) -> str:
    return str(request.param)
