"""Runs the tests of ubridge on the host, simulated drivers and every device of `--device`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.rows import ROWS
from uhal import Device, _lane


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`device`: the host and simulated CUDA, or what a module of tests names in `DEVICES`."""
    if "device" in metafunc.fixturenames:
        simulated = getattr(metafunc.module, "DEVICES", ("host", "cuda-sim"))
        names = [
            *(f"{name}:0" for name in simulated),
            *metafunc.config.getoption("--device"),
        ]
        metafunc.parametrize("device", names, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device a test runs on, current while it does."""
    name, _, ordinal = request.param.partition(":")
    if name.endswith("-sim"):
        request.getfixturevalue("simulated")(name)
    with Device(int(ordinal or 0), backend=name.removesuffix("-sim")) as device:
        yield device


@pytest.fixture(scope="session")
def simulated(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Sets the environment of a simulated driver, as the conformance suite does too."""
    cache = request.config.cache
    assert cache is not None
    folder = cache.mkdir("kernels")
    ready = set()
    with pytest.MonkeyPatch.context() as patch:

        def set_up(name: str) -> None:
            if name in ready:
                return
            row = next(row for row in ROWS if row.name == name)
            assert row.prepare is not None
            for variable, value in {**row.environment, **row.prepare(folder)}.items():
                patch.setenv(variable, value)
            ready.add(name)

        yield set_up


@pytest.fixture
def simulated_cuda(simulated: Callable[[str], None]) -> None:
    """The environment of the simulated CUDA driver."""
    simulated("cuda-sim")


@pytest.fixture(autouse=True)
def process_default() -> Iterator[None]:
    """Undo what a program under test made the default device."""
    before = _lane.current_context()
    yield
    _lane.set_default_context(before)
