"""Devices: their properties, the current device, closing and opening again."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

from uhal import Api, Device, DeviceBuffer, Event, HostBuffer, Stream, diagnostics
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NoDeviceError,
)
from uhal_conformance.children import check_child
from uhal_conformance.row import DeviceRow


def test_a_device_says_what_it_is(device: Device, row: DeviceRow) -> None:
    assert (device.backend, device.ordinal) == (row.backend, row.ordinal)
    assert device.name
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", device.uuid)
    assert Device(row.ordinal, row.backend).uuid == device.uuid
    assert 0 <= device.ordinal < Device.count(row.backend)
    assert all(isinstance(key, str) for key in device.attributes)
    assert Api.current() == row.backend
    record = next(r for r in Api.backends() if r.name == row.backend)
    assert (record.verdict, len(record.devices)) == ("ok", Device.count(row.backend))
    assert record.version
    assert record.reason


def test_limits_are_those_of_a_device_that_can_work(device: Device) -> None:
    limits = device.limits
    assert all(n >= 1 for n in (*limits.max_grid, *limits.max_block))
    assert limits.max_block[0] <= limits.max_threads_per_block
    assert limits.max_shared_bytes_per_block >= 16 << 10
    assert limits.processors >= 1
    assert limits.warp_size >= 1
    assert 1 <= limits.block_for_elements <= limits.max_threads_per_block
    assert limits.max_parameter_bytes >= 1024


def test_memory_info(device: Device) -> None:
    info = device.memory_info()
    assert 0 < info.free <= info.total
    with DeviceBuffer.zeros(64 << 20, "u8"):
        device.synchronize()
        assert device.memory_info().total == info.total


def test_devices_are_values(device: Device) -> None:
    same = Device(device.ordinal, device.backend)
    assert same == device
    assert hash(same) == hash(device)
    assert pickle.loads(pickle.dumps(device)) == device
    assert device != device.ordinal
    with pytest.raises(ArgumentTypeError, match=r"Compare device\.backend"):
        assert device != device.backend
    assert repr(device) == f"Device({device.ordinal}, {device.backend!r})"


def test_the_current_device_is_where_objects_are_made(device: Device) -> None:
    assert Device.current() == device
    with device, device:
        assert Device.current() == device
    made: list[Any] = [Stream(), Event(), HostBuffer(1, "u8"), DeviceBuffer.zeros(1, "u8")]
    for thing in made:
        assert thing.device == device
        thing.close()


@pytest.mark.parametrize("ordinal", [-1, 10_000])
def test_a_device_that_is_not_there(device: Device, ordinal: int) -> None:
    with pytest.raises(NoDeviceError, match="does not exist"):
        Device(ordinal, device.backend)


@pytest.mark.parametrize("ordinal", [1.0, None, True])
def test_a_device_is_asked_for_by_number(device: Device, ordinal: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="ordinal: expected an int"):
        Device(ordinal, device.backend)
    with pytest.raises(ArgumentValueError, match='its name, as "cuda" or "cuda:1"'):
        Device("0", device.backend)
    with pytest.raises(ArgumentTypeError, match=r"expected a uhal\.Device"):
        Stream(device=object())  # type: ignore[arg-type]


def test_diagnostics_count_what_is_open(device: Device) -> None:
    before = diagnostics()["live"]
    stream, event, pinned = Stream(), Event(), HostBuffer(4, "u8")
    buffers = [DeviceBuffer.zeros(4, "u8") for _ in range(3)]
    after = diagnostics()["live"]
    added = {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}
    assert added == {"streams": 1, "events": 1, "host_buffers": 1, "buffers": 3}
    for thing in (stream, event, pinned, *buffers):
        thing.close()
    assert diagnostics()["live"] == before


def close_and_open_again(backend: str, ordinal: int) -> None:
    device = Api.quick_init(ordinal, backend)
    stream = Stream()
    buffer = DeviceBuffer.from_numpy(np.arange(10))
    device.close()
    device.close()
    assert device.closed
    for act in (stream.synchronize, buffer.to_numpy, device.synchronize, lambda: Stream()):
        try:
            act()
        except InvalidHandleError as error:
            assert f"Device({ordinal}, '{backend}')" in str(error)
        else:
            raise AssertionError("not refused")
    stream.close()
    fresh = Api.quick_init(ordinal, backend)
    assert fresh == device
    assert not fresh.closed
    assert DeviceBuffer.from_numpy(np.arange(10)).to_numpy().sum() == 45
    other = DeviceBuffer.zeros(10, "i64")
    try:
        other.copy_from(buffer)
    except InvalidHandleError:
        print("refused")


def close_and_open_twice(backend: str, ordinal: int) -> None:
    """Close and open a device; no contents or objects of the closed device remain."""
    for _ in range(3):
        device = Device(ordinal, backend)
        buffer = DeviceBuffer.zeros(10, "i64", device=device)
        assert not buffer.to_numpy().any()
        buffer.close()
        device.close()
        del buffer, device


@pytest.mark.drawn(3, among_backends=True)
def test_a_thread_outlives_its_device(device: Device) -> None:
    assert check_child(close_and_open_twice, device.backend, device.ordinal) == ""


@pytest.mark.drawn(3, among_backends=True)
def test_a_device_is_closed_and_opened_again(device: Device) -> None:
    assert check_child(close_and_open_again, device.backend, device.ordinal) == "refused\n"


def without_a_device() -> None:
    acts = (
        Stream,
        Event,
        lambda: DeviceBuffer.zeros(1, "u8"),
        lambda: HostBuffer(1, "u8"),
        Device.current,
    )
    for act in acts:
        try:
            act()
        except DeviceError as error:
            assert "Api.quick_init()" in str(error)
        else:
            raise AssertionError("not refused")
    print("refused")


def test_nothing_is_chosen_behind_the_users_back() -> None:
    assert check_child(without_a_device) == "refused\n"
