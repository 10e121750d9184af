"""The WebGPU backend: GPUs over wgpu-native, which speaks Metal, Vulkan and Direct3D 12.

`backend` is the object that `uhal.registry` opens; `WgApi` and similar classes are the interface's
classes fixed to this backend. README.md maps every noun of the interface to this backend.
"""

from uhal.fixed import fix
from webgpu_backend._backend import WebGpuBackend

backend = WebGpuBackend

_fixed = fix(WebGpuBackend.name, "Wg")
WgApi = _fixed.Api
WgDevice = _fixed.Device
WgStream = _fixed.Stream
WgEvent = _fixed.Event
WgModule = _fixed.Module
WgDeviceBuffer = _fixed.DeviceBuffer
WgHostBuffer = _fixed.HostBuffer
