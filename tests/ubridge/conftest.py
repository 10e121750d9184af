"""Runs the tests of ubridge on the host and on every device of `--device`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from uhal import Device, _lane


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        names = ["host:0", *metafunc.config.getoption("--device")]
        metafunc.parametrize("device", names, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device a test runs on, current while it does."""
    backend, _, ordinal = request.param.partition(":")
    with Device(int(ordinal or 0), backend=backend) as device:
        yield device


@pytest.fixture(autouse=True)
def process_default() -> Iterator[None]:
    """Undo what a program under test made the default device."""
    before = _lane.current_context()
    yield
    _lane.set_default_context(before)
