"""asyncio: streams and events are awaited, and raise what `synchronize` raises."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Event, Stream
from uhal.errors import CaptureError, InvalidHandleError


async def until(awaited: Stream | Event) -> None:
    await awaited


def test_tasks_await_streams_and_events(device: Device, rng: np.random.Generator) -> None:
    values = rng.integers(0, 1 << 30, 1 << 16, dtype="u4")
    before = asyncio.Event()

    async def copy(number: int) -> None:
        source = DeviceBuffer.from_numpy(values + number)
        target = DeviceBuffer.uninitialized(values.size, "u32")
        with Stream() as stream, Event() as event:
            await stream
            await before.wait()
            target.copy_from_async(source, stream)
            event.record(stream)
            await (event if number % 2 else stream)
            assert event.query()
            assert np.array_equal(target.to_numpy(stream=stream), values + number)
            await event
            await stream

    async def copy_all() -> None:
        tasks = [asyncio.create_task(copy(number)) for number in range(8)]
        await asyncio.sleep(0)
        before.set()
        await asyncio.gather(*tasks)

    asyncio.run(copy_all())
    asyncio.run(until(Event()))


def test_an_event_that_is_recorded_again_ends_a_wait_for_its_earlier_mark(device: Device) -> None:
    async def record_again(stream: Stream, event: Event, other: Stream) -> None:
        event.record(stream)
        waiting = asyncio.create_task(until(event))
        await asyncio.sleep(0)
        event.record(other)
        await waiting

    with Stream() as stream, Stream() as other, Event() as event:
        asyncio.run(record_again(stream, event, other))


def test_await_refuses_what_synchronize_refuses(device: Device) -> None:
    with Stream() as stream, Event() as event:
        pass
    for closed in (stream, event):
        with pytest.raises(InvalidHandleError, match="closed"):
            asyncio.run(until(closed))


def test_a_stream_is_not_awaited_during_its_capture(device: Device) -> None:
    async def capture(stream: Stream) -> None:
        with stream.capture():
            await stream

    with Stream() as stream, pytest.raises(CaptureError, match="await"):
        asyncio.run(capture(stream))
