"""Effects of a faulty kernel; the calling process may lose its device."""

from __future__ import annotations

import gc

import numpy as np

from uhal import Api, Device, DeviceBuffer, Module, Stream, launch
from uhal.errors import DeviceError
from uhal.registry import backend as opened_backend
from uhal_conformance.slots import launch_graph


class Broken:
    """A device with a faulty launch between good launches."""

    def __init__(self, backend: str, image: str) -> None:
        self.device = Api.quick_init(0, backend)
        self.fault = Module.from_file(image).get_function("fault")
        self.out = DeviceBuffer.zeros(64, "u32")
        self.stream = Stream()

    def run(self, now: int) -> None:
        launch(self.fault, 1, 64, (now, self.out), stream=self.stream)


def expect_lost(broken: Broken) -> None:
    for act in (
        lambda: broken.run(0),
        broken.out.to_numpy,
        broken.stream.query,
        broken.device.synchronize,
        lambda: DeviceBuffer.zeros(1, "u8"),
    ):
        try:
            act()
        except DeviceError as error:
            assert "was lost earlier and takes no more work" in str(error), error
        else:
            raise AssertionError("not refused")
    broken.stream.close()
    broken.out.close()


TELLS_WHICH = {"host"}
"""Backends that say which of a plan's launches failed."""


def name_the_suspects(backend: str, image: str) -> None:
    broken = Broken(backend, image)
    broken.run(0)
    broken.stream.synchronize()
    # Any call after the bad launch may raise the fault.
    try:
        broken.run(1)
        broken.run(0)
        broken.stream.synchronize()
    except DeviceError as error:
        # a launch on an idle stream may run and report at once
        assert 1 <= len(error.candidates) <= (1 if backend in TELLS_WHICH else 2)
        first = error.candidates[0]
        assert (first.kernel, first.grid, first.block) == ("fault", (1, 1, 1), (64, 1, 1))
        assert first.arguments.startswith("now=1, out=0x")
        assert first.site.startswith("faults.py:")
    else:
        raise AssertionError("the fault was not reported")
    expect_lost(broken)
    del broken
    gc.collect()


def fault_in_a_graph(backend: str, image: str) -> None:
    broken = Broken(backend, image)
    broken.run(0)
    broken.stream.synchronize()
    verbs = opened_backend(backend)
    verbs.begin_capture(broken.stream.handle)
    broken.run(0)
    broken.run(1)
    graph = verbs.end_capture(broken.stream.handle)
    executable = verbs.instantiate_graph(graph)
    # The capture has run no launch.
    broken.stream.synchronize()
    try:
        launch_graph(verbs, executable.handle, broken.stream.handle)
        broken.stream.synchronize()
    except DeviceError as error:
        assert "lost" in str(error), error
    else:
        raise AssertionError("the fault was not reported")


def fault_in_a_plan(backend: str, image: str) -> None:
    broken = Broken(backend, image)
    broken.run(0)
    with broken.stream.capture("breaking") as plan:
        now = plan.slot("now", 0)
        broken.run(0)
        launch(broken.fault, 1, 64, (now, broken.out), stream=broken.stream)
        broken.run(0)
    plan.replay()
    broken.stream.synchronize()
    try:
        plan.replay(now=1)
        broken.stream.synchronize()
    except DeviceError as error:
        told = [one for one in error.candidates if one.plan]
        assert len(told) == (1 if backend in TELLS_WHICH else 3), error
        (last,) = [one for one in told if one.index == 1]
        assert (last.kernel, last.plan, last.index) == ("fault", "breaking", 1), error
        assert last.arguments.startswith("now=1, out=0x"), error
        assert last.replay_site.startswith("faults.py:"), error
        assert "launch 1 of plan 'breaking' replayed at faults.py:" in str(error), error
    else:
        raise AssertionError("the fault was not reported")
    try:
        plan.replay()
    except DeviceError as error:
        assert "was lost earlier and takes no more work" in str(error), error
    else:
        raise AssertionError("not refused")
    expect_lost(broken)
    plan.close()


def lose_one_and_use_the_other(backend: str, image: str) -> None:
    broken = Broken(backend, image)
    with Device(1, backend):
        fine = Module.from_file(image).get_function("fault")
        out = DeviceBuffer.from_numpy(np.zeros(64, "u4"))
    try:
        broken.run(1)
        broken.stream.synchronize()
    except DeviceError:
        fine[1, 64](0, out)
        assert (out.to_numpy() == 1).all()
        expect_lost(broken)
    else:
        raise AssertionError("the fault was not reported")


def name_the_one_when_blocking(backend: str, image: str) -> None:
    broken = Broken(backend, image)
    broken.run(0)
    try:
        broken.run(1)
    except DeviceError as error:
        (only,) = error.candidates
        assert only.arguments.startswith("now=1, ")
        assert "It was this one: fault grid (1, 1, 1)" in str(error)
    else:
        raise AssertionError("the fault was not reported")
    expect_lost(broken)
