"""A plan runs the captured work at each replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from uhal import Device, DeviceBuffer, HostBuffer, Module, Stream, diagnostics, launch
from uhal.errors import ArgumentRangeError, ArgumentTypeError, InvalidHandleError
from uhal_conformance import faults
from uhal_conformance.children import check_child
from uhal_conformance.row import DeviceRow
from uhal_conformance.sampling import rounds

BLOCK = 128
GRID = 3
COUNT = 1000


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    with Stream() as stream:
        yield stream


def drawn(rng: np.random.Generator) -> npt.NDArray[np.uint32]:
    return rng.integers(0, 2**32, COUNT, "u4")


def factors(rng: np.random.Generator) -> tuple[int, int]:
    multiply, add = (int(number) for number in rng.integers(0, 2**31, 2))
    return 2 * multiply + 1, add


def stepped(values: npt.NDArray[np.uint32], *factors: tuple[int, int]) -> npt.NDArray[Any]:
    for multiply, add in factors:
        values = values * np.uint32(multiply) + np.uint32(add)
    return values


def run(basic: Module, stream: Stream, buffer: Any, multiply: Any, add: Any) -> None:
    """x → x * multiply + add."""
    step = basic.get_function("step")
    launch(step, GRID, BLOCK, (COUNT, multiply, add, buffer), stream=stream)


def test_a_plan_repeats_what_was_captured(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    expected = drawn(rng)
    first, second = factors(rng), factors(rng)
    buffer = DeviceBuffer.from_numpy(expected)
    with stream.capture("twice") as plan:
        run(basic, stream, buffer, *first)
        basic.get_function("step")[GRID, BLOCK, 0, stream](COUNT, *second, buffer)
    assert plan.kernels == ("step", "step")
    assert len(plan) == 2
    assert np.array_equal(buffer.to_numpy(), expected)
    for _ in range(rounds(5, 500)):
        plan.replay()
        expected = stepped(expected, first, second)
    assert np.array_equal(buffer.to_numpy(stream=stream), expected)
    plan.close()
    plan.close()
    with pytest.raises(InvalidHandleError, match=r"^plan 'twice': it is closed"):
        plan.replay()


def test_a_plan_waits_for_what_made_its_memory_usable(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    # Both buffers are filled in other streams, and the program does not wait for them.
    expected, factor = drawn(rng), factors(rng)
    with Stream() as other:
        buffer = DeviceBuffer.from_numpy(expected, stream=other)
        with stream.capture() as plan:
            run(basic, stream, buffer, *factor)
        with plan, Stream() as third:
            plan.replay(third)
            assert np.array_equal(buffer.to_numpy(stream=third), stepped(expected, factor))


def test_a_plan_runs_in_order_with_other_work(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    expected = drawn(rng)
    inside, outside = factors(rng), factors(rng)
    buffer = DeviceBuffer.from_numpy(expected)
    with stream.capture() as plan:
        run(basic, stream, buffer, *inside)
    with plan:
        for _ in range(5):
            run(basic, stream, buffer, *outside)
            plan.replay()
            expected = stepped(expected, outside, inside)
        assert np.array_equal(buffer.to_numpy(), expected)


def test_a_plan_with_slots_takes_numbers(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    expected = drawn(rng)
    multiply, add = factors(rng)
    buffer = DeviceBuffer.from_numpy(expected)
    with stream.capture() as plan:
        moved = plan.slot("add", add)
        run(basic, stream, buffer, multiply, moved)
        run(basic, stream, buffer, multiply, 1)
        run(basic, stream, buffer, multiply, moved)
    with plan:
        plan.replay()
        expected = stepped(expected, (multiply, add), (multiply, 1), (multiply, add))
        for _ in range(5):
            _, add = factors(rng)
            plan.replay(add=add)
            expected = stepped(expected, (multiply, add), (multiply, 1), (multiply, add))
        plan.replay(add=np.uint32(7))
        plan.replay()
        for _ in range(2):
            expected = stepped(expected, (multiply, 7), (multiply, 1), (multiply, 7))
        with pytest.raises(ArgumentRangeError, match=r"slot 'add': step, argument 2 'add' \(u32\)"):
            plan.replay(add=-1)
        with pytest.raises(ArgumentTypeError, match=r"slot 'add': step, argument 2"):
            plan.replay(add="many")
        assert np.array_equal(buffer.to_numpy(stream=stream), expected)


def test_a_plan_with_slots_takes_memory(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    factor, halves = factors(rng), factors(rng)
    values = [drawn(rng) for _ in range(4)]
    buffers = [DeviceBuffer.from_numpy(one) for one in values]
    with stream.capture() as plan:
        plan.slot("x", buffers[0])
        run(basic, stream, buffers[0], *factor)
        launch(
            basic.get_function("step"),
            1,
            BLOCK,
            (500, *halves, buffers[0][500:]),
            stream=stream,
        )
    with plan:
        for index in (0, 1, 2, 1, 3):
            plan.replay(x=buffers[index])
            values[index] = stepped(values[index], factor)
            values[index][500:] = stepped(values[index][500:], halves)
        for buffer, expected in zip(buffers, values, strict=True):
            assert np.array_equal(buffer.to_numpy(stream=stream), expected)
        with pytest.raises(ArgumentTypeError, match=r"slot 'x' \(step, argument 3 'x'"):
            plan.replay(x=buffers[0].view("f32"))
        short = buffers[0][1:]
        with pytest.raises(ValueError, match=r"at least 1000 u32 on .*, got .* of 999 u32"):
            plan.replay(x=short)


def test_a_plan_keeps_the_memory_of_closed_buffers(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    expected, factor = drawn(rng), factors(rng)
    source, out = DeviceBuffer.from_numpy(expected), DeviceBuffer.zeros(COUNT, "u32")
    with stream.capture() as plan:
        run(basic, stream, source, *factor)
        out.copy_from_async(source, stream)
    source.close()
    del source
    # This buffer has the same size and must not reuse the plan's memory.
    other = DeviceBuffer.from_numpy(drawn(rng))
    with plan:
        plan.replay()
        assert np.array_equal(out.to_numpy(stream=stream), stepped(expected, factor))
        other.close()


def test_a_plan_reuses_what_its_capture_let_go_of(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    before = diagnostics()["live"]["buffers"]
    out = DeviceBuffer.zeros(COUNT, "u32")
    addresses = set()
    with stream.capture() as plan:
        for _ in range(10):
            with DeviceBuffer.uninitialized_async(COUNT, "u32", stream) as middle:
                middle.set_32(3, stream=stream)
                run(basic, stream, middle, 5, 1)
                addresses.add(repr(middle))
                out.copy_from_async(middle, stream)
    with plan:
        in_use = device_bytes(stream)
        plan.replay()
        assert (out.to_numpy(stream=stream) == 16).all()
    assert device_bytes(stream) < in_use
    out.close()
    assert diagnostics()["live"]["buffers"] == before


def device_bytes(stream: Stream) -> int:
    return stream.device.pool_statistics()["bytes_in_use"]


def test_a_plan_copies_pinned_memory(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    factor = factors(rng)
    source, result = HostBuffer(COUNT, "u32"), HostBuffer(COUNT, "u32")
    buffer = DeviceBuffer.zeros(COUNT, "u32")
    with stream.capture() as plan:
        buffer.copy_from_async(source, stream)
        run(basic, stream, buffer, *factor)
        buffer.copy_to_async(result, stream)
    with plan:
        for _ in range(3):
            values = drawn(rng)
            source.array[:] = values
            plan.replay()
            stream.synchronize()
            assert np.array_equal(result.array, stepped(values, factor))
    source.close()
    result.close()


def test_a_plan_of_two_streams(stream: Stream, basic: Module, rng: np.random.Generator) -> None:
    values = [drawn(rng), drawn(rng)]
    first, second, last = factors(rng), factors(rng), factors(rng)
    buffers = [DeviceBuffer.from_numpy(one) for one in values]
    with Stream() as other:
        with stream.capture() as plan:
            run(basic, stream, buffers[0], *first)
            other.wait_event(stream.record_event())
            run(basic, other, buffers[1], *second)
            run(basic, stream, buffers[0], *second)
            stream.wait_event(other.record_event())
            run(basic, stream, buffers[1], *last)
        run(basic, other, buffers[1], *first)
        stream.wait_event(other.record_event())
        with plan:
            plan.replay()
            stream.synchronize()
    assert np.array_equal(buffers[0].to_numpy(), stepped(values[0], first, second))
    assert np.array_equal(buffers[1].to_numpy(), stepped(values[1], first, second, last))


def test_a_plan_that_is_abandoned_leaves_nothing(
    stream: Stream, basic: Module, rng: np.random.Generator
) -> None:
    expected, factor = drawn(rng), factors(rng)
    buffer = DeviceBuffer.from_numpy(expected)
    with pytest.raises(ZeroDivisionError), stream.capture() as plan:
        run(basic, stream, buffer, *factor)
        raise ZeroDivisionError
    assert plan.closed
    run(basic, stream, buffer, *factor)
    assert np.array_equal(buffer.to_numpy(stream=stream), stepped(expected, factor))


def test_a_plan_that_faults_names_its_launches(
    row: DeviceRow, image: Callable[[str], Path]
) -> None:
    check_child(
        faults.fault_in_a_plan,
        row.backend,
        str(image("fault")),
        environment=row.environment,
        options=("-W", "error"),
    )
