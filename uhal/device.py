"""Arguments that name a device. `Device` is in the lane: it and its objects hold each other."""

from __future__ import annotations

from typing import TypeAlias

from uhal import registry
from uhal._lane import Device as Device
from uhal._lane import resolve_backend as resolve_backend
from uhal._refusal import describe
from uhal.errors import ArgumentTypeError
from uhal.records import MemoryInfo as MemoryInfo

DeviceLike: TypeAlias = Device | str
"""A device, or its name, as `"cuda"` or `"cuda:1"`."""


def as_device(device: object) -> Device:
    """Return an open device, given itself or a name such as `"cuda:1"`.

    A backend's name alone means its device 0. Every `device=` takes these. Raises
    `ArgumentTypeError` for anything else, `ArgumentValueError` for an invalid name, and
    `NoDeviceError` if there is no such backend or device.
    """
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise ArgumentTypeError(
            f"device: expected a uhal.Device, got {describe(device)}; {registry.NAMES_OF_DEVICES}"
        )
    return Device(device)
