"""A backend's own classes, which are the interface's classes fixed to that backend."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import host_backend
import uhal
from tests.children import check_child
from uhal.errors import ArgumentValueError, DeviceError

NAMES = ("Api", "Device", "Stream", "Event", "Module", "DeviceBuffer", "HostBuffer")


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_subclass_with_the_backends_name(name: str) -> None:
    fixed = getattr(host_backend, f"Host{name}")
    assert issubclass(fixed, getattr(uhal, name))
    assert (fixed.__name__, fixed.__module__) == (f"Host{name}", "host_backend")
    assert fixed is getattr(host_backend, f"Host{name}")
    assert "host backend" in fixed.__doc__


def test_what_is_no_class_of_the_interface_is_not_there() -> None:
    for name in ("HostNothing", "Stream", "CuStream"):
        with pytest.raises(AttributeError, match=name):
            getattr(host_backend, name)


def use_without_choosing() -> None:
    """The class itself selects the backend, without `quick_init`."""
    with host_backend.HostStream() as stream:
        assert isinstance(stream, uhal.Stream)
        assert stream.device.backend == "host"
    buffer = host_backend.HostDeviceBuffer.from_numpy(np.arange(4))
    assert type(buffer) is host_backend.HostDeviceBuffer
    assert type(buffer[1:]) is host_backend.HostDeviceBuffer
    assert buffer[1:].to_numpy().tolist() == [1, 2, 3]
    assert host_backend.HostEvent().device == host_backend.HostDevice(0)
    assert host_backend.HostHostBuffer(3, "u8").device.backend == "host"
    assert host_backend.HostDevice.count() == 1
    assert host_backend.HostDevice.current().backend == "host"
    assert host_backend.HostApi.current() == "host"
    assert host_backend.HostApi.quick_init() == uhal.Device.current()
    device = host_backend.HostDevice(0)
    assert pickle.loads(pickle.dumps(device)) == device
    try:
        host_backend.HostApi.quick_init(0, "cuda")
    except ArgumentValueError as error:
        assert "HostApi is fixed to backend 'host', got 'cuda'" in str(error)
    else:
        raise AssertionError("not refused")
    try:
        uhal.Stream(device=uhal.Device(1, "host"))
    except DeviceError:
        print("done")


def test_a_fixed_class_needs_no_choice_and_takes_no_other() -> None:
    assert check_child(use_without_choosing) == "done\n"
