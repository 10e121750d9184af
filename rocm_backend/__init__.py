"""The ROCm backend: AMD's devices through the HSA runtime alone, without HIP and the ROCm SDK.

`backend` is the object that `uhal.registry` opens; `RocmApi` and related classes are the
interface's classes, bound to this backend. README.md maps every noun of the interface to this
backend.
"""

from rocm_backend._backend import RocmBackend
from uhal.fixed import fix

backend = RocmBackend

_fixed = fix(RocmBackend.name, "Rocm")
RocmApi = _fixed.Api
RocmDevice = _fixed.Device
RocmStream = _fixed.Stream
RocmEvent = _fixed.Event
RocmModule = _fixed.Module
RocmDeviceBuffer = _fixed.DeviceBuffer
RocmHostBuffer = _fixed.HostBuffer
