"""Advice for names of CuPy, PyCUDA, Numba and PyTorch that uhal lacks or spells differently."""

from __future__ import annotations

_COMPILE = "compile a kernel with uhal.compile.cuda and load it with Module.from_bytes"
_TABLE = {
    "RawKernel RawModule SourceModule ElementwiseKernel ReductionKernel Program": _COMPILE,
    "jit cuda_jit": f"kernels in Python are in uhal.ptx; or {_COMPILE}",
    "cuda driver autoinit": 'the CUDA backend is Api.quick_init(backend="cuda") or Device("cuda")',
    "init": "the first device is Api.quick_init()",
    "mem_alloc malloc alloc": "DeviceBuffer.uninitialized(count, dtype) allocates memory",
    "to_device to_gpu memcpy_htod": "DeviceBuffer.from_numpy(array) copies an array to the device",
    "memcpy_dtoh": "buffer.to_numpy() copies to the host",
    "pagelocked_empty pinned_array pinned_empty": "HostBuffer(count, dtype) is pinned memory",
    "synchronize device_synchronize": "device.synchronize() or stream.synchronize() waits",
    "current_device get_current_device": "Device.current() is the current device",
    "is_available": "Api.backends() lists the backends",
}
ADVICE = {name: advice for names, advice in _TABLE.items() for name in names.split()}
"""What to write instead of a name."""
OF_OTHERS = "functions of arrays are in ubridge"
