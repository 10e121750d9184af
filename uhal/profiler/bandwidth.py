"""Bandwidth of copies within a device's memory: the reference for other rates."""

from __future__ import annotations

import weakref

from uhal import _lane
from uhal.errors import DeviceError

_BYTES = 64 << 20
_COPIES = 4
_measured: weakref.WeakKeyDictionary[_lane.Context, float | None] = weakref.WeakKeyDictionary()


def copy_bandwidth(context: _lane.Context) -> float | None:
    """Return a device's bandwidth in bytes per second, by the fastest of several copies.

    Measured once per device. Copies 64 MiB, or an eighth of the free memory if that is less; each
    copied byte counts twice. `None` without memory for the copy, on a lost device, or without times
    of events.
    """
    if context not in _measured:
        try:
            _measured[context] = _measure(context)
        except DeviceError:
            return None
    return _measured[context]


def _measure(context: _lane.Context) -> float | None:
    device = context.device
    free = device.memory_info().free
    nbytes = min(_BYTES, free // 8) // 4096 * 4096
    if nbytes == 0:
        return None
    best = 0.0
    with (
        _lane.DeviceBuffer.zeros(nbytes, "u8", device=device) as source,
        _lane.DeviceBuffer.zeros(nbytes, "u8", device=device) as target,
        _lane.Stream(device=device) as stream,
        _lane.Event(device=device) as begin,
        _lane.Event(device=device) as end,
    ):
        for _ in range(_COPIES):
            begin.record(stream)
            target.copy_from_async(source, stream)
            end.record(stream)
            stream.synchronize()
            spent = end.elapsed_since(begin)
            if spent > 0:
                best = max(best, 2 * nbytes / spent * 1e3)
    return best or None
