"""The Tops backend: Enflame's GCUs through TopsRuntime, which needs no toolkit and no framework.

`uhal.registry` opens `backend`. `TopsApi` and similar names are the interface's classes fixed to
this backend. The backend was written from the vendor's published headers and has not run on a GCU.
"""

from tops_backend._backend import TopsBackend
from uhal.fixed import fix

backend = TopsBackend

_fixed = fix(TopsBackend.name, "Tops")
TopsApi = _fixed.Api
TopsDevice = _fixed.Device
TopsStream = _fixed.Stream
TopsEvent = _fixed.Event
TopsModule = _fixed.Module
TopsDeviceBuffer = _fixed.DeviceBuffer
TopsHostBuffer = _fixed.HostBuffer
