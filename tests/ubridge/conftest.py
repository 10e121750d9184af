"""Runs the tests of ubridge on the host, simulated drivers and every device of `--device`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.rows import ROWS
from uhal import Device, _lane


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        names = ["host:0", "cuda-sim:0", *metafunc.config.getoption("--device")]
        metafunc.parametrize("device", names, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device a test runs on, current while it does."""
    backend, _, ordinal = request.param.partition(":")
    if backend.endswith("-sim"):
        request.getfixturevalue("simulated_cuda")
        backend = backend.removesuffix("-sim")
    with Device(int(ordinal or 0), backend=backend) as device:
        yield device


@pytest.fixture
def host() -> Iterator[Device]:
    """The CPU, current while a test runs."""
    with Device(0, backend="host") as device:
        yield device


@pytest.fixture(scope="session")
def simulated_cuda(request: pytest.FixtureRequest) -> Iterator[None]:
    """The environment of the simulated driver, as the conformance suite sets it too."""
    cache = request.config.cache
    assert cache is not None
    row = next(row for row in ROWS if row.name == "cuda-sim")
    assert row.prepare is not None
    prepared = row.prepare(cache.mkdir("kernels"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**row.environment, **prepared}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def process_default() -> Iterator[None]:
    """Undo what a program under test made the default device."""
    before = _lane.current_context()
    yield
    _lane.set_default_context(before)
