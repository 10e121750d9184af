"""The ROCm backend: AMD's devices through the HSA runtime alone, without HIP and the ROCm SDK.

`backend` is what `uhal.registry` opens. In this version it finds the runtime and its devices and
reads and chooses their images; it does not launch yet, and says so.
"""

from rocm_backend._backend import RocmBackend

backend = RocmBackend
