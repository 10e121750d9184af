"""Runs the tests of ubridge on the host, simulated drivers and every device of `--device`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.rows import prepared_rows
from uhal import Device, _lane
from uhal_conformance.kept_folders import kept_folder

KERNELS_RUN_ON = ("host", "cuda-sim", "rocm-sim", "opencl")
"""The devices of tests marked `entries`, by the names of the conformance suite."""
DRAWN_CASES = 3
"""Cases of each test marked `entries` on a device that compiles: a kernel takes 0.1 to 1 s."""
DRAWN_PART = 1 / 3
"""Share of the cases of other tests on a device that compiles; the host runs all."""
DRAWN_PART_OF_WEBGPU = 0.2
"""Mesa compiles each kernel for up to a second."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "entries(drawn=3): launches kernels itself; on devices that compile them so many cases run",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw the cases for devices that compile; a soak and a device of `--device` run all."""
    prepared = prepared_rows(config.getoption("--device"))
    for item in items:
        callspec = getattr(item, "callspec", None)
        device = str(callspec.params.get("device", "")) if callspec is not None else ""
        name = device.partition(":")[0]
        if name not in prepared:
            continue
        if name == "webgpu":
            item.add_marker(pytest.mark.drawn(DRAWN_PART_OF_WEBGPU), append=False)
        elif item.get_closest_marker("entries"):
            item.add_marker(pytest.mark.drawn(_drawn_of(item)), append=False)
        elif item.get_closest_marker("drawn") is None:
            item.add_marker(pytest.mark.drawn(DRAWN_PART))


def _drawn_of(item: pytest.Item) -> int:
    """Number of cases of a test, from the nearest mark."""
    marks = [mark.kwargs["drawn"] for mark in item.iter_markers("entries") if mark.kwargs]
    return int(marks[0]) if marks else DRAWN_CASES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `device`: the host and simulated CUDA, or a test module's `DEVICES`.

    Devices of `--device` are added if the list has a device of the same backend.
    """
    if "device" in metafunc.fixturenames:
        kernels = metafunc.definition.get_closest_marker("entries") is not None
        usual = KERNELS_RUN_ON if kernels else ("host", "cuda-sim")
        real = metafunc.config.getoption("--device")
        known = {"host", *prepared_rows(real)}
        named = getattr(metafunc.module, "DEVICES", usual)
        backends = {name.removesuffix("-sim") for name in named}
        joining = [one for one in real if one.partition(":")[0] in backends]
        names = [*(f"{name}:0" for name in named if name in known), *joining]
        metafunc.parametrize("device", names, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device under test, current during the test."""
    name, _, ordinal = request.param.partition(":")
    if name in prepared_rows(request.config.getoption("--device")):
        request.getfixturevalue("simulated")(name)
    with Device(int(ordinal or 0), backend=name.removesuffix("-sim")) as device:
        yield device


@pytest.fixture
def host() -> Iterator[Device]:
    """The host device, current during the test."""
    with Device(0, backend="host") as device:
        yield device


@pytest.fixture(scope="session")
def simulated(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Sets the environment of a simulated driver, as the conformance suite does too.

    A device of `--device` takes the place of its backend's simulated driver and needs no setting.
    """
    folder = kept_folder(request.config, "kernels")
    rows = prepared_rows(request.config.getoption("--device"))
    ready = set()
    with pytest.MonkeyPatch.context() as patch:

        def set_up(name: str) -> None:
            assert name in prepared_rows(())
            row = rows.get(name)
            if row is None or name in ready:
                return
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
    """Undo a tested program's change of the default device."""
    before = _lane.current_context()
    yield
    _lane.set_default_context(before)
