"""The CUDA backend: NVIDIA's driver library, reached without a toolkit.

`backend` is the object that `uhal.registry` opens; `CuApi` and related classes are the interface's
classes, bound to this backend. README.md maps every noun of the interface to its CUDA construct.
"""

from cuda_backend._backend import CudaBackend
from uhal.fixed import fix

backend = CudaBackend

_fixed = fix(CudaBackend.name, "Cu")
CuApi = _fixed.Api
CuDevice = _fixed.Device
CuStream = _fixed.Stream
CuEvent = _fixed.Event
CuModule = _fixed.Module
CuDeviceBuffer = _fixed.DeviceBuffer
CuHostBuffer = _fixed.HostBuffer
