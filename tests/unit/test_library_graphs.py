"""Graph functions over libraries that lack graph functions, or refuse calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuda_backend import CudaBackend
from tests import fake_libcuda, fake_libtopsrt
from tests.slots import KernelCall, launch_graph, update_kernel
from tops_backend import TopsBackend
from uhal.contract import Backend, ExecutableGraph
from uhal.errors import DeviceError, NotSupportedError
from uhal.library_graphs import GraphVerbs

STREAM, GRAPH, EXECUTABLE, NODE = 0x10, 0x20, 0x30, 0x1
CALL = KernelCall(0x40, (1, 1, 1), (1, 1, 1), 0, [b"1234"])
FAILURE = 1
"""Code of `InvalidValue` in both vendors' libraries."""

STEPS: dict[str, Callable[[Backend], object]] = {
    "begin": lambda backend: backend.begin_capture(STREAM),
    "status": lambda backend: backend.capture_status(STREAM),
    "end": lambda backend: backend.end_capture(STREAM),
    "instantiate": lambda backend: backend.instantiate_graph(GRAPH),
    "launch": lambda backend: launch_graph(backend, EXECUTABLE, STREAM),
    "destroy_executable": lambda backend: backend.destroy_executable_graph(EXECUTABLE),
    "destroy": lambda backend: backend.destroy_graph(GRAPH),
}


@dataclass(frozen=True)
class Vendor:
    """A backend and the fake library that it runs on."""

    backend: type[GraphVerbs]
    build: Callable[..., Path]
    load: Callable[[Path], fake_libcuda.Fake | fake_libtopsrt.Fake]

    def open(
        self, folder: Path, patch: pytest.MonkeyPatch, without: Iterable[str] = ()
    ) -> tuple[GraphVerbs, fake_libcuda.Fake | fake_libtopsrt.Fake]:
        path = self.build(folder, without=without)
        patch.setenv(self.backend.library.variable, str(path))
        return self.backend.open(), self.load(path)


VENDORS = [
    Vendor(CudaBackend, fake_libcuda.build, fake_libcuda.Fake),
    Vendor(TopsBackend, fake_libtopsrt.build, fake_libtopsrt.Fake),
]


@pytest.fixture(params=VENDORS, ids=lambda vendor: vendor.backend.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    found: Vendor = request.param
    return found


def test_every_failure_is_raised(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, fake = vendor.open(tmp_path, monkeypatch)
    for step, act in STEPS.items():
        call = getattr(backend.graph_names, step)
        act(backend)
        fake.answer(call, FAILURE)
        with pytest.raises(DeviceError, match=f"^{call}: "):
            act(backend)
        fake.answer(call, 0)


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("step", STEPS)
def test_a_capture_that_could_not_be_used_does_not_begin(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    lacked = getattr(vendor.backend.graph_names, step)
    backend, fake = vendor.open(tmp_path, monkeypatch, without=[lacked])
    if step != "begin":
        fake.answer(backend.graph_names.begin, FAILURE)
    with pytest.raises(NotSupportedError) as refused:
        backend.begin_capture(STREAM)
    words = str(refused.value)
    assert f"it lacks {lacked}. {backend.graph_names.advice}" in words
    assert refused.value.call == lacked
    if step == "status":
        assert backend.capture_status(STREAM) == "none"


def test_kernels_are_listed_in_the_order_in_which_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, fake = VENDORS[0].open(tmp_path, monkeypatch)
    assert backend.instantiate_graph(GRAPH) == ExecutableGraph(0, (1, 3), others=1)
    for call in ("cuGraphGetNodes", "cuGraphNodeGetDependencies", "cuGraphNodeGetType"):
        fake.answer(call, FAILURE)
        with pytest.raises(DeviceError, match=f"^{call}: "):
            backend.instantiate_graph(GRAPH)
        fake.answer(call, 0)


def test_a_refused_change_of_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, fake = VENDORS[0].open(tmp_path, monkeypatch)
    update_kernel(backend, EXECUTABLE, NODE, CALL)
    fake.answer("cuGraphExecKernelNodeSetParams", FAILURE)
    with pytest.raises(DeviceError, match=r"^cuGraphExecKernelNodeSetParams: "):
        update_kernel(backend, EXECUTABLE, NODE, CALL)


def test_gcus_change_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, _ = VENDORS[1].open(tmp_path, monkeypatch)
    assert backend.instantiate_graph(GRAPH).kernels is None
    assert backend.hot_table.slots["graph_update_kernel"] == 0


class WithoutGraphs(Backend):
    """A backend without graphs."""

    name = "plain"
    __abstractmethods__: frozenset[str]


WithoutGraphs.__abstractmethods__ = frozenset()


def test_a_backend_without_graphs_says_so() -> None:
    backend = WithoutGraphs()  # type: ignore[abstract]
    assert backend.capture_status(STREAM) == "none"
    assert not backend.begin_capture(STREAM)
    for step, act in STEPS.items():
        if step not in ("begin", "status", "launch"):
            with pytest.raises(NotSupportedError, match=r"^plain: launches cannot be captured"):
                act(backend)
