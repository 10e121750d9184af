"""Fixtures of the suite: a device without leftovers, kernels, gates."""

from __future__ import annotations

import ctypes
import fnmatch
import functools
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from uhal import Device, Module, diagnostics
from uhal_conformance.gate import Gate
from uhal_conformance.images import KERNELS
from uhal_conformance.kept_folders import kept_folder
from uhal_conformance.row import DeviceRow, in_place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        row = getattr(item, "callspec", None) and item.callspec.params.get("row")  # type: ignore[attr-defined]
        if isinstance(row, DeviceRow):
            for pattern, reason in row.skipped.items():
                if fnmatch.fnmatch(item.name, pattern):
                    item.add_marker(pytest.mark.skip(reason=f"{row.name}: {reason}"))
            for fixture, reason in row.unsupported_fixtures.items():
                if fixture in getattr(item, "fixturenames", ()):
                    item.add_marker(pytest.mark.skip(reason=f"{row.name}: {reason}"))
            for pattern, reason in row.expected_failures.items():
                if fnmatch.fnmatch(item.name, pattern):
                    item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="module")
def row(request: pytest.FixtureRequest, folder: Path) -> Iterator[DeviceRow]:
    """The row under test, with its environment set. Scope module: no other module sees a row."""
    found: DeviceRow = request.param
    with in_place(found, folder):
        yield found


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Folder of kernels compiled in earlier runs."""
    return kept_folder(request.config, "kernels")


@pytest.fixture(scope="module")
def image(row: DeviceRow, folder: Path) -> Callable[[str], Path]:
    """Maps the name of a source in `kernels/` to its image for this row."""
    # The check that an image is up to date takes longer than most tests.
    return functools.cache(lambda name: row.compile(KERNELS / f"{name}.cu", folder))


@pytest.fixture
def device(row: DeviceRow) -> Iterator[Device]:
    """The current device; the end of a test checks for leftover objects."""
    device = Device(row.ordinal, row.backend)
    with device:
        gc.collect()
        device.synchronize()
        before = counted(row.backend)
        yield device
        device.synchronize()
        gc.collect()
        after = counted(row.backend)
        # Pytest explains no comparison outside of tests.
        changed = {kind: (n, after[kind]) for kind, n in before.items() if n != after[kind]}
        assert not changed, f"live before and after: {changed}"


def counted(backend: str) -> dict[str, int]:
    """Return counts of live objects, of the package and of the driver."""
    native = {f"native {kind}": count for kind, count in native_objects(backend).items()}
    return {**diagnostics()["live"], **native}


def native_objects(backend: str) -> dict[str, int]:
    """Return the driver's counts, without objects that the pool keeps for reuse."""
    kept = {"allocations", "events"}
    native = diagnostics()["native"][backend]
    counted = {kind: count for kind, count in native.items() if kind not in kept}
    return {**counted, **simulated_objects(backend)}


def simulated_objects(backend: str) -> dict[str, int]:
    """Return object counts of a simulated driver, by kind; -1 for unknown kinds."""
    path = os.environ.get(f"UHAL_{backend.upper()}_LIBRARY", "")
    count = getattr(ctypes.CDLL(path), "uhal_sim_live", None) if path else None
    kinds = ("stream", "module", "function", "pinned", "graph", "graph_exec")
    return {kind: count(kind.encode()) for kind in kinds} if count is not None else {}


@pytest.fixture
def basic(device: Device, image: Callable[[str], Path]) -> Iterator[Module]:
    """The module of kernels/basic.cu."""
    with Module.from_file(image("basic")) as module:
        yield module


@pytest.fixture
def gate(basic: Module) -> Iterator[Callable[[], Gate]]:
    """Makes gates: work that stays pending until it is let through."""
    gates: list[Gate] = []

    def make() -> Gate:
        gates.append(Gate(basic))
        return gates[-1]

    yield make
    while gates:
        gates.pop().close()
