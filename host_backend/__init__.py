"""The host backend: kernels on the CPU's cores. New backends start as a copy of it.

`backend` is the object that `uhal.registry` opens; `HostApi` and related classes are the
interface's classes, bound to this backend. README.md maps every noun of the interface to this
backend.
"""

from host_backend._backend import HostBackend
from uhal.fixed import fix

backend = HostBackend

_fixed = fix(HostBackend.name, "Host")
HostApi = _fixed.Api
HostDevice = _fixed.Device
HostStream = _fixed.Stream
HostEvent = _fixed.Event
HostModule = _fixed.Module
HostDeviceBuffer = _fixed.DeviceBuffer
HostHostBuffer = _fixed.HostBuffer
