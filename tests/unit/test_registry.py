"""The choice of a backend, its reason, single opening, and errors in a forked child."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tests.counting_driver import CountingDriver
from uhal import Api, Device, _lane, registry
from uhal.contract import Backend, BackendRecord, DeviceSummary
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NoDeviceError,
)

Install = Callable[..., type[CountingDriver]]


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fresh registry without variables; the process default is restored afterwards."""
    for name in list(os.environ):
        if name == "UHAL_BACKEND" or name.endswith("_LIBRARY"):
            monkeypatch.delenv(name)
    before = _lane.current_context()
    monkeypatch.setattr(registry, "_opened", registry._Opened())
    _lane.set_default_context(None)
    yield
    for context in registry.opened_contexts():
        context.close()
    _lane.set_default_context(before)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace a backend package by a counting driver."""

    def put(
        name: str, *, devices: int = 1, verdict: str = "ok", survives: bool = False
    ) -> type[CountingDriver]:
        class Driver(CountingDriver):
            probes = 0
            opened = 0
            survives_fork = survives

            @classmethod
            def probe(cls) -> BackendRecord:
                cls.probes += 1
                summaries = tuple(DeviceSummary(i, f"card {i}", "a card") for i in range(devices))
                return BackendRecord(name, verdict, "as the test says", devices=summaries)

            @classmethod
            def open(cls) -> CountingDriver:
                cls.opened += 1
                return cls()

            def device_count(self) -> int:
                return devices

        Driver.name = name
        monkeypatch.setitem(sys.modules, f"{name}_backend", SimpleNamespace(backend=Driver))
        return Driver

    for name in registry.names():
        put(name, devices=0, verdict="absent")
    return put


def test_the_first_with_a_device_is_chosen(install: Install) -> None:
    install("rocm", devices=0)
    install("tops")
    host = install("host")
    assert Api.quick_init().backend == "tops"
    assert Api.current() == "tops"
    assert host.opened == 0
    assert host.probes == 0


def test_the_order_of_ours() -> None:
    assert tuple(registry.OURS) == ("cuda", "rocm", "tops", "host", "opencl", "webgpu")


class Installed:
    """An entry point, as an installed distribution provides it."""

    value = "elsewhere:Backend"

    def __init__(self, found: object) -> None:
        self.load = lambda: found


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, install: Install) -> Callable[..., None]:
    """Install a backend of another distribution, with a device of the given kind."""

    def put(kind: str) -> None:
        class Elsewhere(CountingDriver):
            name = "elsewhere"

            @classmethod
            def probe(cls) -> BackendRecord:
                device = DeviceSummary(0, "theirs", "a card", kind)  # type: ignore[arg-type]
                return BackendRecord("elsewhere", "ok", "found", devices=(device,))

        monkeypatch.setattr(registry, "_others", lambda: {"elsewhere": Installed(Elsewhere)})

    return put


@pytest.mark.parametrize(("kind", "chosen"), [("accelerator", "elsewhere"), ("processor", "host")])
def test_a_rank_is_the_devices(
    install: Install,
    elsewhere: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    chosen: str,
) -> None:
    host = install("host")
    monkeypatch.setattr(
        host,
        "probe",
        lambda: BackendRecord(
            "host", "ok", "", devices=(DeviceSummary(0, "CPU", "cores", "processor"),)
        ),
    )
    elsewhere(kind)
    assert registry.names()[-3:] == ("opencl", "webgpu", "elsewhere")
    assert registry.choose() == chosen
    assert Device(0, "elsewhere").backend == "elsewhere"


def test_an_entry_point_that_is_no_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_others", lambda: {"odd": Installed(dict)})
    record = registry.record("odd")
    assert record.verdict == "refused"
    assert "odd = elsewhere:Backend of group uhal.backends: expected a subclass" in record.reason


def test_no_device_carries_a_record_for_each_backend(install: Install) -> None:
    install("rocm", verdict="refused")
    with pytest.raises(NoDeviceError) as caught:
        Api.init()
    assert [record.name for record in caught.value.records] == list(registry.names())
    assert len(str(caught.value).splitlines()) == 1 + len(registry.names())
    assert Device.count() == 0


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_a_forced_backend_never_falls_back(
    install: Install, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    install("host")
    if how == "variable":
        monkeypatch.setenv("UHAL_BACKEND", "rocm")
    with pytest.raises(NoDeviceError, match=r"rocm.* was asked for and has no device") as caught:
        Api.quick_init(backend="rocm" if how == "argument" else None)
    assert [record.name for record in caught.value.records] == ["rocm"]


def test_an_argument_beats_the_variable(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("cuda")
    install("host")
    monkeypatch.setenv("UHAL_BACKEND", "cuda")
    assert Api.quick_init(backend="host").backend == "host"
    assert Device().backend == "host"


def test_naming_a_backend_for_one_device_changes_no_choice(install: Install) -> None:
    install("cuda")
    install("host")
    Api.quick_init()
    assert Device(0, "host").backend == "host"
    assert Device().backend == "cuda"
    assert Api.current() == "cuda"


@pytest.mark.parametrize(
    ("backend", "error"), [("vulkan", ArgumentValueError), (3, ArgumentTypeError)]
)
def test_an_unknown_name_lists_the_known(backend: object, error: type[Exception]) -> None:
    with pytest.raises(
        error, match="backend: expected one of cuda, rocm, tops, host, opencl, webgpu, got "
    ):
        Api.init(backend=backend)  # type: ignore[arg-type]


def test_an_unknown_name_in_the_variable_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UHAL_BACKEND", "gpu")
    with pytest.raises(ArgumentValueError, match=r"UHAL_BACKEND: expected one of .* got str 'gpu'"):
        Api.init()


def test_a_missing_package_is_absent_and_a_broken_one_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = {"cuda_backend": "cuda_backend", "rocm_backend": "a_dependency"}

    def fail(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {missing[name]!r}", name=missing[name])

    monkeypatch.setattr(registry.importlib, "import_module", fail)
    absent, refused = registry.record("cuda"), registry.record("rocm")
    assert (absent.verdict, absent.reason) == ("absent", "not in this version of uhal")
    assert refused.verdict == "refused"
    assert refused.reason == "ModuleNotFoundError: No module named 'a_dependency'"


def test_a_probe_that_raises_is_a_refusal(install: Install) -> None:
    class Broken(install("cuda")):  # type: ignore[misc]
        @classmethod
        def probe(cls) -> BackendRecord:
            raise OSError("libcuda.so.1: invalid ELF header")

    sys.modules["cuda_backend"].backend = Broken  # type: ignore[attr-defined]
    record = registry.record("cuda")
    assert record.verdict == "refused"
    assert record.reason == "OSError: libcuda.so.1: invalid ELF header"


def test_a_backend_and_a_device_are_opened_once_by_any_number_of_threads(install: Install) -> None:
    driver = install("host", devices=2)
    barrier = threading.Barrier(8)
    found: list[Device] = []

    def work() -> None:
        barrier.wait()
        found.extend((Device(0, "host"), Device(1, "host")))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert driver.opened == 1
    assert {device.ordinal for device in found} == {0, 1}
    assert len({id(device.context) for device in found}) == 2


def test_the_library_variable_is_looked_at_again(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = install("cuda")
    registry.record("cuda")
    registry.record("cuda")
    assert driver.probes == 1
    monkeypatch.setenv("UHAL_CUDA_LIBRARY", "/somewhere/libcuda.so.1")
    registry.record("cuda")
    assert driver.probes == 2


def test_library_paths_that_are_no_text_are_told_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = os.fsdecode(b"/nowhere/lib\xff.so")
    for name in ("CUDA", "ROCM", "TOPS", "OPENCL"):
        monkeypatch.setenv(f"UHAL_{name}_LIBRARY", strange)
        record = registry.record(name.lower())
        tried = [one.path for one in record.libraries_tried]
        assert record.reason.count(r"/nowhere/lib\xff.so") == 1, record
        assert tried == [r"/nowhere/lib\xff.so"]


@pytest.mark.parametrize(
    ("ordinal", "error", "message"),
    [
        (2, NoDeviceError, "device host:2 does not exist: there are 2 devices, 0…1"),
        (-1, NoDeviceError, "device host:-1 does not exist"),
        (1.0, ArgumentTypeError, "device ordinal: expected an int, got float 1.0"),
        (True, ArgumentTypeError, "device ordinal: expected an int, got bool True"),
        (np.zeros(2), ArgumentTypeError, "device ordinal: expected an int, got numpy.ndarray of"),
    ],
)
def test_a_device_that_does_not_exist(
    install: Install, ordinal: int, error: type[Exception], message: str
) -> None:
    install("host", devices=2)
    with pytest.raises(error, match=message):
        Device(ordinal, "host")


def test_a_name_is_a_device(install: Install) -> None:
    install("host", devices=2)
    assert Device("host") == Device(0, "host")
    assert Device("host:1") == Device("host:1", "host") == Device(1, "host")
    for name, backend, error, words in (
        ("host:2", None, NoDeviceError, "device host:2 does not exist"),
        ("host:", None, ArgumentValueError, "got str 'host:'; give one or its name"),
        ("host:-1", None, ArgumentValueError, "of a backend that is one of"),
        ("gpu", None, ArgumentValueError, "got str 'gpu'"),
        ("host:1", "cuda", ArgumentValueError, "expected one of backend 'cuda', got 'host:1'"),
    ):
        with pytest.raises(error, match=words):
            Device(name, backend)


def test_devices_are_values(install: Install) -> None:
    install("host", devices=2)
    first, again, second = Device(0, "host"), Device(0, "host"), Device(1, "host")
    assert first == again
    assert hash(first) == hash(again)
    assert first != second
    assert repr(second) == "Device(1, 'host')"
    assert Device.count("host") == 2
    assert Device.count("cuda") == 0


def test_with_makes_a_device_current_and_gives_the_old_one_back(install: Install) -> None:
    install("host", devices=2)
    with pytest.raises(DeviceError, match=r"call Api.quick_init\(\) first"):
        Device.current()
    default = Api.quick_init(0)
    other = Device(1)
    with other, other, default:
        assert Device.current() == default
    with other:
        assert Device.current() == other
    assert Device.current() == default


def test_a_closed_device_is_refused_and_opened_afresh(install: Install) -> None:
    install("host")
    device = Device(0, "host")
    device.close()
    device.close()
    assert device.closed
    with pytest.raises(InvalidHandleError, match=r"is closed; open it again with Device\(0"):
        device.memory_info()
    fresh = Device(0, "host")
    assert not fresh.closed
    assert fresh == device
    assert fresh.context is not device.context


def test_a_fork_leaves_the_parents_objects_behind(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = install("cuda")
    kept = install("host", survives=True)
    Device(0, "cuda")
    before = Device(0, "host")
    monkeypatch.setattr(registry._lane, "fork_generation", lambda: 1)
    with pytest.raises(InvalidHandleError, match=r"initialised before fork at .*, and a forked"):
        Device(0, "cuda")
    # A fallback to the host would hide that the program forked too late.
    with pytest.raises(InvalidHandleError, match="initialised before fork"):
        Api.quick_init()
    after = Device(0, "host")
    assert after.context is not before.context
    assert (lost.opened, kept.opened) == (1, 2)


def test_the_contract_has_a_default_for_everything_optional() -> None:
    required = set(Backend.__abstractmethods__)
    optional = {name for name in vars(Backend) if not name.startswith("_")} - required
    assert {
        "release_device_context",
        "synchronize_device",
        "max_active_blocks",
        "live_counts",
        "priority_range",
        "special_stream",
    } <= optional
