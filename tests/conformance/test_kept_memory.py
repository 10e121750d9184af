"""Memory that the pool does not own stays in place while pending work uses the memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, HostBuffer, Module, Stream, launch
from uhal.errors import InvalidHandleError, NotSupportedError
from uhal_conformance.gate import Gate

Images = Callable[[str], Path]
Gates = Callable[[], Gate]
COUNT = 64


class Owner:
    """Memory of another owner, freed together with this object."""

    def __init__(self) -> None:
        self.memory = DeviceBuffer.zeros(COUNT, "u32")
        Stream.default().synchronize()
        self.address = self.memory.as_device_ptr()


class Uses:
    """Work in a stream that uses a buffer, by name; its result in `result()` is `value`."""

    def __init__(self, basic: Module, stream: Stream, value: int) -> None:
        self.basic, self.stream, self.value = basic, stream, value
        self.other = DeviceBuffer.from_numpy(np.full(COUNT, value, "u4"))
        self.pinned = HostBuffer(COUNT, "u32")
        self.pinned.array[:] = value
        self.plans: list[Any] = []

    def kernel(self, buffer: DeviceBuffer) -> None:
        fill = self.basic.get_function("fill")
        launch(fill, 1, 64, (COUNT, self.value, buffer), stream=self.stream)

    def view(self, buffer: DeviceBuffer) -> None:
        self.kernel(buffer[:].view("u32"))

    def pattern(self, buffer: DeviceBuffer) -> None:
        buffer.set_32(self.value, stream=self.stream)

    def copy_in(self, buffer: DeviceBuffer) -> None:
        buffer.copy_from_async(self.other, self.stream)

    def copy_out(self, buffer: DeviceBuffer) -> None:
        self.other.copy_from_async(buffer, self.stream)

    def upload(self, buffer: DeviceBuffer) -> None:
        buffer.copy_from_async(self.pinned, self.stream)

    def download(self, buffer: DeviceBuffer) -> None:
        buffer.copy_to_async(self.pinned, self.stream)

    def plan(self, buffer: DeviceBuffer) -> None:
        with Stream() as other:
            with other.capture() as plan:
                launch(
                    self.basic.get_function("fill"),
                    1,
                    64,
                    (COUNT, self.value, buffer),
                    stream=other,
                )
            plan.replay(self.stream)
            self.plans.append(plan)

    def close(self) -> None:
        self.plans.clear()
        for memory in (self.other, self.pinned):
            memory.close()


USES = ("kernel", "view", "pattern", "copy_in", "copy_out", "upload", "download", "plan")
ENDS = [(use, ("close", "del")[number % 2]) for number, use in enumerate(USES)]


@pytest.mark.parametrize(("use", "end"), ENDS)
def test_an_owner_is_kept_while_work_uses_its_memory(
    device: Device, basic: Module, gate: Gates, rng: np.random.Generator, use: str, end: str
) -> None:
    held, owner = gate(), Owner()
    kept = weakref.ref(owner)
    with Stream() as stream:
        uses = Uses(basic, stream, int(rng.integers(1, 2**32)))
        buffer = DeviceBuffer.from_raw(owner.address, COUNT, "u32", owner=owner)
        held.hold(stream)
        getattr(uses, use)(buffer)
        if end == "close":
            buffer.close()
        del owner, buffer
        gc.collect()
        assert kept() is not None, "let go while the stream is held"
        held.open()
        stream.synchronize()
        uses.close()
        gc.collect()
        assert kept() is None


def test_an_owner_is_let_go_when_nothing_uses_its_memory(device: Device, basic: Module) -> None:
    owner = Owner()
    kept = weakref.ref(owner)
    with DeviceBuffer.from_raw(owner.address, COUNT, "u32", owner=owner) as buffer:
        launch(basic.get_function("fill"), 1, 64, (COUNT, 1, buffer))
        assert (buffer.to_numpy() == 1).all()
        del owner
        gc.collect()
        assert kept() is not None
    gc.collect()
    assert kept() is None


def test_an_owner_is_kept_while_its_address_is_in_use(
    device: Device, basic: Module, gate: Gates
) -> None:
    held, owner = gate(), Owner()
    kept = weakref.ref(owner)
    with Stream() as stream:
        buffer = DeviceBuffer.from_raw(owner.address, COUNT, "u32", owner=owner)
        held.hold(stream)
        launch(basic.get_function("fill"), 1, 64, (COUNT, 7, buffer.as_device_ptr()), stream=stream)
        buffer.close()
        del owner
        gc.collect()
        assert kept() is not None
        held.open()
        stream.synchronize()
    gc.collect()
    assert kept() is None


def test_a_waiting_copy_comes_after_other_streams_work_on_an_owners_memory(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    owner, value = Owner(), int(rng.integers(1, 2**32))
    with (
        Stream() as stream,
        DeviceBuffer.from_raw(owner.address, COUNT, "u32", owner=owner) as buffer,
    ):
        for number in range(50):
            launch(
                basic.get_function("fill"),
                1,
                64,
                (COUNT, (value + number) % 2**32, buffer),
                stream=stream,
            )
        assert (buffer.to_numpy() == np.uint32((value + 49) % 2**32)).all()


# -- variables of modules --------------------------------------------------------------------------


def test_a_variable_closes_with_its_module(device: Device, image: Images) -> None:
    module = Module.from_file(image("globals"))
    whole = module.get_global("table", "u32")
    part = whole[3:5]
    module.close()
    assert whole.closed
    assert part.closed
    for buffer in (whole, part):
        with pytest.raises(InvalidHandleError, match="closed"):
            buffer.to_numpy()
        with pytest.raises(InvalidHandleError, match="closed"):
            buffer.set_32(1)
    with pytest.raises(InvalidHandleError, match="module is closed"):
        module.get_global("table")
    with pytest.raises(InvalidHandleError, match="module is closed"):
        module.write_global("table", b"1234")


@pytest.mark.parametrize(("use", "end"), ENDS)
def test_a_variable_is_there_while_work_uses_it(
    device: Device,
    basic: Module,
    image: Images,
    gate: Gates,
    rng: np.random.Generator,
    use: str,
    end: str,
) -> None:
    held, module = gate(), Module.from_file(image("globals"))
    with Stream() as stream:
        uses = Uses(basic, stream, int(rng.integers(1, 2**32)))
        table = module.get_global("table", "u32")
        seen = DeviceBuffer.zeros(COUNT, "u32")
        table.copy_from(np.full(COUNT, uses.value, "u4"))
        held.hold(stream)
        getattr(uses, use)(table)
        seen.copy_from_async(table, stream)
        if end == "close":
            module.close()
        del module, table
        gc.collect()
        held.open()
        stream.synchronize()
        assert (seen.to_numpy() == np.uint32(uses.value)).all()
        if use == "copy_out":
            assert (uses.other.to_numpy() == np.uint32(uses.value)).all()
        uses.close()
        seen.close()


def test_a_module_lives_as_long_as_a_variable_of_it(device: Device, image: Images) -> None:
    table = Module.from_file(image("globals")).get_global("table", "u32")
    gc.collect()
    table.set_32(5)
    assert (table.to_numpy() == 5).all()
    table.close()


# -- plans -----------------------------------------------------------------------------------------


def test_replays_on_two_streams_never_overlap(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    """The second replay runs after the first, and the plan's memory lives until both end."""
    first_add, second_add, initial = (int(n) for n in rng.integers(0, 2**32, 3))
    step = basic.get_function("step")
    busy, pinned = DeviceBuffer.zeros(1_000_000, "u32"), HostBuffer(COUNT, "u32")
    x = DeviceBuffer.uninitialized(COUNT, "u32")
    pinned.array[:] = initial
    x.copy_from(pinned)
    with Stream() as first, Stream() as second:
        with second.capture() as plan:
            add = plan.slot("add", 0)
            step[1, 64, 0, second](COUNT, 3, add, x)
        for _ in range(20):
            step[8, 64, 0, first](busy.size, 3, 1, busy)
        plan.replay(first, add=first_add)
        plan.replay(second, add=second_add)
        plan.close()
        first.synchronize()
        expected = ((initial * 3 + first_add) * 3 + second_add) % 2**32
        assert (x.to_numpy() == np.uint32(expected)).all()
    for memory in (busy, pinned, x):
        memory.close()


# -- host memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "made"), [(100, "array"), (100_000, "memoryview")])
def test_an_array_over_pinned_memory_may_change_after_a_copy_of_it(
    device: Device, rng: np.random.Generator, basic: Module, size: int, made: str
) -> None:
    value = int(rng.integers(1, 2**32))
    with HostBuffer(size, "u32") as pinned, Stream() as stream:
        pinned.array[:] = value
        array = pinned.array[1:]
        if made == "memoryview":
            array = np.frombuffer(array.data, "u4")
        busy = DeviceBuffer.zeros(1_000_000, "u32")
        for _ in range(20):
            launch(basic.get_function("fill"), 8, 64, (busy.size, 1, busy), stream=stream)
        buffer = DeviceBuffer.from_numpy(array, stream=stream)
        pinned.array[:] = 0
        assert (buffer.to_numpy() == np.uint32(value)).all()
        pinned.array[:] = value
        for _ in range(20):
            launch(basic.get_function("fill"), 8, 64, (busy.size, 1, busy), stream=stream)
        buffer.copy_from_async(array, stream)
        pinned.array[:] = 0
        assert (buffer.to_numpy() == np.uint32(value)).all()


def test_mapped_memory_is_there_while_a_kernel_uses_it(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    """The memory stays even when the host buffer that gave the address is closed."""
    values = rng.integers(0, 2**32, COUNT, "u4")
    busy, seen = DeviceBuffer.zeros(1_000_000, "u32"), DeviceBuffer.zeros(COUNT, "u32")
    pinned = HostBuffer(COUNT, "u32", mapped=True)
    try:
        address = pinned.device_ptr
    except NotSupportedError:
        pytest.skip("devices of this backend do not reach host memory")
    pinned.array[:] = values
    with Stream() as stream:
        for _ in range(20):
            launch(basic.get_function("fill"), 8, 64, (busy.size, 1, busy), stream=stream)
        echo = basic.get_function("echo_u32")
        launch(echo, 1, 64, (0, address, seen, COUNT - 1), stream=stream)
        pinned.close()
        others = [HostBuffer(COUNT, "u32") for _ in range(8)]
        for other in others:
            other.array[:] = 0
        stream.synchronize()
        assert np.array_equal(seen.to_numpy()[:-1], values[:-1])
