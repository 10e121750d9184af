"""The OpenCL backend: any OpenCL runtime that takes SPIR-V and gives memory addresses.

`backend` is the object that `uhal.registry` opens; `ClApi` and related classes are the interface's
classes, bound to this backend. README.md maps every noun of the interface to this backend.
"""

from opencl_backend._backend import OpenClBackend
from uhal.fixed import fix

backend = OpenClBackend

_fixed = fix(OpenClBackend.name, "Cl")
ClApi = _fixed.Api
ClDevice = _fixed.Device
ClStream = _fixed.Stream
ClEvent = _fixed.Event
ClModule = _fixed.Module
ClDeviceBuffer = _fixed.DeviceBuffer
ClHostBuffer = _fixed.HostBuffer
